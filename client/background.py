"""The event loop behind a synchronous client: runs the client's producers and consumers.

The first producer or consumer starts the loop, so a client that only pushes and pops has no thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from weft.errors import UsageError

from .routing.discovery import Discovery
from .routing.router import Router
from .routing.session import ClientSession
from .transport.runtime import AsyncRuntime

T = TypeVar("T")


class Background:
    """A thread with its own event loop and connections."""

    def __init__(self, discovery: Discovery, timeout_ms: int) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        #: Callbacks to run on the loop, and whether the loop was woken already.
        self._posted: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._called = False
        # A daemon thread: a program that forgets to close its client can still exit.
        self._thread = threading.Thread(target=self._run, name="weft-client", daemon=True)
        self._thread.start()
        self._router = self.wait(self._open(discovery))
        self.session = ClientSession(self._router, timeout_ms)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _open(self, discovery: Discovery) -> Router:
        return Router(AsyncRuntime(), discovery)

    def post(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Runs the callback on the loop, soon.

        A thousand producers that are filled in turn wake the loop once, not a thousand times.
        """
        self.check()
        self._posted.append((callback, arguments))
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._take_posted)

    def _take_posted(self) -> None:
        self._called = False  # before the loop below: a later post calls again
        while self._posted:
            callback, arguments = self._posted.popleft()
            self._loop.call_soon(callback, *arguments)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine on the loop and waits for the end."""
        try:
            self.check()
        except UsageError:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    @property
    def running(self) -> bool:
        return os.getpid() == self._pid and not self._loop.is_closed()

    def check(self) -> None:
        if os.getpid() != self._pid:
            raise UsageError(
                "this client was made before a fork, and its thread stays with the parent: "
                "call weft.connect in the child"
            )
        if self._loop.is_closed():
            raise UsageError("the client is closed")

    def close(self) -> None:
        if not self.running:
            return
        self.wait(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _shut(self) -> None:
        self._router.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
