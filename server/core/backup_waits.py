"""Snapshot requests that wait until the store holds the state to be read.

An acknowledged change is in the log of every member, and is applied to the state a little later. A
scan reads only the state. So a snapshot waits until the commit index at the time of the request is
applied and written, which takes one round.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from weft.dht.core import Core
from weft.proto import wire
from weft.server.engine.engine import Engine


class BackupHost(Protocol):
    """The part of the node core used by the waiting snapshots."""

    @property
    def core(self) -> Core: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def led(self) -> Set[int]: ...
    def not_here(self, number: int) -> wire.Failure: ...


class BackupWaits:
    def __init__(self, home: BackupHost) -> None:
        self._home = home
        self._waiting: list[tuple[wire.Snapshot, object, int]] = []

    @property
    def awaited(self) -> bool:
        return bool(self._waiting)

    def ask(self, request: wire.Snapshot, to: object) -> None:
        """Adds a snapshot request for a partition led by this node."""
        level = self._home.core.replicas[request.partition].committed
        self._waiting.append((request, to, level))

    def serve(self) -> None:
        """Called before the round's own changes: the store has only changes of earlier rounds."""
        waiting, self._waiting = self._waiting, []
        home = self._home
        for request, to, level in waiting:
            if request.partition not in home.led:
                home.engine.answer(to, home.not_here(request.partition))
            elif home.core.replicas[request.partition].applied < level:
                self._waiting.append((request, to, level))
            else:
                home.engine.handle(request, (), to)
