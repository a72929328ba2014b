"""The connections of one link, and how they end."""

from __future__ import annotations

import weakref
from typing import Any, Final

from .connection import Connection, Ended
from .dealer import Context, ContextEnded, Dealer
from .direct import Direct
from .link import Place

#: What a connection raises in the thread that waits on it, once `end` was called.
ENDS: Final = (Ended, ContextEnded)


class Connecting:
    """Safe to share between threads; each connection belongs to one."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._context: Context[Any] | None = Context() if place.key else None
        self._made: weakref.WeakSet[Direct] = weakref.WeakSet()

    def connect(self) -> Connection:
        address = self._place.address
        if self._context is not None:
            return Dealer(self._context, address, self._place.key)
        made = Direct(address)
        self._made.add(made)
        return made

    def end(self) -> None:
        """Wakes whoever waits on a connection; ZeroMQ also waits until all of them are closed."""
        for made in list(self._made):
            made.end()
        if self._context is not None:
            self._context.term()
