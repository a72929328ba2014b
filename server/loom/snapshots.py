"""Snapshots that are asked for, until the store has what they must show.

An acknowledged change is in the log of every member, and goes into the state a little later. A scan
sees the state alone, so a snapshot waits until what was committed when it was asked for is applied,
and written: that takes a round.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from weft.dht.core import Core
from weft.proto import wire
from weft.server.engine.engine import Engine


class Home(Protocol):
    """The node around them."""

    @property
    def core(self) -> Core: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def led(self) -> Set[int]: ...
    def not_here(self, number: int) -> wire.Failure: ...


class Snapshots:
    def __init__(self, home: Home) -> None:
        self._home = home
        self._waiting: list[tuple[wire.Snapshot, object, int]] = []

    @property
    def awaited(self) -> bool:
        return bool(self._waiting)

    def ask(self, request: wire.Snapshot, to: object) -> None:
        """Of a partition that this node leads."""
        level = self._home.core.replicas[request.partition].committed
        self._waiting.append((request, to, level))

    def serve(self) -> None:
        """Before the round's own changes: what was applied in rounds before can be read."""
        waiting, self._waiting = self._waiting, []
        home = self._home
        for request, to, level in waiting:
            if request.partition not in home.led:
                home.engine.state.answer(to, home.not_here(request.partition))
            elif home.core.replicas[request.partition].applied < level:
                self._waiting.append((request, to, level))
            else:
                home.engine.handle(request, (), to)
