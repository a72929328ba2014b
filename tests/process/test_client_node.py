"""The client against a real node: every verb of the public API, asyncio and blocking."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

import weft
from weft.testing import Cluster

pytestmark = pytest.mark.process

_names = count()


@pytest.fixture
def client(node: Cluster) -> Iterator[weft.Client]:
    with weft.connect(node.servers) as client:
        yield client


@pytest.fixture
def queue(client: weft.Client) -> weft.Queue:
    name = f"q{next(_names)}"
    client.create_queue(name)
    return client.queue(name)


def test_the_life_of_a_message(queue: weft.Queue) -> None:
    before = time.time() - 1
    pushed = queue.push(b"one", headers={"k": "v"}, key="group", priority=3)
    message = queue.pop(wait_ms=1000)
    assert message is not None
    assert message.id == pushed
    assert (message.body, message.headers, message.key) == (b"one", {"k": "v"}, "group")
    assert (message.deliveries, message.priority, message.dead_reason) == (1, 3, "")
    assert before < message.pushed_at < time.time() + 1
    message.extend(60_000)
    message.nack()
    again = queue.pop(wait_ms=1000)
    assert again is not None
    assert (again.id, again.deliveries) == (pushed, 2)
    again.ack()
    assert queue.pop() is None
    stats = queue.stats()
    assert (stats.ready, stats.leased, stats.acked) == (0, 0, 1)


def test_a_message_is_settled_once(queue: weft.Queue) -> None:
    queue.push_many([b"a", b"b"])
    first, second = queue.pop_many(2)
    first.ack()
    with pytest.raises(weft.AlreadySettled):
        first.ack()
    with pytest.raises(weft.AlreadySettled):
        first.nack()
    with pytest.raises(weft.AlreadySettled, match="nothing was sent"):
        queue.ack_many([first, second])
    second.ack()
    queue.push(b"c")
    (peeked,) = queue.peek()
    with pytest.raises(weft.UsageError, match="not leased"):
        peeked.ack()


def test_a_stale_receipt_is_refused(queue: weft.Queue) -> None:
    ids = queue.push_many([b"a", b"b", b"c"])
    messages = queue.pop_many(3, lease_ms=100)
    time.sleep(0.3)
    with pytest.raises(weft.LeaseLost, match=str(ids[0])):
        messages[0].ack()
    with pytest.raises(weft.LeaseLost, match="2 messages"):
        queue.ack_many(messages[1:])
    again = queue.pop_many(3)
    assert [message.deliveries for message in again] == [2, 2, 2]


def test_push_many_splits_at_the_limits_and_keeps_the_order(queue: weft.Queue) -> None:
    bodies = [b"%d" % n for n in range(10_000)]
    ids = queue.push_many(bodies)
    assert len(set(ids)) == len(bodies)
    got: list[weft.Message] = []
    while batch := queue.pop_many(3000):
        got += batch
    assert [message.body for message in got] == bodies
    assert [message.id for message in got] == ids
    queue.ack_many(got)
    assert queue.stats().acked == len(bodies)


def test_push_many_splits_by_bytes(queue: weft.Queue) -> None:
    bodies = [bytes([n]) * (3 << 20) for n in range(8)]
    headers = [{"n": str(n)} for n in range(8)]
    queue.push_many(bodies, headers=headers, keys=[f"k{n}" for n in range(8)])
    got: list[weft.Message] = []
    while batch := queue.pop_many(100):
        got += batch
    assert [message.body == body for message, body in zip(got, bodies, strict=True)] == [True] * 8
    assert [message.headers for message in got] == headers
    assert [message.key for message in got] == [f"k{n}" for n in range(8)]


def test_some_of_many_leases_are_acked(queue: weft.Queue) -> None:
    for n in range(5):
        queue.push_many([b"%d-%d" % (n, m) for m in range(100)])
    messages = queue.pop_many(500)
    odd = messages[1::2]
    queue.ack_many(odd + odd)  # twice in one list is once
    queue.nack_many(messages[::2], delay_ms=0, reason="even")
    again = queue.pop_many(500)
    assert sorted(m.body for m in again) == sorted(m.body for m in messages[::2])


def test_a_dedup_key_stores_once(queue: weft.Queue) -> None:
    first = queue.push(b"a", dedup_key="order-1")
    assert queue.push(b"b", dedup_key="order-1") == first
    assert queue.stats().ready == 1


def test_a_delay_and_a_waiting_pop(queue: weft.Queue) -> None:
    before = time.monotonic()
    queue.push(b"later", delay_ms=500)
    message = queue.pop() or queue.pop(wait_ms=60_000)
    assert message is not None
    assert time.monotonic() - before >= 0.5


def test_dead_letters_and_redrive(client: weft.Client) -> None:
    name = f"q{next(_names)}"
    client.create_queue(name, max_deliveries=1, dead_letter=f"{name}.dead")
    queue, dead = client.queue(name), client.queue(f"{name}.dead")
    queue.push(b"poison")
    message = queue.pop()
    assert message is not None
    message.nack(reason="cannot parse")
    letter = dead.peek()[0]
    assert "cannot parse" in letter.dead_reason
    assert dead.redrive() == 1
    assert queue.stats().ready == 1


def test_queues_are_made_changed_listed_and_dropped(client: weft.Client) -> None:
    name = f"admin{next(_names)}"
    assert client.create_queue(name, lease_ms=5000)
    assert not client.create_queue(name, lease_ms=5000)
    with pytest.raises(weft.QueueExists):
        client.create_queue(name, lease_ms=6000)
    client.update_queue(name, lease_ms=7000)
    assert client.queue(name).stats().settings.lease_ms == 7000
    assert [stats.name for stats in client.list_queues("admin")] == [name]
    client.queue(name).push_many([b"x"] * 3)
    assert client.queue(name).purge() == 3
    client.queue(name).push(b"y")
    assert client.delete_queue(name) == 1
    with pytest.raises(weft.QueueNotFound):
        client.queue(name).push(b"z")
    with pytest.raises(weft.QueueNotFound):
        client.queue(name).stats()


def test_bad_arguments_say_what_is_wrong(client: weft.Client, queue: weft.Queue) -> None:
    with pytest.raises(weft.InvalidArgument, match="encode"):
        queue.push("text")  # type: ignore[arg-type]
    with pytest.raises(weft.TooLarge, match="4194304"):
        queue.push(bytes((4 << 20) + 1))
    with pytest.raises(weft.InvalidArgument, match="delay_ms"):
        queue.push(b"", delay_ms=-1)
    with pytest.raises(weft.InvalidArgument, match="delay_ms"):
        queue.push(b"", delay_ms=1.5)  # type: ignore[arg-type]
    with pytest.raises(weft.InvalidArgument, match="headers"):
        queue.push(b"", headers={"n": 1})  # type: ignore[dict-item]
    with pytest.raises(weft.InvalidArgument, match="queue name"):
        client.queue("no spaces")
    with pytest.raises(weft.InvalidArgument, match="unknown setting"):
        client.create_queue("q", leese_ms=1)  # type: ignore[call-arg]
    with pytest.raises(weft.InvalidArgument, match="limit"):
        queue.pop_many(0)


def test_the_table(client: weft.Client) -> None:
    kv, key = client.kv, f"k{next(_names)}"
    assert kv.lookup(key) is None
    kv.insert(key, b"v")
    assert kv.append(key, b"w") == 2
    assert kv.lookup(key) == b"vw"
    swap = kv.compare_and_swap(key, b"other", b"x")
    assert not swap
    assert swap.current == b"vw"
    assert kv.compare_and_swap(key, b"vw", b"x")
    assert kv.remove(key)
    assert not kv.remove(key)
    assert kv.compare_and_swap(key, None, b"new")
    assert kv.lookup(key) == b"new"


def test_view_and_status(client: weft.Client, node: Cluster) -> None:
    view = client.view()
    assert [each.grpc for each in view.nodes] == node.servers
    assert client.status().durability == "disk"


def test_a_full_queue_is_retried_until_there_is_room(client: weft.Client) -> None:
    name = f"q{next(_names)}"
    client.create_queue(name, max_messages=1)
    queue = client.queue(name)
    queue.push(b"first")
    with pytest.raises(weft.QueueFull):
        queue.push(b"second", timeout_ms=3000)
    message = queue.pop()
    assert message is not None
    timer = threading.Timer(0.3, message.ack)
    timer.start()
    queue.push(b"second", timeout_ms=100_000)
    timer.join()


def test_threads_share_a_client(client: weft.Client, queue: weft.Queue) -> None:
    done: list[bytes] = []

    def push(n: int) -> None:
        for m in range(50):
            queue.push(b"%d-%d" % (n, m))

    def pop() -> None:
        while len(done) < 200:
            if (message := queue.pop(wait_ms=500)) is not None:
                done.append(message.body)
                message.ack()

    threads = [threading.Thread(target=push, args=(n,)) for n in range(4)]
    threads += [threading.Thread(target=pop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == sorted(b"%d-%d" % (n, m) for n in range(4) for m in range(50))
    assert queue.stats().leased == 0


def test_a_forked_child_is_told_to_connect(client: weft.Client, queue: weft.Queue) -> None:
    queue.push(b"x")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            queue.push(b"y")
        except weft.UsageError as error:
            client.close()  # must not touch the parent's resources
            code = 0 if "fork" in error.message else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    queue.push(b"z")
    assert queue.stats().ready == 2


async def test_the_async_face(node: Cluster) -> None:
    async with weft.aio.connect(node.servers) as client:
        name = f"q{next(_names)}"
        assert await client.create_queue(name)
        queue = client.queue(name)
        ids = await asyncio.gather(*(queue.push(b"%d" % n) for n in range(50)))
        assert len(set(ids)) == 50
        await queue.push_many([b"x"] * 9000)
        messages = await queue.pop_many(50, wait_ms=1000)
        await messages[0].nack(reason="no")
        await messages[1].extend(60_000)
        await messages[1].ack()
        with pytest.raises(weft.AlreadySettled):
            await messages[1].ack()
        await queue.ack_many(messages[2:])
        assert (await queue.stats()).ready == 9001
        assert len(await queue.peek(3)) == 3
        assert await queue.purge() == 9001
        waiting = asyncio.create_task(queue.pop(wait_ms=100_000))
        await asyncio.sleep(0.05)
        await queue.push(b"wake")
        message = await waiting
        assert message is not None
        assert message.body == b"wake"
        await client.kv.insert(name, b"v")
        assert await client.kv.lookup(name) == b"v"
        assert await client.delete_queue(name) == 1


async def test_a_cancelled_pop_pins_nothing(node: Cluster) -> None:
    async with weft.aio.connect(node.servers) as client:
        name = f"q{next(_names)}"
        await client.create_queue(name)
        queue = client.queue(name)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.pop(wait_ms=60_000), 0.1)
        await queue.push(b"x")  # the node still has that pop waiting
        message = await queue.pop(wait_ms=60_000)
        assert message is not None
        assert message.deliveries == 1
