"""A consumer that holds messages of a partition without a primary goes on with the others.

Before, one such partition (two of five nodes lost at once) stopped the hand-out of all messages,
ended the leases of the others, and kept their acks waiting until these leases had ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from weft.client.consumer import ack_batcher, hand_out
from weft.client.consumer.ack_batcher import AckBatcher, Losses
from weft.client.consumer.hand_out import HandOut
from weft.client.consumer.lease import Claim, Settler
from weft.client.consumer.lease_renewal import LeaseRenewal
from weft.client.consumer.message import AsyncMessage, unpack
from weft.client.consumer.prefetch_buffer import PrefetchBuffer
from weft.client.lease_ticket import TicketDesk, tickets
from weft.client.queue_core import QueueCore
from weft.client.routing.session import ClientSession
from weft.errors import Unavailable, WeftError
from weft.proto import wire

OPEN, BLOCKED = 0, 1
LEASE_MS = 300
Chunks = asyncio.Queue[list[AsyncMessage] | WeftError | None]


class FakeQueue:
    """Even and odd partitions have a node each; that of the odd ones does not answer for now."""

    name = "q"
    alone = False

    def __init__(self) -> None:
        self.recovered = asyncio.Event()
        self.answers: Counter[int] = Counter()
        self.answered = asyncio.Event()

    def by_node(self, claims: Sequence[Claim]) -> list[list[Claim]]:
        parts = [[c for c in claims if c.lease.lent.partition % 2 == n] for n in (OPEN, BLOCKED)]
        return [part for part in parts if part]

    async def hand_out(self, claims: list[Claim], lease_ms: int) -> list[Claim]:
        return await self.send_claims(claims, None, None)

    async def send_claims(self, claims: list[Claim], make: object, limit: object) -> list[Claim]:
        numbers = {claim.lease.lent.partition for claim in claims}
        blocked = {number for number in numbers if number % 2 == BLOCKED}
        self._answer(numbers - blocked)
        if blocked:
            await self.recovered.wait()
            self._answer(blocked)
        return []

    def _answer(self, numbers: set[int]) -> None:
        self.answers.update(numbers)
        self.answered.set()

    async def until(self, enough: Callable[[Counter[int]], bool]) -> None:
        async with asyncio.timeout(60):
            while not enough(self.answers):
                self.answered.clear()
                await self.answered.wait()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ack_batcher, hand_out):
        monkeypatch.setattr(module, "PATIENCE_S", 0.01)


def lend(partition: int, count: int, *, name: str = "q", ms: int = LEASE_MS) -> list[AsyncMessage]:
    frame = wire.encode(wire.Payload([b"%d-%d" % (partition, n) for n in range(count)]))
    one = wire.Lent(partition, 1, 9 + partition, 0, count, 5, 6, 1, 1_500, ms, 4, "")
    (found,) = unpack(AsyncMessage, name, [one], [frame], cast(Settler, None))
    found[0]._lease.handed_to = 0
    return found


def core(queue: FakeQueue) -> QueueCore[AsyncMessage]:
    return cast("QueueCore[AsyncMessage]", queue)


@contextmanager
def running(work: Any) -> Iterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()


async def _quiet() -> None: ...


def consumer(queue: FakeQueue) -> tuple[HandOut[AsyncMessage], Chunks]:
    chunks: Chunks = asyncio.Queue()
    buffer: PrefetchBuffer[AsyncMessage] = PrefetchBuffer(chunks)
    return HandOut(core(queue), buffer, _quiet, lambda lease: None, lambda: None), chunks


async def bodies(handing: HandOut[AsyncMessage], chunks: Chunks, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            handing.want()
            chunk = await chunks.get()
            assert isinstance(chunk, list)
            found += [message.body for message in chunk]
    return found


async def test_messages_of_other_partitions_are_handed_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = FakeQueue()
    handing, chunks = consumer(queue)
    with running(handing.run()):
        handing.add([lend(BLOCKED, 3), *(lend(n, 1) for n in range(3, 99, 2)), lend(OPEN, 4)])
        assert await bodies(handing, chunks, 4) == [b"0-0", b"0-1", b"0-2", b"0-3"]
        assert handing.held == 0, "stalled messages leave room for others"
        assert caplog.text.count("goes on without 49 partitions") == 1, "one wait for a node"
        queue.recovered.set()
        late = await bodies(handing, chunks, 3 + 48)
        assert [body for body in late if body.startswith(b"1-")] == [b"1-0", b"1-1", b"1-2"]
        assert handing.held == 0


async def test_stalled_messages_are_taken_back() -> None:
    queue = FakeQueue()
    handing, chunks = consumer(queue)
    with running(handing.run()):
        handing.add([lend(BLOCKED, 3), lend(OPEN, 1)])
        await bodies(handing, chunks, 1)
        handing.add([lend(BLOCKED, 2)])
        assert sorted(message.body for message in handing.take_back()) == [
            b"1-0", b"1-0", b"1-1", b"1-1", b"1-2"
        ]  # fmt: skip
        assert handing.take_back() == []


async def test_leases_of_other_partitions_are_renewed() -> None:
    queue = FakeQueue()
    renewal = LeaseRenewal(core(queue), 3600, Losses("q", None))
    held = [lend(partition, 1)[0]._lease for partition in (OPEN, BLOCKED)]
    with running(renewal.run()):
        renewal.add(held)
        await queue.until(lambda answers: answers[OPEN] >= 4)
        assert not queue.answers[BLOCKED]
        queue.recovered.set()
        await queue.until(lambda answers: answers[BLOCKED] >= 2)


async def test_acks_of_other_partitions_do_not_wait() -> None:
    queue = FakeQueue()
    losses = Losses("q", None)
    acks: AckBatcher[AsyncMessage] = AckBatcher(
        core(queue), 0, lambda call, *arguments: call(*arguments), losses, lambda lease: None
    )
    acks.add(lend(BLOCKED, 1))
    acks.send()
    acks.add(lend(OPEN, 1))
    await queue.until(lambda answers: answers[OPEN] == 1)
    flush = asyncio.ensure_future(acks.flush())
    acks.add(lend(OPEN, 1))
    await queue.until(lambda answers: answers[OPEN] == 2)
    assert not flush.done()
    queue.recovered.set()
    async with asyncio.timeout(60):
        await flush
    assert queue.answers[BLOCKED] == 1
    assert losses.count == 0


async def test_leases_of_tasks_are_renewed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor waited longer than a lease, and renewed no other queue after a failure."""
    calls: list[tuple[str, int]] = []

    async def send(core: QueueCore[Any], claims: list[Claim], make: object, limit: int) -> object:
        calls.append((core.name, limit))
        raise Unavailable("no primary")

    monkeypatch.setattr(QueueCore, "send_claims", send)
    held = [each for name in ("a", "b") for each in tickets(lend(BLOCKED, 1, name=name, ms=30_000))]
    with pytest.raises(Unavailable):
        await TicketDesk(cast(ClientSession, None)).renew(held)
    assert calls == [("a", 10_000), ("b", 10_000)]
