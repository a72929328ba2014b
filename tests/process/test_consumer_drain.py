"""Acks of a consumer are confirmed by flush, drain and close; messages in hand stay leased."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

import weft
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process
_names = count()


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with cluster() as node:
        yield node


@pytest.fixture
def client(node: Cluster) -> Iterator[weft.Client]:
    with node.client() as client:
        yield client


@pytest.fixture
def queue(client: weft.Client) -> weft.Queue:
    name = f"drain-{next(_names)}"
    client.create_queue(name, lease_ms=1_000, max_deliveries=5, dead_letter=f"{name}.dead")
    return client.queue(name)


def test_flush_confirms_every_ack_so_far(queue: weft.Queue) -> None:
    queue.push_many([b"%d" % number for number in range(10)])
    with queue.consume(ack_linger_ms=60_000) as consumer:
        for _ in range(3):
            next(consumer).ack()
        consumer.flush()
        assert queue.stats().acked == 3


def test_flush_raises_for_an_ack_that_came_too_late(queue: weft.Queue) -> None:
    queue.push(b"a")
    consumer = queue.consume(ack_linger_ms=60_000)
    message = next(consumer)
    queue.purge()
    message.ack()
    with pytest.raises(weft.LeaseLost):
        consumer.flush()
    consumer.flush()  # already raised once
    consumer.close()
    assert consumer.lost == 1


def test_close_raises_what_no_flush_has_raised(queue: weft.Queue) -> None:
    queue.push(b"a")
    consumer = queue.consume(ack_linger_ms=60_000)
    message = next(consumer)
    queue.purge()
    message.ack()
    with pytest.raises(weft.LeaseLost):
        consumer.close()


def test_an_ack_can_be_confirmed_by_itself(queue: weft.Queue) -> None:
    queue.push_many([b"a", b"b"])
    with queue.consume(ack_linger_ms=60_000) as consumer:
        next(consumer).ack(confirm=True)
        assert queue.stats().acked == 1
        lost = next(consumer)
        queue.purge()
        with pytest.raises(weft.LeaseLost):
            lost.ack(confirm=True)


def test_close_goes_on_renewing_what_is_in_hand(client: weft.Client, queue: weft.Queue) -> None:
    client.update_queue(queue.name, lease_ms=3_000)  # a busy machine may renew a second late
    queue.push_many([b"%d" % number for number in range(10)])
    consumer = queue.consume()
    message = next(consumer)
    consumer.close()
    assert queue.stats().ready == 9
    time.sleep(6.5)  # longer than two leases
    message.ack()
    assert [each.deliveries for each in queue.pop_many(100)] == [1] * 9


@pytest.mark.parametrize("repetition", range(10))
def test_a_closed_consumer_lends_nothing_to_its_own_pop(
    client: weft.Client, queue: weft.Queue, repetition: int
) -> None:
    """The consumer's next pop waits at the node at its end, and must not take returned messages."""
    queue.push_many([b"%d" % number for number in range(10)])
    consumer = queue.consume()
    next(consumer).ack()
    time.sleep(0.02 * (repetition % 2))  # with and without time for the next pop to be in flight
    consumer.close()
    stats = queue.stats()
    assert (stats.ready, stats.leased) == (9, 0)


def test_drain_waits_for_what_is_in_hand(queue: weft.Queue) -> None:
    queue.push_many([b"%d" % number for number in range(10)])
    consumer = queue.consume(ack_linger_ms=60_000)
    message = next(consumer)
    worker = threading.Timer(1.5, message.ack)
    worker.start()
    assert consumer.drain(timeout_s=100) == 0
    worker.join()
    assert (queue.stats().acked, queue.stats().ready) == (1, 9)
    assert list(consumer) == []


def test_drain_says_what_is_still_in_hand(queue: weft.Queue) -> None:
    queue.push(b"a")
    consumer = queue.consume()
    message = next(consumer)
    assert consumer.drain(timeout_s=0.1) == 1
    message.ack()
    assert queue.stats().acked == 1


def test_prefetch_is_what_the_client_holds_beyond_what_is_in_hand(queue: weft.Queue) -> None:
    queue.push_many([b"%d" % number for number in range(100)])
    with queue.consume(prefetch=10) as consumer:
        next(consumer)
        time.sleep(0.5)  # time enough to fetch another batch, if that were allowed
        assert 10 <= queue.stats().leased <= 11


def test_a_final_nack_is_a_dead_letter_at_once(client: weft.Client, queue: weft.Queue) -> None:
    queue.push(b"a")
    message = queue.pop(wait_ms=1000)
    assert message is not None
    message.nack(reason="cannot be read", final=True)
    (dead,) = client.queue(f"{queue.name}.dead").peek(10)
    assert dead.dead_reason == "1 deliveries, the last one rejected: cannot be read"


async def test_the_async_flavour(node: Cluster) -> None:
    async with weft.aio.connect(node.servers) as client:
        await client.create_queue("drain-async", lease_ms=1_000)
        queue = client.queue("drain-async")
        await queue.push_many([b"%d" % number for number in range(10)])
        consumer = queue.consume(ack_linger_ms=60_000)
        first, second = await anext(consumer), await anext(consumer)
        await first.ack()
        await consumer.flush()
        assert (await queue.stats()).acked == 1
        drained = asyncio.ensure_future(consumer.drain(timeout_s=100))
        await asyncio.sleep(1.5)
        await second.ack()
        assert await drained == 0
        assert (await queue.stats()).acked == 2
