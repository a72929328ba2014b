"""How a client waits: the few things that differ between asyncio and blocking callers.

A router and all above it are written once, as coroutines. What they cannot do without knowing
whether there is an event loop is here, once for each kind.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, TypeVar

from weft.errors import UsageError

from .discovery import Discovery
from .link import OpenLink, Place, run
from .link_async import AsyncLink
from .link_blocking import BlockingLink
from .view import View

T = TypeVar("T")


class Carrier(Protocol):
    def open(self, place: Place) -> OpenLink:
        """A link to the node at this place."""
        ...

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Lets one caller in at a time."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def together(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Their results, in order."""
        ...

    async def find(self, discovery: Discovery, within_s: float) -> View | None:
        """Asks over gRPC, which blocks."""
        ...


class AsyncCarrier:
    """On the event loop on which it was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def open(self, place: Place) -> OpenLink:
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError("this client belongs to another event loop: connect on this one, too")
        return AsyncLink(place)

    def lock(self) -> AbstractAsyncContextManager[None]:
        return asyncio.Lock()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def together(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        if len(coroutines) == 1:
            return [await coroutines[0]]
        return list(await asyncio.gather(*coroutines))

    async def find(self, discovery: Discovery, within_s: float) -> View | None:
        return await asyncio.to_thread(discovery.refresh, within_s)


class BlockingCarrier:
    """In the calling thread; nothing here ever suspends."""

    def open(self, place: Place) -> OpenLink:
        return BlockingLink(place)

    def lock(self) -> AbstractAsyncContextManager[None]:
        return _ThreadLock()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop runs this

    async def together(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        return [run(coroutine) for coroutine in coroutines]

    async def find(self, discovery: Discovery, within_s: float) -> View | None:
        return discovery.refresh(within_s)


class _ThreadLock:
    def __init__(self) -> None:
        # Re-entrant: a signal handler may call while its own thread is looking.
        self._lock = threading.RLock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()
