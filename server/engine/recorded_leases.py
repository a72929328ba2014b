"""The leases in the log, as the node core sees them before a planned move of a partition."""

from __future__ import annotations

from . import ordered_leases
from .state import EngineState


class RecordedLeases:
    def __init__(self, state: EngineState) -> None:
        self._state = state

    def begin(self, partitions: set[int]) -> None:
        """Starts to record the leases of partitions in the log, before a planned move."""
        self._state.lease_records.begin(self._state, partitions)
        ordered_leases.write_again(self._state, partitions)

    def end(self, partitions: set[int]) -> None:
        """Stops recording leases: the planned move is cancelled, this node stays primary."""
        self._state.lease_records.end(partitions)
        ordered_leases.write_again(self._state, partitions)

    def complete(self, partition: int) -> bool:
        """True if all leases of the partition are in the log, or in this round's changes."""
        return self._state.lease_records.is_complete(partition)
