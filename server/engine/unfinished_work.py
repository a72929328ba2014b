"""Unfinished work of subscriptions and stages, as the reconciler sees it.

A call writes its decision first and then carries it out on all partitions. A crash in between
leaves a ledger or a publisher with debts, or holds without an owner. This class reads them from the
engine's state; only the primary of a partition has its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from weft.proto import pipelines

from .hold import AppKey, Hold
from .state import EngineState

Kind = Literal["owed", "published"]


class UnfinishedWork:
    def __init__(self, state: EngineState) -> None:
        self._state = state

    @property
    def is_empty(self) -> bool:
        state = self._state
        return not (state.owing or state.publishing or state.holds.unsure or state.holds.stages)

    def decisions(self) -> set[tuple[Kind, int, str]]:
        """Decisions not carried out on all partitions: (kind, the queue's `created`, the name)."""
        owed: set[tuple[Kind, int, str]] = {("owed", *key) for key in self._state.owing}
        return owed | {("published", *key) for key in self._state.publishing}

    def queue_name(self, created: int) -> str | None:
        queue = self._state.by_created.get(created)
        return queue.name if queue is not None else None

    def debts(self, created: int, name: str) -> pipelines.Owed:
        """The decisions of a subscription that some partitions still owe."""
        return pipelines.Owed(self._state.ledgers[created, name].debts())

    def decision(self, created: int, name: str) -> pipelines.Decision:
        """The publish that some partitions have not revealed."""
        pending = self._state.apps[created, name].record.pending
        assert pending is not None, "it is published already"
        return pipelines.Decision(pending.batch, pending.tokens, pending.messages)

    def unsure_holds(self) -> Iterable[Hold]:
        """Holds that no sealed reservation is known to own."""
        return self._state.holds.unsure.values()

    def confirm_hold(self, hold: Hold) -> None:
        """A sealed reservation owns the hold."""
        self._state.holds.unsure.pop(hold.key, None)

    def stages(self) -> Mapping[AppKey, Mapping[tuple[int, int], Hold]]:
        """Stages that are neither published nor dropped, by publisher."""
        return self._state.holds.stages
