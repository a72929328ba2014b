"""The durable clock of each partition, for multicasts to several partitions.

Skeen's algorithm (paper 3, algorithm 1) needs a clock at each destination that never falls: a
timestamp below a number that was assigned before would let a later message overtake an earlier one
in one queue, and not in another. Here the destination is a partition. Its clock is a hybrid one: at
least the wall clock of its primary, at least one more than every stamp of the node, and at least
every number assigned on the partition (line 24 of the algorithm). So the stamps of a node may run
ahead of its wall clock, from which delays count.

The stamps in living heads do not suffice: after the last ack no head is left, and the next primary
may have a slow wall clock. So the partition's record has an upper bound of the clock, reserved
ahead as lsns are; the next primary continues after the bound.

Invariants:
- No two timestamps are equal: a timestamp is congruent to its partition modulo the number of
  partitions. So sequence numbers, which are timestamps, have no ties.
- A timestamp is above every timestamp and every sequence number of its partition, also across
  failovers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .state import EngineState

#: The clock is reserved this far ahead, in microseconds. A failover moves the stamps of the next
#: primary ahead of its wall clock by this much at most.
CLOCK_AHEAD_US: Final = 100_000


class PartitionClocks:
    """The clocks of the led partitions."""

    def __init__(self, partitions: int) -> None:
        self.values = [0] * partitions
        #: The bound in each partition's record.
        self.reserved = [0] * partitions

    def load(self, partition: int, reserved: int) -> None:
        self.values[partition] = self.reserved[partition] = reserved

    def reserve(self, partition: int) -> int:
        """The bound to write into the partition's record."""
        if self.values[partition] > self.reserved[partition]:
            self.reserved[partition] = self.values[partition] + CLOCK_AHEAD_US
        return self.reserved[partition]


def tick(state: EngineState, partition: int) -> int:
    """A new timestamp of the partition."""
    stamp = state.stamp()
    stamp += (partition - stamp) % state.partitions
    _set(state, partition, stamp)
    return stamp


def advance(state: EngineState, partition: int, number: int) -> None:
    """Line 24: no later timestamp of the partition is below an assigned sequence number."""
    if number > state.clocks.values[partition]:
        _set(state, partition, number)


def _set(state: EngineState, partition: int, value: int) -> None:
    state.clocks.values[partition] = value
    if value > state.last_stamp:
        state.last_stamp = value
    if value > state.clocks.reserved[partition]:
        state.grown.add(partition)  # the round writes the record
