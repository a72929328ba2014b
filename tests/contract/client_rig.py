"""A client of a fake cluster, asyncio or blocking: the same coroutines run over both."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.contract.fake_nodes import FakeCluster, FakeNode
from weft.client.consumer.message import AsyncMessage
from weft.client.queue_core import QueueCore
from weft.client.routing.discovery import Discovery
from weft.client.routing.router import Router
from weft.client.routing.session import ClientSession
from weft.client.transport.blocking_link import run
from weft.client.transport.runtime import AsyncRuntime, BlockingRuntime
from weft.proto import wire

T = TypeVar("T")
#: Long enough for a loaded machine; no test waits for all of it.
SOON_MS = 60_000


class Rig:
    """Runs a test's coroutine with one kind of client."""

    def __init__(self, kind: str, cluster: FakeCluster) -> None:
        self.kind = kind
        self.cluster = cluster
        self.threads: list[threading.Thread] = []

    def use(
        self, use: Callable[[ClientSession], Awaitable[T]], discovery: Discovery | None = None
    ) -> T:
        found = discovery or self.cluster.discovery()
        if self.kind == "blocking":
            router = Router(BlockingRuntime(), found)
            try:
                return run(use(session_of(router)))  # type: ignore[arg-type]
            finally:
                router.close()

        async def main() -> T:
            router = Router(AsyncRuntime(), found)
            try:
                return await use(session_of(router))
            finally:
                router.close()

        return asyncio.run(main())

    def beside(self, do: Callable[..., Any], *arguments: Any) -> None:
        """Run a function in a thread while the client is busy."""
        thread = threading.Thread(target=do, args=arguments)
        thread.start()
        self.threads.append(thread)


def session_of(router: Router) -> ClientSession:
    session = ClientSession(router, SOON_MS)
    session.producer = 12345  # so that batches go to the same partitions in every run
    return session


def queue_of(session: ClientSession, name: str = "q") -> QueueCore[AsyncMessage]:
    return QueueCore(session, name, AsyncMessage)


def when_it_has(node: FakeNode, kind: type[wire.Request], then: Callable[[], object]) -> None:
    """For `Rig.beside`: wait until the node has received such a request, then call `then`."""
    while not isinstance(node.arrived.get(timeout=SOON_MS / 1000).request, kind):
        pass
    then()


def after(seconds: float, then: Callable[..., object], *arguments: Any) -> Callable[[], None]:
    """For `Rig.beside`: call `then` after some seconds."""

    def do() -> None:
        time.sleep(seconds)
        then(*arguments)

    return do
