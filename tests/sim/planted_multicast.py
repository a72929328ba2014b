"""Bugs in multicasts to several ordered queues; see ``planted``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from weft.proto import wire
from weft.server.core.commit_gate import CommitGate
from weft.server.core.operation import Inner
from weft.server.engine import ordered_multicast, partition_clock, proposal
from weft.server.engine.head import Head
from weft.server.engine.partition_clock import PartitionClocks
from weft.server.engine.proposal import Pending
from weft.server.engine.state import Answered, EngineState

_add = CommitGate.add
_load = proposal.load
#: The clock of `equal_timestamps` in microseconds: two multicasts often get the same timestamp.
_COARSE_US: Final = 20_000


def _stands_still(state: EngineState, partition: int, number: int) -> None:
    """Line 24 is missing: a sequence number does not advance the clock."""


def _reserves_nothing(clocks: PartitionClocks, partition: int) -> int:
    """The next primary does not learn the clock of the partition."""
    clocks.reserved[partition] = clocks.values[partition]
    return 0


def _frees_all(waiting: list[Pending]) -> list[Pending]:
    """A decided multicast does not wait for smaller proposals that conflict."""
    return [each for each in waiting if each.proposal.decided]


def _tells_early(gate: CommitGate, answered: Answered) -> None:
    """The publisher is answered before the deciding entry is committed."""
    if isinstance(answered.to, Inner) and isinstance(answered.answer, wire.Done):
        gate.ready.append(answered)
    else:
        _add(gate, answered)


def _forgets(state: EngineState, coordinator: int, destination: int, token: int) -> bool:
    """The coordinator calls an attempt given up, and may decide it all the same."""
    return False


def _coarse(state: EngineState, partition: int) -> int:
    """Timestamps of two partitions may be equal."""
    last = max(state.stamp(), state.clocks.values[partition] + 1)
    stamp = -(-last // _COARSE_US) * _COARSE_US
    partition_clock._set(state, partition, stamp)
    return stamp


def _loads_decided(state: EngineState, partition: int, lsn: int, found: Head) -> None:
    """The next primary of a destination does not know its proposals."""
    if found.proposal is not None and found.proposal.decided:
        _load(state, partition, lsn, found)


PLANTS: dict[str, tuple[object, str, Callable[..., Any] | property]] = {
    "number_does_not_advance_clock": (proposal, "advance", _stands_still),
    "clock_in_memory": (PartitionClocks, "reserve", _reserves_nothing),
    "listed_despite_pending": (proposal, "_free", _frees_all),
    "decision_told_before_commit": (CommitGate, "add", _tells_early),
    "abort_unfenced": (ordered_multicast, "_may_be_carried_out", _forgets),
    "equal_timestamps": (ordered_multicast, "tick", _coarse),
    "proposals_not_loaded": (proposal, "load", _loads_decided),
}
