"""Producers and consumers against a real node, also while the node is killed and restarted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

import weft
import weft.testing
from weft.node_process import free_ports
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process

_names = count()


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


@pytest.fixture
def client(node: Cluster) -> Iterator[weft.Client]:
    with weft.connect(node.servers) as client:
        yield client


@pytest.fixture
def queue(client: weft.Client) -> weft.Queue:
    name = f"s{next(_names)}"
    client.create_queue(name, lease_ms=2000)
    return client.queue(name)


def drain(queue: weft.Queue) -> list[bytes]:
    bodies = []
    for message in queue.consume(stop_when_empty=True):
        bodies.append(message.body)
        message.ack()
    return bodies


def test_what_is_sent_is_consumed(queue: weft.Queue) -> None:
    bodies = [b"%d" % n for n in range(5000)]
    with queue.producer() as producer:
        for body in bodies[:2500]:
            producer.send(body)
        producer.send_many(bodies[2500:])
    assert sorted(drain(queue)) == sorted(bodies)
    stats = queue.stats()
    assert (stats.ready, stats.leased, stats.acked) == (0, 0, len(bodies))


def test_options_of_single_messages_are_kept(queue: weft.Queue) -> None:
    with queue.producer() as producer:
        producer.send(b"plain")
        producer.send(b"rich", headers={"k": "v"}, key="g")
        producer.send(b"first", priority=9)
        producer.send(b"late", delay_ms=60_000)
    assert queue.stats().delayed == 1
    first, *others = queue.pop_many(10)
    assert (first.body, first.priority) == (b"first", 9)
    plain, rich = others
    assert (plain.body, plain.headers, plain.key) == (b"plain", {}, None)
    assert (rich.body, rich.headers, rich.key) == (b"rich", {"k": "v"}, "g")


def test_the_linger_time_sends_a_lone_message(queue: weft.Queue) -> None:
    with queue.producer(linger_ms=20) as producer:
        producer.send(b"alone")
        message = queue.pop(wait_ms=100_000)
    assert message is not None


def test_errors_of_a_producer_surface_at_flush_and_say_how_many(client: weft.Client) -> None:
    name = f"s{next(_names)}"
    client.create_queue(name, max_messages=10)
    producer = client.queue(name).producer(batch_count=10, timeout_ms=3000)
    for _ in range(35):
        producer.send(b"x")
    with pytest.raises(weft.QueueFull, match="25 messages sent to"):
        producer.flush()
    producer.close()
    with pytest.raises(weft.UsageError, match="producer is closed"):
        producer.send(b"y")
    assert client.queue(name).stats().ready == 10


def test_errors_of_a_producer_surface_at_the_next_send(client: weft.Client) -> None:
    producer = client.queue("never-made").producer(linger_ms=0)
    producer.send(b"x")
    end = time.monotonic() + 100
    while not producer._accumulator.attention and time.monotonic() < end:
        time.sleep(0.01)
    with pytest.raises(weft.QueueNotFound, match="1 message sent to never-made"):
        producer.send(b"y")
    producer.close()  # the second message was refused, and the first was reported


def test_closing_the_client_tells_what_a_producer_lost(node: Cluster) -> None:
    client = weft.connect(node.servers)
    client.queue("never-made").producer(linger_ms=1000).send(b"x")
    with pytest.raises(weft.QueueNotFound, match="1 message"):
        client.close()


def test_a_producer_waits_when_too_much_is_under_way(node: Cluster, queue: weft.Queue) -> None:
    producer = queue.producer(buffer_bytes=200_000, batch_bytes=100_000)
    queue.push(b"")  # establish the connection
    node.pause()
    sent = threading.Event()

    def send() -> None:
        for _ in range(10):
            producer.send(bytes(100_000))
        sent.set()

    sender = threading.Thread(target=send)
    sender.start()
    assert not sent.wait(0.5)
    node.resume()
    assert sent.wait(100)
    sender.join()
    producer.close()
    assert queue.stats().ready == 11


def test_leases_are_renewed_while_messages_are_worked_on(client: weft.Client) -> None:
    name = f"s{next(_names)}"
    client.create_queue(name, lease_ms=3000)
    queue = client.queue(name)
    queue.push_many([b"%d" % n for n in range(10)])
    with queue.consume(idle_ms=1000) as consumer:
        for number, message in enumerate(consumer):
            if number == 0:
                time.sleep(5)  # longer than the lease, for the prefetched messages, too
            assert message.deliveries == 1
            message.ack()
        assert consumer.lost == 0
    stats = queue.stats()
    assert (stats.acked, stats.expired_leases, stats.leased) == (10, 0, 0)


def test_a_message_that_is_held_for_too_long_is_let_go(client: weft.Client) -> None:
    name = f"s{next(_names)}"
    client.create_queue(name, lease_ms=1500)
    queue = client.queue(name)
    pushed = queue.push(b"x")
    lost: list[weft.MessageId] = []
    with queue.consume(renew_for_ms=1500, on_lost=lost.extend) as consumer:
        held = next(consumer)
        again = next(consumer)
        assert (again.id, again.deliveries) == (held.id, 2)
        again.ack()
    assert lost == [pushed]
    assert consumer.lost == 1


def test_closing_gives_back_what_was_not_looked_at(queue: weft.Queue) -> None:
    queue.push_many([b"%d" % n for n in range(100)])
    with queue.consume(batch=10, prefetch=50) as consumer:
        for _ in range(5):
            next(consumer).ack()
        unsettled = next(consumer)
    stats = queue.stats()
    assert (stats.ready, stats.leased, stats.acked) == (94, 1, 5)
    rest = queue.pop_many(100)
    assert {message.deliveries for message in rest} == {1}
    unsettled.ack()  # still leased to its holder
    assert queue.stats().acked == 6


def test_a_loop_left_with_break_gives_back_what_was_not_looked_at(queue: weft.Queue) -> None:
    queue.push_many([b"%d" % n for n in range(100)])
    for message in queue.consume(prefetch=20, batch=10):
        message.ack()
        break
    end = time.monotonic() + 100
    while queue.stats().ready != 99 and time.monotonic() < end:
        time.sleep(0.02)
    assert queue.stats().ready == 99


def test_a_small_prefetch_leaves_the_others_their_share(queue: weft.Queue) -> None:
    queue.push_many([b"%d" % n for n in range(10)])
    with queue.consume(prefetch=1) as consumer:
        next(consumer)
        time.sleep(0.3)
        assert queue.stats().ready >= 8


def test_a_lost_lease_is_counted_and_told(queue: weft.Queue) -> None:
    queue.push(b"x")
    lost: list[weft.MessageId] = []
    with queue.consume(on_lost=lost.extend) as consumer:
        message = next(consumer)
        queue.purge()  # ends the message's lease
        message.ack()
        end = time.monotonic() + 100
        while not consumer.lost and time.monotonic() < end:
            time.sleep(0.01)
        with pytest.raises(weft.AlreadySettled):
            message.ack()
    assert consumer.lost == 1
    assert lost == [message.id]


def test_a_consumer_that_lost_all_that_it_prefetched_fetches_again(queue: weft.Queue) -> None:
    queue.push_many([b"a", b"b"])
    lost: list[weft.MessageId] = []
    with queue.consume(prefetch=2, batch=2, lease_ms=300, on_lost=lost.extend) as consumer:
        assert next(consumer).body == b"a"
        queue.purge()
        end = time.monotonic() + 100
        while not lost and time.monotonic() < end:  # a renewal detects it
            time.sleep(0.02)
        queue.push(b"c")
        give_up = threading.Timer(20, consumer.close)
        give_up.start()
        message = next(consumer, None)
        give_up.cancel()
        assert message is not None, "the consumer fetches no more"
        assert message.body == b"c"
        message.ack()


def test_a_faulty_on_lost_stops_nothing(
    queue: weft.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    def faulty(ids: list[weft.MessageId]) -> None:
        raise RuntimeError(f"cannot take {len(ids)}")

    queue.push(b"x")
    with queue.consume(on_lost=faulty) as consumer:
        message = next(consumer)
        queue.purge()
        message.ack()
        queue.push(b"y")
        next(consumer).ack()
    assert "cannot take 1" in caplog.text
    assert queue.stats().ready + queue.stats().leased == 0


def test_a_consumer_of_a_queue_that_is_not_there_says_so(client: weft.Client) -> None:
    with pytest.raises(weft.QueueNotFound, match="never-made"):
        next(client.queue("never-made").consume())


def test_a_closed_consumer_wakes_its_thread(queue: weft.Queue) -> None:
    consumer = queue.consume()
    seen: list[weft.Message] = []
    iterating = threading.Thread(target=lambda: seen.extend(consumer))
    iterating.start()
    time.sleep(0.2)
    consumer.close()
    iterating.join(100)
    assert not iterating.is_alive()
    assert seen == []


def test_nacks_and_extends_of_a_consumer_work_at_once(queue: weft.Queue) -> None:
    queue.push(b"x")
    with queue.consume(prefetch=1) as consumer:
        message = next(consumer)
        message.extend(5000)
        message.nack(reason="again")
        again = next(consumer)
        assert again.deliveries == 2
        again.ack()
    assert queue.stats().acked == 1


def test_it_goes_on_over_kill_and_restart() -> None:
    """A producer and a consumer work while the node is killed three times; nothing is missing."""
    total, seen = 600, set()
    with cluster() as node, weft.connect(node.servers, timeout_ms=200_000) as client:
        client.create_queue("work", lease_ms=2000)
        queue = client.queue("work")

        def produce() -> None:
            with queue.producer(batch_count=20) as producer:
                for n in range(total):
                    producer.send(b"%d" % n)
                    time.sleep(0.005)

        def consume() -> None:
            # A kill ends the leases of messages in hand: they are delivered again.
            for message in queue.consume(batch=20, prefetch=40, on_lost=lambda *_: None):
                seen.add(message.body)
                message.ack()
                if len(seen) == total:
                    return

        threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(0.7)
            node.kill()
            time.sleep(0.3)
            node.start()
        for thread in threads:
            thread.join(200)
        assert not any(thread.is_alive() for thread in threads)
        assert seen == {b"%d" % n for n in range(total)}


def test_blocking_calls_go_on_over_a_stop_and_a_restart() -> None:
    """A draining node answers a waiting pop early; the client continues to wait all the same."""
    with cluster(grace_ms=500) as node, weft.connect(node.servers) as client:
        client.create_queue("work")
        queue = client.queue("work")
        got: list[weft.Message | None] = []
        waiter = threading.Thread(target=lambda: got.append(queue.pop(wait_ms=200_000)))
        waiter.start()
        time.sleep(0.3)
        node.stop()
        time.sleep(0.2)
        node.start()
        queue.push(b"after")
        waiter.join(200)
        assert [message.body for message in got if message] == [b"after"]


def test_a_node_that_comes_back_on_other_ports_is_found() -> None:
    with cluster() as node:
        old, new = node.servers[0], free_ports()
        with weft.connect([old, f"127.0.0.1:{new[0]}"]) as client:
            client.create_queue("work")
            queue = client.queue("work")
            consumer = queue.consume(idle_ms=100_000)
            node.stop()
            node.node().ports = new
            node.start()
            queue.push(b"found")
            message = next(consumer)
            assert message.body == b"found"
            message.ack()
            consumer.close()


async def test_the_async_flavour(node: Cluster) -> None:
    async with weft.aio.connect(node.servers) as client:
        name = f"s{next(_names)}"
        await client.create_queue(name)
        queue = client.queue(name)
        bodies = [b"%d" % n for n in range(3000)]
        async with queue.producer() as producer:
            for body in bodies[:1500]:
                await producer.send(body)
            await producer.send_many(bodies[1500:])
        got = []
        async for message in queue.consume(stop_when_empty=True):
            got.append(message.body)
            await message.ack()
        assert sorted(got) == sorted(bodies)
        assert (await queue.stats()).acked == len(bodies)
        await queue.push_many(bodies[:100])
        async for message in queue.consume(batch=10, prefetch=20):
            await message.ack()
            break
        del message
        for _ in range(5000):
            if (await queue.stats()).ready == 99:
                break
            await asyncio.sleep(0.02)
        assert (await queue.stats()).ready == 99


async def test_errors_of_an_async_producer_surface(node: Cluster) -> None:
    async with weft.aio.connect(node.servers) as client:
        producer = client.queue("never-made").producer()
        await producer.send_many([b"x"] * 7)
        with pytest.raises(weft.QueueNotFound, match="7 messages"):
            await producer.flush()
        await producer.close()
