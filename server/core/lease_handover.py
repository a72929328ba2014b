"""Planned moves of a lead: the leases of a partition go to the next primary.

Before this node proposes another primary for a partition that it leads (because of the plan, or
because the node stops), the node calls `ready`, and repeats the call until the result is true. The
first call starts the preparation: the engine records the partition's leases in the partition's log
(``engine/lease_records``). The partition is ready when all lease records are committed. The
partition serves clients all the while.

| state of a partition | until |
|----------------------|-------|
| asked for            | the end of the round, when the engine starts to record leases |
| recorded             | all leases are in the log, up to the lsn in `_complete_at`, and committed |
| ready                | the move, or the lapse |

If no call of `ready` follows within ``LAPSE_US``, the move was given up: the leases become volatile
again, and continue here. While a view change proposed by this node is undecided, the move may still
happen, so nothing lapses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.dht.core import Core
from weft.proto import wire
from weft.server.engine.engine import Engine
from weft.server.engine.state import Answered

from .operation import Operation
from .partition_ownership import PartitionOwnership

LAPSE_US: Final = 5_000_000
#: A stopping node waits this long for its lease records; then the node moves its partitions anyway,
#: and messages of unrecorded leases are delivered again. Together with the rest of a stop, the wait
#: fits into the 30 s granted by ``docker/compose.yaml``.
STOP_US_MAX: Final = 10_000_000


class LeaseHandover:
    def __init__(
        self,
        core: Core,
        engine: Engine,
        ownership: PartitionOwnership,
        return_lent: Callable[[wire.Nack], None],
    ) -> None:
        self._core = core
        self._engine = engine
        self._ownership = ownership
        #: Returns messages that no client has seen to the primaries of their partitions.
        self._return_lent = return_lent
        self._asked: dict[int, int] = {}  # partition -> the time of the last call of `ready`
        self._complete_at: dict[int, int] = {}  # partition -> the lsn with all its leases
        self._stop_at: int | None = None
        #: A partition was asked for the first time: the next round must run now.
        self.due = False
        #: Operations under way that return undelivered messages: a stopping node waits for them.
        self.returns = 0

    def returning(self, operation: Operation) -> Operation:
        self.returns += 1
        try:
            return (yield from operation)
        finally:
            self.returns -= 1

    def ready(self, number: int) -> bool:
        """True if another node may become primary of a partition that this node leads."""
        core = self._core
        if number == core.catalogue or not core.serving(number):
            return True  # no leases to hand over
        self.due = self.due or number not in self._asked
        self._asked[number] = self._core.now
        return self._is_recorded(number) or self._is_late

    @property
    def recording(self) -> bool:
        """True while a stopping node still waits for leases to be committed."""
        if self._stop_at is None or self._is_late:
            return False
        serving = self._core.serving
        return any(serving(number) and not self._is_recorded(number) for number in self._asked)

    @property
    def _is_late(self) -> bool:
        return self._stop_at is not None and self._core.now >= self._stop_at

    def _is_recorded(self, number: int) -> bool:
        complete_at = self._complete_at.get(number)
        return complete_at is not None and self._core.committed(number) >= complete_at

    def stop(self) -> None:
        """Prepares all partitions of a stopping node at once, bounded by STOP_US_MAX."""
        if self._stop_at is None:
            self._stop_at = self._core.now + STOP_US_MAX
        for number, place in enumerate(self._core.view.places):
            if place.primary == self._core.node and len(self._core.view.members) > 1:
                self.ready(number)

    def begin(self) -> None:
        """Called before the engine's round ends: starts to record requested partitions."""
        self.due = False
        if not self._asked:
            return
        if self._core.proposer.idle:
            lapsed = {n for n, at in self._asked.items() if at < self._core.now - LAPSE_US}
            self._drop(lapsed)
            self._engine.recorded_leases.end(lapsed)
        new = {n for n in self._asked if n not in self._complete_at and n in self._ownership.led}
        if new:
            self._engine.recorded_leases.begin(new)

    def proposed(self) -> None:
        """Called after the round's changes were proposed."""
        for number in self._asked.keys() - self._complete_at.keys():
            if self._core.serving(number) and self._engine.recorded_leases.complete(number):
                self._complete_at[number] = self._core.replicas[number].log.end

    def moved(self, gone: set[int], unsent: list[Answered]) -> None:
        """Another node leads these partitions now; the engine still has their leases. Returns the
        messages of unsent answers to the next primaries."""
        for nack in self._engine.undelivered(gone, unsent):
            self._return_lent(nack)
        self._drop(gone)

    def _drop(self, numbers: set[int]) -> None:
        for number in numbers:
            self._asked.pop(number, None)
            self._complete_at.pop(number, None)
