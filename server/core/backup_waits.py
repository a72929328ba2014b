"""Snapshot requests that wait until the store holds the state to be read.

An acknowledged change is in the log of every member, and is applied to the state a little later. A
scan reads only the state. So a snapshot waits until the commit index at the time of the request is
applied and written, which takes one round.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.dht.core import Core
from weft.proto import wire
from weft.server.engine.engine import Engine

from .partition_ownership import PartitionOwnership


class BackupWaits:
    def __init__(
        self,
        core: Core,
        engine: Engine,
        ownership: PartitionOwnership,
        refusal: Callable[[int], wire.Failure],
    ) -> None:
        self._core = core
        self._engine = engine
        self._ownership = ownership
        #: The answer for a partition that another node leads.
        self._refusal = refusal
        self._waiting: list[tuple[wire.Snapshot, object, int]] = []

    @property
    def awaited(self) -> bool:
        return bool(self._waiting)

    def ask(self, request: wire.Snapshot, to: object) -> None:
        """Adds a snapshot request for a partition led by this node."""
        level = self._core.replicas[request.partition].committed
        self._waiting.append((request, to, level))

    def serve(self) -> None:
        """Called before the round's own changes: the store has only changes of earlier rounds."""
        waiting, self._waiting = self._waiting, []
        for request, to, level in waiting:
            if request.partition not in self._ownership.led:
                self._engine.answer(to, self._refusal(request.partition))
            elif self._core.replicas[request.partition].applied < level:
                self._waiting.append((request, to, level))
            else:
                self._engine.handle(request, (), to)
