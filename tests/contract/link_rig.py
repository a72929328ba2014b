"""A blocking or asyncio link to a peer under the test's control: one coroutine runs over both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tests.contract.peer import Handler, Peer, reply
from weft.client.routing.cluster_view import ClusterNode, ClusterView
from weft.client.routing.discovery import Discovery
from weft.client.routing.router import Router
from weft.client.transport.async_link import AsyncLink
from weft.client.transport.blocking_link import BlockingLink, run
from weft.client.transport.link import Answered, Link
from weft.client.transport.runtime import AsyncRuntime, BlockingRuntime
from weft.proto import wire

T = TypeVar("T")
Use = Callable[[Link], Awaitable[T]]

LOOKUP = wire.Lookup("k")
VALUE = wire.Value(b"v")
#: Long enough for a loaded machine; no test waits for all of it.
SOON_S = 60.0


class Known:
    """The address of a node that moves when a test says so."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.token = ""
        self.key = None
        self.moved: str | None = None

    def refresh(self, within_s: float) -> str | None:
        return self.moved

    def looked(self) -> None:
        pass


class LinkRig:
    """Run a test's coroutine over one kind of link."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.peers: list[Peer] = []

    def peer(self, on_call: Handler) -> Peer:
        peer = Peer(on_call)
        self.peers.append(peer)
        return peer.listen()

    def use(self, where: Peer | Known, use: Use[T], attempt_s: float = SOON_S) -> T:
        known = Known(where.address) if isinstance(where, Peer) else where
        if self.kind == "blocking":
            link = BlockingLink(known, attempt_s=attempt_s)
            try:
                return run(use(link))  # type: ignore[arg-type]
            finally:
                link.close()

        async def main() -> T:
            link = AsyncLink(known, attempt_s=attempt_s)
            try:
                return await use(link)
            finally:
                link.close()

        return asyncio.run(main())

    def route(self, peer: Peer, use: Callable[[Router], Awaitable[T]]) -> T:
        """As `use`, with a router to the only node of a cluster."""
        discovery = Discovery([peer.address])
        discovery.view = ClusterView(
            "cluster", 256, (ClusterNode("n", peer.address, peer.address),)
        )
        if self.kind == "blocking":
            router = Router(BlockingRuntime(), discovery)
            try:
                return run(use(router))  # type: ignore[arg-type]
            finally:
                router.close()

        async def main() -> T:
            router = Router(AsyncRuntime(), discovery)
            try:
                return await use(router)
            finally:
                router.close()

        return asyncio.run(main())


def soon(seconds: float = SOON_S) -> float:
    return time.monotonic() + seconds


def answer_all(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
    return [reply(call.rid, VALUE)]


def silent(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
    return []


def ask(request: wire.AnyRequest, seconds: float = SOON_S) -> Use[Answered]:
    async def use(link: Link) -> Answered:
        return await link.call(request, (), soon(seconds))

    return use
