"""The gate through which every call enters, so that a node can stop without dropping one.

A closed gate refuses new calls and wakes those that only wait for something to happen (a pop on an
empty queue, a full stream); calls that do something are left to finish. When none is left, the
gate is idle. When that takes too long, the rest is cut: each is told that it will not be answered.
A gate belongs to one event loop and is used from nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.errors import ShuttingDown


class Gate:
    def __init__(self) -> None:
        self._closed = False
        self._under_way = 0
        #: What calls wait for, and whether it may never come, so that waiting on is pointless.
        self._awaited: dict[asyncio.Future[Any], bool] = {}
        self._idle = asyncio.Event()

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Counts one call; raises ShuttingDown when the gate is closed."""
        self._check()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._check_idle()

    @contextmanager
    def awaiting(self, future: asyncio.Future[Any], *, idly: bool) -> Iterator[None]:
        """Lets the gate end a wait: ``future`` then raises ShuttingDown.

        An idle wait, for something that may never happen, ends when the gate closes.
        """
        if idly:
            self._check()
        self._awaited[future] = idly
        try:
            yield
        finally:
            del self._awaited[future]

    def close(self) -> None:
        self._closed = True
        for future, idly in self._awaited.items():
            if idly and not future.done():
                future.set_exception(ShuttingDown(_CLOSED))
        self._check_idle()

    def cut(self) -> None:
        """The time is over for those that are left."""
        assert self._closed, "close first"
        for future in self._awaited:
            if not future.done():
                future.set_exception(ShuttingDown(_CUT))

    async def idle(self) -> None:
        """Returns when the gate is closed and the last call has left."""
        await self._idle.wait()

    def _check(self) -> None:
        if self._closed:
            raise ShuttingDown(_CLOSED)

    def _check_idle(self) -> None:
        if self._closed and self._under_way == 0:
            self._idle.set()


_CLOSED = "this node is stopping; try again when it is back"
_CUT = "this node stopped before it could answer; what was asked may or may not have been done"
