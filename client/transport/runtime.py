"""How a client waits: the operations that differ between asyncio and blocking callers.

The router and all code above are written once, as coroutines. The operations that depend on the
presence of an event loop are here, once for each kind of caller.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, TypeVar

from weft.client.routing.cluster_view import ClusterView
from weft.client.routing.discovery import Discovery
from weft.errors import UsageError

from .async_link import AsyncLink
from .blocking_link import BlockingLink, run
from .link import NodeAddress, OpenLink

T = TypeVar("T")


class Runtime(Protocol):
    def open(self, place: NodeAddress) -> OpenLink:
        """Opens a link to the node at this address."""
        ...

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Returns a lock that admits one caller at a time."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def together(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Runs the coroutines and returns the results, in order."""
        ...

    async def find(self, discovery: Discovery, within_s: float) -> ClusterView | None:
        """Asks the seeds for the view over gRPC, which blocks."""
        ...


class AsyncRuntime:
    """Waits on the event loop that created the instance."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def open(self, place: NodeAddress) -> OpenLink:
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

    async def find(self, discovery: Discovery, within_s: float) -> ClusterView | None:
        return await asyncio.to_thread(discovery.refresh, within_s)


class BlockingRuntime:
    """Waits in the calling thread and never suspends."""

    def open(self, place: NodeAddress) -> OpenLink:
        return BlockingLink(place)

    def lock(self) -> AbstractAsyncContextManager[None]:
        return _ThreadLock()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop runs this

    async def together(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        return [run(coroutine) for coroutine in coroutines]

    async def find(self, discovery: Discovery, within_s: float) -> ClusterView | None:
        return discovery.refresh(within_s)


class _ThreadLock:
    def __init__(self) -> None:
        # Re-entrant: a signal handler may enter while the interrupted thread holds the lock.
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
