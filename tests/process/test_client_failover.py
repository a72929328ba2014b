"""A client of three real nodes finds every message while any node dies, stops or goes silent."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import grpc
import pytest

import weft
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.testing import Cluster, cluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

#: Far more than a failover takes, on a busy machine.
PATIENT_MS = 100_000


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(3) as nodes:
        yield nodes


@pytest.fixture
def three(nodes: Cluster) -> Cluster:
    """All three nodes, running again after the previous test."""
    for number in range(3):
        if not nodes.node(number).running:
            nodes.start(number)
    nodes.settled()
    return nodes


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A queue for each test."""
    return str(request.node.name)[:80]


def take_all(queue: weft.Queue, wanted: int) -> list[bytes]:
    """Take all messages, and at least `wanted`; leases of a dead node's messages are void."""
    seen: set[bytes] = set()
    end = time.monotonic() + PATIENT_MS / 1000
    while (batch := queue.pop_many(100, wait_ms=500)) or (
        len(seen) < wanted and time.monotonic() < end
    ):
        seen |= {message.body for message in batch}
        try:
            queue.ack_many(batch)
        except weft.LeaseLost:  # a lead moved just then: the messages are delivered again
            continue
    return sorted(seen)


def test_a_client_outlives_a_kill_and_a_silence(three: Cluster, name: str) -> None:
    with weft.connect(three.servers, timeout_ms=PATIENT_MS) as client:
        client.create_queue(name)
        queue = client.queue(name)
        first = [b"a%d" % number for number in range(60)]
        for body in first:
            queue.push(body)
        assert len({node.id for node in client._router.view.leaders()}) == 3
        assert take_all(queue, 60) == sorted(first)

        # A message that another client pushes wakes a waiting pop, on whichever node it lands.
        pusher = threading.Timer(0.5, lambda: client.queue(name).push(b"late"))
        pusher.start()
        message = queue.pop(wait_ms=PATIENT_MS)
        pusher.join()
        assert message is not None
        try:
            message.ack()
        except weft.LeaseLost:  # a node that is slow to answer may be taken for dead
            assert take_all(queue, 1) == [b"late"]

        second = [b"b%d" % number for number in range(60)]
        for body in second[:30]:
            queue.push(body)
        three.kill(0)
        for body in second[30:]:
            queue.push(body)
        assert take_all(queue, 60) == sorted(second)
        assert queue.stats().ready == 0

        three.start(0)
        three.settled()
        three.pause(1)
        try:
            third = [b"c%d" % number for number in range(30)]
            for body in third:
                queue.push(body)
            assert take_all(queue, 30) == sorted(third)
        finally:
            three.resume(1)


def test_cancel_from_any_node_and_after_a_failover(three: Cluster, name: str) -> None:
    with weft.connect(three.servers, timeout_ms=PATIENT_MS) as client:
        client.create_queue(name, lease_ms=600_000)
        queue = client.queue(name)
        ids = {b"%d" % number: queue.push(b"%d" % number) for number in range(12)}
        ids |= {b"d%d" % n: queue.push(b"d%d" % n, delay_ms=3_600_000) for n in range(6)}
        assert len({one.partition for one in ids.values()}) > 3
        # By the Python client, which asks the primary of the partition.
        assert queue.cancel(ids.pop(b"0")) is True
        assert queue.cancel(ids.pop(b"d0")) is True
        # By gRPC, through every node: at least two of three do not lead the partition.
        for number, server in enumerate(three.servers, 1):
            with grpc.insecure_channel(server) as channel:
                stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
                for body in (b"%d" % number, b"d%d" % number):
                    request = pb.CancelRequest(queue=name, id=str(ids.pop(body)))
                    assert stub.Cancel(request, timeout=PATIENT_MS / 1000).cancelled
                    assert not stub.Cancel(request, timeout=PATIENT_MS / 1000).cancelled
        taken = queue.pop()
        assert taken is not None
        with pytest.raises(weft.MessageLeased):
            queue.cancel(taken.id)
        taken.ack()
        assert queue.cancel(ids.pop(taken.body)) is False
        # Also during a failover; no attempt ends in an error, and none is undone.
        three.kill(0)
        for one in ids.values():
            queue.cancel(one)
        assert not any(queue.cancel(one) for one in ids.values())
        stats = queue.stats()
        assert (stats.ready, stats.leased, stats.delayed) == (0, 0, 0)
        assert queue.pop() is None


async def test_streams_go_on_while_a_node_is_killed(three: Cluster, name: str) -> None:
    """Nothing is lost, and no error reaches the application."""
    total = 300
    seen: set[bytes] = set()
    under_way = asyncio.Event()

    async def produce(client: weft.aio.Client) -> None:
        async with client.queue(name).producer(batch_count=5) as producer:
            for number in range(total):
                await producer.send(b"%d" % number)
                await asyncio.sleep(0.01)

    lost: list[weft.MessageId] = []  # leases end with the node that is killed

    async def consume(client: weft.aio.Client) -> None:
        async with client.queue(name).consume(
            batch=20, prefetch=40, on_lost=lost.extend
        ) as consumer:
            async for message in consumer:
                seen.add(message.body)
                await message.ack()
                if len(seen) >= total // 4:
                    under_way.set()
                if len(seen) == total:
                    return

    async def kill() -> None:
        await under_way.wait()
        await asyncio.to_thread(three.kill, 2)

    async with weft.aio.connect(three.servers, timeout_ms=PATIENT_MS) as client:
        await client.create_queue(name)
        await asyncio.gather(produce(client), consume(client), kill())
    assert seen == {b"%d" % number for number in range(total)}


def test_a_wait_outlives_every_node_that_is_killed(three: Cluster, name: str) -> None:
    """For a wait at any node: first one dies, and then it returns and another dies."""
    with weft.connect(three.servers, timeout_ms=PATIENT_MS) as client:
        client.create_queue(name)
        found: list[weft.Message | None] = []
        waiter = threading.Thread(
            target=lambda: found.append(client.queue(name).pop(wait_ms=PATIENT_MS))
        )
        waiter.start()
        time.sleep(0.5)
        for number in (0, 1):
            three.kill(number)
            time.sleep(1)
            three.start(number)
            three.settled()
        assert not found
        client.queue(name).push(b"x")
        waiter.join(PATIENT_MS / 1000)
        assert found
        assert found[0] is not None
        assert found[0].body == b"x"
