"""The gate through which every call enters, so that a node can stop without dropping one.

A closed gate refuses new calls and wakes those that only wait for something to happen (a pop on an
empty queue, a full stream); calls that do something are left to finish. When none is left, the
gate is idle. It belongs to one event loop and is used from nowhere else.
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
        self._waits: set[asyncio.Future[Any]] = set()
        self._idle = asyncio.Event()

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Counts one call; raises ShuttingDown when the gate is closed."""
        if self._closed:
            raise _shutting_down()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._check_idle()

    @contextmanager
    def waiting(self, future: asyncio.Future[Any]) -> Iterator[None]:
        """Lets the gate end a wait: ``future`` then raises ShuttingDown."""
        if self._closed:
            raise _shutting_down()
        self._waits.add(future)
        try:
            yield
        finally:
            self._waits.discard(future)

    def close(self) -> None:
        self._closed = True
        for future in self._waits:
            if not future.done():
                future.set_exception(_shutting_down())
        self._check_idle()

    async def idle(self) -> None:
        """Returns when the gate is closed and the last call has left."""
        await self._idle.wait()

    def _check_idle(self) -> None:
        if self._closed and self._under_way == 0:
            self._idle.set()


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("this node is stopping; try again when it is back")
