"""Transactions against real nodes: both clients, gRPC, permissions and quotas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest

import weft
from tests.process.secure_node import Secure
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.testing import Cluster, cluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
_names = count()


@pytest.fixture(scope="module", params=[1, 3])
def nodes(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster(request.param) as running:
        running.settled()
        yield running


@pytest.fixture
def client(nodes: Cluster) -> Iterator[weft.Client]:
    with nodes.client() as client:
        yield client


@pytest.fixture
def queues(client: weft.Client) -> tuple[weft.Queue, weft.Queue]:
    names = f"in-{next(_names)}", f"out-{next(_names)}"
    for name in names:
        client.create_queue(name, lease_ms=20_000)
    return client.queue(names[0]), client.queue(names[1])


def take(queue: weft.Queue, wanted: int) -> list[weft.Message]:
    """Pops until there are so many: effects on other partitions follow a commit."""
    found: list[weft.Message] = []
    until = time.monotonic() + 60
    while len(found) < wanted and time.monotonic() < until:
        found += queue.pop_many(wanted - len(found), wait_ms=500)
    return found


def found(client: weft.Client, key: str) -> bytes:
    until = time.monotonic() + 60
    while (value := client.kv.lookup(key)) is None and time.monotonic() < until:
        time.sleep(0.01)
    assert value is not None
    return value


def test_consume_transform_produce(
    client: weft.Client, queues: tuple[weft.Queue, weft.Queue]
) -> None:
    source, target = queues
    wanted = [b"%d" % number for number in range(2000)]
    for start in range(0, len(wanted), 100):
        source.push_many(wanted[start : start + 100])
    done = 0
    while done < len(wanted):
        messages = source.pop_many(300, wait_ms=5000)
        for lot in weft.lots(messages):
            with client.transaction() as tx:
                tx.ack_many(lot)
                tx.push_many(target.name, [message.body for message in lot])
                tx.kv.append(f"log-{source.name}-{done % 7}", b"%d," % len(lot))
            done += len(lot)
            assert len(tx.ids) == len(lot)
            assert all(message.settled for message in lot)
            assert {each.partition for each in tx.ids} == {lot[0].id.partition}, "no hop"
    got = take(target, len(wanted))
    assert sorted(message.body for message in got) == sorted(wanted)
    assert source.pop() is None
    assert target.pop() is None


def test_an_exception_discards_and_a_lost_lease_changes_nothing(
    client: weft.Client, queues: tuple[weft.Queue, weft.Queue]
) -> None:
    source, target = queues
    source.push(b"1")
    message = source.pop(wait_ms=5000)
    assert message is not None
    with pytest.raises(ZeroDivisionError), client.transaction() as tx:  # noqa: PT012
        tx.ack(message)
        raise ZeroDivisionError
    with pytest.raises(weft.UsageError, match="aborted"):
        tx.push(target.name, b"x")
    with client.transaction() as tx:
        tx.ack(message)
        tx.push(target.name, b"x", headers={"k": "v"}, key="a")
        tx.push(target.name, b"y", dedup_key="d")
    with pytest.raises(weft.AlreadySettled), client.transaction() as tx:
        tx.ack(message)
    assert sorted(each.body for each in take(target, 2)) == [b"x", b"y"]
    source.push(b"2")
    late = source.pop(wait_ms=5000, lease_ms=100)
    assert late is not None
    time.sleep(0.5)
    with pytest.raises(weft.LeaseLost, match="nothing"), client.transaction() as tx:  # noqa: PT012
        tx.ack(late)
        tx.push(target.name, b"never")
    assert target.pop(wait_ms=300) is None
    again = source.pop(wait_ms=5000)
    assert again is not None
    assert again.deliveries == 2


def test_conditions_and_lots(client: weft.Client, queues: tuple[weft.Queue, weft.Queue]) -> None:
    source, target = queues
    key = f"key-{source.name}"
    version = client.kv.insert(key, b"1")
    with client.transaction() as tx:
        tx.kv.insert(key, b"2", if_version=version)
        tx.push(target.name, b"x")
    with pytest.raises(weft.VersionMismatch), client.transaction() as tx:  # noqa: PT012
        tx.kv.insert(key, b"3", if_version=version)
        tx.push(target.name, b"never")
    with client.transaction() as tx:
        tx.kv.compare_and_swap(key, b"2", b"4")
        tx.kv.insert(f"other-{key}", b"ttl", ttl_ms=60_000)
    assert client.kv.lookup(key) == b"4"
    assert found(client, f"other-{key}") == b"ttl"
    assert [each.body for each in take(target, 1)] == [b"x"]
    for number in range(8):
        source.push(b"%d" % number)
    messages = take(source, 8)
    lots = weft.lots(messages)
    assert sorted(each.body for lot in lots for each in lot) == [b"%d" % n for n in range(8)]
    if len(lots) > 1:
        tx = client.transaction()
        tx.ack_many(messages)
        with pytest.raises(weft.InvalidArgument, match=r"weft\.lots"):
            tx.commit()
    for lot in lots:
        with client.transaction() as tx:
            tx.ack_many(lot)
    with client.transaction() as tx:
        pass  # nothing to do
    assert tx.ids == []


def test_bad_arguments_are_refused_before_anything_is_sent(client: weft.Client) -> None:
    tx: Any = client.transaction()
    bad_calls: list[Callable[[], object]] = [
        lambda: tx.ack("x"),
        lambda: tx.push("q", "text"),
        lambda: tx.push("", b"x"),
        lambda: tx.push("q", b"x", delay_ms=-1),
        lambda: tx.push("q", b"x", group="g", priority=1),
        lambda: tx.push_many("q", b"x"),
        lambda: tx.kv.insert("", b"x"),
        lambda: tx.kv.insert("k", b"x", ttl_ms=-1),
        lambda: tx.kv.append("k", 1),
        lambda: tx.kv.remove("k", if_version=0),
        lambda: tx.ids,
    ]
    for bad in bad_calls:
        with pytest.raises(weft.UsageError):
            bad()
    tx.kv.remove("k")
    with pytest.raises(weft.InvalidArgument, match="twice"):
        tx.kv.insert("k", b"v")
    with pytest.raises(weft.TooLarge):  # noqa: PT012
        for number in range(3):
            tx.kv.insert(f"large {number}", bytes(4 << 20))
    tx.abort()


def test_asyncio_and_a_consumer(nodes: Cluster, queues: tuple[weft.Queue, weft.Queue]) -> None:
    source, target = queues

    async def go() -> None:
        async with weft.aio.connect(nodes.servers) as client:
            await client.queue(source.name).push_many([b"%d" % number for number in range(20)])
            async with client.queue(source.name).consume(prefetch=10) as consumer:
                done = 0
                async for message in consumer:
                    async with client.transaction() as tx:
                        tx.ack(message)
                        tx.push(target.name, message.body)
                    done += 1
                    if done == 20:
                        break
            assert await client.queue(source.name).pop() is None

    asyncio.run(go())
    assert len(take(target, 20)) == 20


def test_grpc(nodes: Cluster, queues: tuple[weft.Queue, weft.Queue]) -> None:
    source, target = queues
    with grpc.insecure_channel(nodes.servers[0]) as channel:
        stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        source.push_many([b"1", b"2"])
        popped = stub.Pop(pb.PopRequest(queue=source.name, limit=2, wait_ms=5000)).messages
        out = pb.PushRequest(queue=target.name, messages=[pb.OutMessage(body=b"x")])
        columns = pb.Columns(bodies=[b"y", b"z"])
        request = pb.CommitRequest(
            acks=[pb.CommitAck(queue=source.name, receipts=[each.receipt for each in popped])],
            pushes=[out],
            push_batches=[pb.PushBatchRequest(queue=target.name, messages=columns)],
            writes=[pb.CommitWrite(put=pb.PutRequest(key=f"g-{source.name}", value=b"v"))],
            name=pb.WriteName(producer=9, number=1),
        )
        first = stub.Commit(request)
        assert not first.already
        again = stub.Commit(request)
        assert again.already
        assert list(again.pushed) == list(first.pushed)
        got = take(target, 3)
        assert sorted(each.body for each in got) == [b"x", b"y", b"z"]
        assert first.pushed[0].first_id in {str(each.id) for each in got}
        assert source.pop() is None
        lost = pb.CommitRequest(acks=request.acks, pushes=[out])
        with pytest.raises(grpc.RpcError) as refused:
            stub.Commit(lost)
        assert ("weft-code", "LEASE_LOST") in _metadata(refused.value)
        for bad in (pb.CommitRequest(), pb.CommitRequest(writes=[pb.CommitWrite()])):
            with pytest.raises(grpc.RpcError) as wrong:
                stub.Commit(bad)
            assert wrong.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert target.pop(wait_ms=300) is None


def _metadata(error: Any) -> list[tuple[str, str]]:
    return [(each.key, str(each.value)) for each in error.trailing_metadata()]


def test_every_queue_and_key_needs_its_permission(tmp_path: Path) -> None:
    secure = Secure(tmp_path)
    limited = secure.token("limited", "consume:in", "push:out", "table:own-*")
    push = pb.PushRequest(queue="out", messages=[pb.OutMessage(body=b"x")])
    put = pb.CommitWrite(put=pb.PutRequest(key="own-1", value=b"v"))
    other = pb.CommitWrite(put=pb.PutRequest(key="other", value=b"v"))
    with secure.node.start(), secure.stub(secure.owner) as owner, secure.stub(limited) as stub:
        for name in ("in", "out"):
            owner.call("CreateQueue", pb.CreateQueueRequest(queue=name))
        assert stub.code("Commit", pb.CommitRequest(pushes=[push], writes=[put])) == "OK"
        for refused in (
            pb.CommitRequest(pushes=[push], writes=[put, other]),
            pb.CommitRequest(pushes=[push, pb.PushRequest(queue="in")]),
            pb.CommitRequest(acks=[pb.CommitAck(queue="out")], pushes=[push]),
        ):
            assert stub.code("Commit", refused) == "PERMISSION_DENIED"
        shown = owner.call("DescribeQueue", pb.DescribeQueueRequest(queue="out"))
        assert shown.ready == 1, "a refused commit changed nothing"


def test_a_kept_lease_survives_the_death_of_its_primary() -> None:
    with cluster(3) as nodes:
        nodes.settled()
        with nodes.client() as client:
            client.create_queue("kept", keep_leases=True, lease_ms=60_000)
            client.create_queue("out")
            queue = client.queue("kept")
            queue.push_many([b"%d" % number for number in range(10)])
            messages = take(queue, 10)
            view = client.view()
            primary = view.nodes[view.primaries[messages[0].id.partition]].grpc
            nodes.kill(nodes.servers.index(primary))
            with client.transaction() as tx:
                tx.ack_many(messages)
                tx.push("out", b"all")
            assert [each.body for each in take(client.queue("out"), 1)] == [b"all"]
            assert queue.pop(wait_ms=500) is None
            assert queue.stats().leased == 0
