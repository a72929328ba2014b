"""push_many and producers against a real node: any iterable, dedup keys, errors half-way."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from itertools import count

import pytest

import weft
from weft import aio, limits
from weft.client.producer import body_source
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
    name = f"q{next(_names)}"
    client.create_queue(name, ordered=True)
    return client.queue(name)


def _bodies(queue: weft.Queue) -> list[bytes]:
    found: list[bytes] = []
    while batch := queue.pop_many(10_000):
        found += [message.body for message in batch]
        queue.ack_many(batch)
    return found


@pytest.mark.parametrize(
    "bodies",
    [
        (b"%d" % n for n in range(3)),
        (b"0", b"1", b"2"),
        {b"0": 1, b"1": 1, b"2": 1}.keys(),
        {1: b"0", 2: b"1", 3: b"2"}.values(),
        map(bytes, [b"0", b"1", b"2"]),
        iter([bytearray(b"0"), memoryview(b"1"), b"2"]),
    ],
    ids=["generator", "tuple", "keys", "values", "map", "iterator"],
)
def test_push_many_takes_any_iterable(queue: weft.Queue, bodies: object) -> None:
    ids = queue.push_many(bodies)  # type: ignore[arg-type]
    assert len(set(ids)) == 3
    messages = queue.pop_many(10)
    assert [message.id for message in messages] == ids
    assert [message.body for message in messages] == [b"0", b"1", b"2"]


def test_the_columns_of_a_generator_go_with_its_bodies(queue: weft.Queue) -> None:
    total = body_source.CHUNK_COUNT + 5
    ids = queue.push_many(
        (b"%d" % n for n in range(total)),
        headers=({"n": str(n)} if n % 2 else None for n in range(total)),
        keys=(f"k{n}" for n in range(total)),
    )
    assert len(ids) == total
    found: list[weft.Message] = []
    while batch := queue.pop_many(10_000):
        found += batch
        queue.ack_many(batch)
    assert [message.id for message in found] == ids
    for n in (0, 1, body_source.CHUNK_COUNT, total - 1):
        assert (found[n].body, found[n].key) == (b"%d" % n, f"k{n}")
        assert found[n].headers == ({"n": str(n)} if n % 2 else {})
    with pytest.raises(weft.InvalidArgument, match="2 messages were stored, then: keys has more"):
        queue.push_many(iter([b"a", b"b"]), keys=["x", "y", "z"])


def test_a_long_generator_is_not_held_in_memory(queue: weft.Queue) -> None:
    size, total = limits.MIB, 96

    def bodies() -> Iterator[bytearray]:
        buffer = bytearray(size)  # reused: bodies that were already read must not change
        for n in range(total):
            buffer[0] = n
            yield buffer

    tracemalloc.start()
    try:
        ids = queue.push_many(bodies())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ids) == total
    assert peak < total * size // 2, peak
    firsts = []
    while message := queue.pop():
        firsts.append(message.body[0])
        message.ack()
    assert firsts == list(range(total))


class Stopped(Exception):
    pass


def _failing(total: int) -> Iterator[bytes]:
    for n in range(total):
        yield b"%d" % n
    raise Stopped("enough")


def test_an_exception_of_the_iterable_says_what_was_stored(queue: weft.Queue) -> None:
    with pytest.raises(Stopped) as caught:
        queue.push_many(_failing(body_source.CHUNK_COUNT + 10))
    assert caught.value.args == ("enough",)
    assert caught.value.__notes__ == [
        f"push_many: {body_source.CHUNK_COUNT} messages were stored before this"
    ]
    assert queue.stats().ready == body_source.CHUNK_COUNT


def test_a_bad_body_half_way_says_what_was_stored(queue: weft.Queue) -> None:
    def bodies() -> Iterator[object]:
        yield from (b"x" for _ in range(body_source.CHUNK_COUNT))
        yield "text"

    with pytest.raises(weft.InvalidArgument, match="16384 messages were stored, then: each of bo"):
        queue.push_many(bodies())  # type: ignore[arg-type]
    # A list is checked before anything is sent.
    with pytest.raises(weft.InvalidArgument, match=r"^each of bodies must be bytes, not str"):
        queue.push_many([b"x"] * 5000 + ["text"])  # type: ignore[list-item]
    assert queue.stats().ready == body_source.CHUNK_COUNT


def test_a_full_queue_says_what_was_stored(client: weft.Client) -> None:
    name = f"q{next(_names)}"
    client.create_queue(name, max_messages=limits.BATCH_COUNT_MAX, ordered=True)
    with pytest.raises(weft.WeftError, match=f"^{limits.BATCH_COUNT_MAX} of 5000 messages were"):
        client.queue(name).push_many([b"x"] * 5000, timeout_ms=500)


def test_dedup_keys_of_push_many(client: weft.Client, queue: weft.Queue) -> None:
    first = queue.push(b"a", dedup_key="a")
    keys = ["a", None, None, "b", "c", "b", None]
    ids = queue.push_many([b"A", b"1", b"2", b"b", b"c", b"B", b"3"], dedup_keys=keys)
    assert ids[0] == first
    assert ids[3] == ids[5]
    assert len(set(ids)) == 6
    assert queue.push_many(iter([b"x", b"y"]), dedup_keys=iter(["c", "a"])) == [ids[4], first]
    assert _bodies(queue) == [b"a", b"1", b"2", b"b", b"c", b"3"]
    # The window outlives the messages, and each queue has its own window.
    assert queue.push_many([b"x"], dedup_keys=["b"]) == [ids[3]]
    assert _bodies(queue) == []
    other = f"q{next(_names)}"
    client.create_queue(other)
    assert client.queue(other).push_many([b"x"], dedup_keys=["b"]) != [ids[3]]


def test_dedup_keys_of_a_producer(queue: weft.Queue) -> None:
    first = queue.push(b"0", dedup_key="k0")
    with queue.producer() as producer:
        for n in range(100):
            producer.send(b"%d" % n, dedup_key=f"k{n % 50}" if n % 50 < 40 else None)
    bodies = _bodies(queue)
    keyed = [b"%d" % n for n in range(1, 40)]
    assert bodies.count(b"0") == 1
    assert sorted(bodies) == sorted(
        [b"0", *keyed, *(b"%d" % n for n in range(100) if n % 50 >= 40)]
    )
    assert queue.push(b"again", dedup_key="k0") == first


def test_send_many_takes_any_iterable(queue: weft.Queue) -> None:
    with queue.producer() as producer:
        producer.send_many(b"%d" % n for n in range(2500))
        producer.send_many({b"last": 1}.keys())
    assert _bodies(queue) == [*(b"%d" % n for n in range(2500)), b"last"]


def test_a_stage_takes_any_iterable(client: weft.Client) -> None:
    name = f"q{next(_names)}"
    client.create_queue(name)
    stage = client.stage(name, "app", 1, 0, 0)
    assert stage.push_many(b"%d" % n for n in range(20_000)) == 20_000
    assert stage.close() == 20_000


def test_asyncio_takes_async_iterables_too(node: Cluster) -> None:
    async def bodies(total: int) -> AsyncIterator[bytes]:
        for n in range(total):
            await asyncio.sleep(0)
            yield b"%d" % n

    async def scenario() -> None:
        name = f"q{next(_names)}"
        async with aio.connect(node.servers) as client:
            await client.create_queue(name, ordered=True)
            queue = client.queue(name)
            ids = await queue.push_many(bodies(5), dedup_keys=["a", "b", "a", None, None])
            assert len(set(ids)) == 4
            assert ids[0] == ids[2]
            assert len(await queue.push_many(b"%d" % n for n in range(3))) == 3
            async with queue.producer() as producer:
                await producer.send_many(bodies(3))
                await producer.send_many(iter([b"x"]))
                await producer.send(b"again", dedup_key="b")
            found = [message.body for message in await queue.pop_many(100)]
            assert sorted(found) == sorted(
                [b"0", b"1", b"3", b"4", b"0", b"1", b"2", b"0", b"1", b"2", b"x"]
            )

    asyncio.run(scenario())


def test_a_sync_client_refuses_an_async_iterable(queue: weft.Queue) -> None:
    async def bodies() -> AsyncGenerator[bytes, None]:
        yield b"x"

    source = bodies()
    with pytest.raises(weft.InvalidArgument, match=r"bodies .* use weft.aio"):
        queue.push_many(source)  # type: ignore[arg-type]
    asyncio.run(source.aclose())
