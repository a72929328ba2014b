"""A link to one of several nodes fails its calls when its connection fails.

Asyncio and blocking.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from tests.contract.peer import Peer, reply
from weft import errors
from weft.client.transport.async_link import AsyncLink
from weft.client.transport.blocking_link import BlockingLink, run
from weft.client.transport.link import LOST_S, OpenLink
from weft.client.transport.pending_calls import NotSent
from weft.proto import wire

T = TypeVar("T")
SOON_S = 60.0
LOOKUP = wire.Lookup("k")


class Fixed:
    """An address that never changes; `on_look` is the router's reaction to a view refresh."""

    token = ""
    key = None

    def __init__(self, address: str, on_look: Callable[[], None] = lambda: None) -> None:
        self.address = address
        self.looked = on_look

    def refresh(self, within_s: float) -> str | None:
        return None


def with_link(
    kind: str, place: Fixed, use: Callable[[OpenLink], Awaitable[T]], *, fail_fast: bool = True
) -> T:
    if kind == "blocking":
        link: OpenLink = BlockingLink(place)
        link.fail_fast = fail_fast
        try:
            return run(use(link))  # type: ignore[arg-type]
        finally:
            link.close()

    async def main() -> T:
        link = AsyncLink(place)
        link.fail_fast = fail_fast
        try:
            return await use(link)
        finally:
            link.close()

    return asyncio.run(main())


@pytest.fixture(params=["blocking", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address without a listener, which no other process gets."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def full() -> Iterator[str]:
    """An address at which a connection is neither accepted nor refused."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        waiting = [socket.socket() for _ in range(8)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        yield f"127.0.0.1:{address[1]}"
        for one in waiting:
            one.close()


async def ends(link: OpenLink, request: wire.AnyRequest = LOOKUP) -> tuple[Exception, float]:
    began = time.monotonic()
    try:
        await link.call(request, (), began + SOON_S)
    except errors.WeftError as error:
        return error, time.monotonic() - began
    raise AssertionError("it was answered")


def test_a_refused_connection_ends_a_call_at_once(kind: str, nobody: str) -> None:
    async def use(link: OpenLink) -> list[tuple[Exception, float]]:
        return [await ends(link) for _ in range(3)]

    best = SOON_S
    for _ in range(5):  # a busy machine may be late a few times, and not always
        told = with_link(kind, Fixed(nobody), use)
        assert all(isinstance(error, NotSent) for error, _ in told)
        best = min(best, max(seconds for _, seconds in told))
        if best < LOST_S / 2:
            return
    pytest.fail(f"at once is not {best:.2f} s")


def test_a_connection_that_does_not_come_ends_a_call_soon(kind: str, full: str) -> None:
    error, seconds = with_link(kind, Fixed(full), ends)
    assert isinstance(error, NotSent)
    assert seconds < SOON_S / 2


@pytest.mark.parametrize("request_", [LOOKUP, wire.Append("k", b"v"), wire.Push("q", 1, 2, 3)])
def test_a_lost_connection_ends_what_was_sent(kind: str, request_: wire.AnyRequest) -> None:
    def cut() -> None:
        peer.arrived.get(timeout=SOON_S)
        peer.drop()

    async def use(link: OpenLink) -> list[tuple[Exception, float]]:
        return [await ends(link, request_), await ends(link, request_)]

    with Peer(lambda call, payload: []).listen() as peer:
        cutter = threading.Thread(target=cut)
        cutter.start()
        (first, seconds), (second, _) = with_link(kind, Fixed(peer.address), use)
        cutter.join()
    assert type(first) is errors.ConnectionLost
    assert "may or may not" in str(first)
    assert seconds < SOON_S / 2
    assert isinstance(second, NotSent), "nothing is sent to a node that is known to be away"
    assert len(peer.calls) == 1


def test_a_node_that_is_back_is_used_again(kind: str) -> None:
    async def use(link: OpenLink) -> None:
        await link.call(LOOKUP, (), time.monotonic() + SOON_S)
        peer.drop()
        await ends(link)
        peer.listen()
        end = time.monotonic() + SOON_S
        while True:
            try:
                await link.call(LOOKUP, (), end)
            except errors.ConnectionLost:
                assert time.monotonic() < end
                await link.sleep(0.02)
            else:
                return

    with Peer(lambda call, _: [reply(call.rid, wire.Value(b"v"))]).listen() as peer:
        with_link(kind, Fixed(peer.address), use)


def test_calls_that_are_held_are_let_go_when_there_are_other_nodes(kind: str, nobody: str) -> None:
    """The only node is away; a view refresh finds that the cluster has grown."""
    links: list[OpenLink] = []

    def grown() -> None:
        links[0].fail_fast = True

    async def use(link: OpenLink) -> tuple[Exception, float]:
        links.append(link)
        return await ends(link)

    error, seconds = with_link(kind, Fixed(nobody, grown), use, fail_fast=False)
    assert isinstance(error, NotSent)
    assert LOST_S <= seconds < SOON_S / 2
