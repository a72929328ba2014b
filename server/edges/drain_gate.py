"""Admission of calls, so that a node can drain and stop without dropping a call.

A closed gate refuses new calls and wakes calls that only wait for an event (a pop on an empty
queue, a full stream); calls that do work run to their end. The gate is idle when no call is left.
If draining takes too long, `cut` fails the remaining calls with ShuttingDown. A gate belongs to one
event loop and must not be used from any other thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.errors import ShuttingDown


class DrainGate:
    def __init__(self) -> None:
        self._closed = False
        self._under_way = 0
        #: Futures awaited by calls; True for an idle wait, for an event that may never happen.
        self._awaited: dict[asyncio.Future[Any], bool] = {}
        self._idle = asyncio.Event()

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Counts one call; raises ShuttingDown if the gate is closed."""
        self._check()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._check_idle()

    @contextmanager
    def awaiting(self, future: asyncio.Future[Any], *, idly: bool) -> Iterator[None]:
        """Registers a wait that the gate may end: ``future`` then raises ShuttingDown.

        An idle wait, for an event that may never happen, ends when the gate closes.
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
        """Fails the calls that are still in progress: the grace period is over."""
        assert self._closed, "close first"
        for future in self._awaited:
            if not future.done():
                future.set_exception(ShuttingDown(_CUT))

    async def idle(self) -> None:
        """Returns when the gate is closed and the last call has ended."""
        await self._idle.wait()

    def _check(self) -> None:
        if self._closed:
            raise ShuttingDown(_CLOSED)

    def _check_idle(self) -> None:
        if self._closed and self._under_way == 0:
            self._idle.set()


_CLOSED = "this node is stopping; try again when it is back"
_CUT = "this node stopped before it could answer; what was asked may or may not have been done"
