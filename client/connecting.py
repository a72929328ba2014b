"""The connections of one link, and how they end."""

from __future__ import annotations

import weakref

from .connection import Connection
from .direct import Direct
from .link import Place


class Connecting:
    """Safe to share between threads; each connection belongs to one."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._made: weakref.WeakSet[Direct] = weakref.WeakSet()

    def connect(self) -> Connection:
        made = Direct(self._place.address, self._place.key)
        self._made.add(made)
        return made

    def end(self) -> None:
        """Wakes whoever waits on a connection."""
        for made in list(self._made):
            made.end()
