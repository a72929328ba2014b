"""A client of a fake cluster, asyncio or blocking: the same coroutines run over both."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.contract.fake_nodes import FakeCluster, FakeNode
from weft.client.carrier import AsyncCarrier, BlockingCarrier
from weft.client.discovery import Discovery
from weft.client.link import run
from weft.client.message import AsyncMessage
from weft.client.queue import QueueCore
from weft.client.router import Router
from weft.client.session import Session
from weft.proto import wire

T = TypeVar("T")
#: Long enough for a loaded machine; nothing waits for all of it.
SOON_MS = 60_000


class Rig:
    """Runs a test's coroutine with one kind of client."""

    def __init__(self, kind: str, cluster: FakeCluster) -> None:
        self.kind = kind
        self.cluster = cluster
        self.threads: list[threading.Thread] = []

    def use(self, use: Callable[[Session], Awaitable[T]], discovery: Discovery | None = None) -> T:
        found = discovery or self.cluster.discovery()
        if self.kind == "blocking":
            router = Router(BlockingCarrier(), found)
            try:
                return run(use(session_of(router)))  # type: ignore[arg-type]
            finally:
                router.close()

        async def main() -> T:
            router = Router(AsyncCarrier(), found)
            try:
                return await use(session_of(router))
            finally:
                router.close()

        return asyncio.run(main())

    def beside(self, do: Callable[..., Any], *arguments: Any) -> None:
        """Does something while the client is busy."""
        thread = threading.Thread(target=do, args=arguments)
        thread.start()
        self.threads.append(thread)


def session_of(router: Router) -> Session:
    session = Session(router, SOON_MS)
    session.producer = 12345  # where batches go is the same in every run
    return session


def queue_of(session: Session, name: str = "q") -> QueueCore[AsyncMessage]:
    return QueueCore(session, name, AsyncMessage)


def when_it_has(node: FakeNode, kind: type[wire.Request], then: Callable[[], object]) -> None:
    """For a thread beside: waits until the node has got such a request."""
    while not isinstance(node.arrived.get(timeout=SOON_MS / 1000).request, kind):
        pass
    then()


def after(seconds: float, then: Callable[..., object], *arguments: Any) -> Callable[[], None]:
    """For a thread beside."""

    def do() -> None:
        time.sleep(seconds)
        then(*arguments)

    return do
