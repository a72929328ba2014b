"""Unfinished work of subscriptions and stages, as the reconciler sees it.

A call writes its decision first and then carries it out on all partitions. A crash in between
leaves a ledger or a publisher with debts, or holds without an owner. This class reads them from the
engine's state; only the primary of a partition has its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from weft.proto import pipelines

from . import ordered_multicast, outbox
from .hold import AppKey, Hold
from .proposal import Pending
from .state import EngineState

Kind = Literal["owed", "published"]


class UnfinishedWork:
    def __init__(self, state: EngineState) -> None:
        self._state = state
        #: Multicasts (coordinator, producer, batch) with an operation of this node, and the token
        #: of the operation's last attempt.
        self._driven: set[tuple[int, int, int]] = set()
        self._ended: dict[tuple[int, int, int], int] = {}

    @property
    def is_empty(self) -> bool:
        state = self._state
        return not (
            state.owing
            or state.publishing
            or state.holds.unsure
            or state.holds.stages
            or state.proposals
        )

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

    def undecided_multicasts(self) -> list[Pending]:
        """Proposals without a decision that no operation of this node will make."""
        return [
            each for each in self._state.proposals if not each.proposal.decided and not each.driven
        ]

    def start_driving(self, coordinator: int, producer: int, batch: int) -> bool:
        """An operation begins to make attempts; False if another one does so."""
        name = coordinator, producer, batch
        if name in self._driven:
            return False
        self._driven.add(name)
        return True

    def is_attempted(self, coordinator: int, producer: int, batch: int) -> bool:
        """True while the coordinator has an attempt of the multicast, or is still giving one up.

        Another attempt would find proposals of the first one, and be refused.
        """
        state = self._state
        if state.proposals.of_name(coordinator, producer, batch) is not None:
            return True
        ended = self._ended.get((coordinator, producer, batch))
        return ended is not None and outbox.has_token(state, coordinator, ended)

    def knows_multicast(
        self, coordinator: int, queues: Sequence[int], producer: int, batch: int
    ) -> bool:
        """True if the coordinator has decided the multicast before."""
        return ordered_multicast.is_known(self._state, coordinator, queues, producer, batch)

    def start_attempt(self, coordinator: int, token: int) -> None:
        """An operation is about to ask for the proposals of an attempt."""
        self._state.proposals.attempts.add((coordinator, token))

    def stop_attempt(self, coordinator: int, producer: int, batch: int, token: int) -> None:
        """The attempt is given up; the next one waits until all partitions know."""
        self._state.proposals.attempts.discard((coordinator, token))
        self._ended[coordinator, producer, batch] = token

    def stop_driving(self, coordinator: int, producer: int, batch: int, token: int) -> None:
        """The operation that could decide the multicast has ended."""
        self._state.proposals.attempts.discard((coordinator, token))
        self._driven.discard((coordinator, producer, batch))
        self._ended.pop((coordinator, producer, batch), None)
        pending = self._state.proposals.find(coordinator, token)
        if pending is not None:
            pending.driven = False

    def confirm_hold(self, hold: Hold) -> None:
        """A sealed reservation owns the hold."""
        self._state.holds.unsure.pop(hold.key, None)

    def stages(self) -> Mapping[AppKey, Mapping[tuple[int, int], Hold]]:
        """Stages that are neither published nor dropped, by publisher."""
        return self._state.holds.stages
