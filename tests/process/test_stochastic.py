"""Stochastic queues against three real nodes: both kinds of clients, full buffers, a kill."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import grpc
import pytest
from click.testing import CliRunner

import weft
from weft.client.cli.main import cli
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process
_names = count()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(3, zone="here") as running:
        running.settled()
        yield running


@pytest.fixture
def client(nodes: Cluster) -> Iterator[weft.Client]:
    with weft.connect(nodes.servers) as client:
        yield client


@pytest.fixture
def queue(client: weft.Client) -> weft.Queue:
    return made(client)


def made(client: weft.Client, **settings: int | str) -> weft.Queue:
    name = f"events-{next(_names)}"
    chosen = {"buffers": 1000, "access": "rates", "lease_ms": 5_000} | settings
    client.create_queue(name, kind="stochastic", **chosen)  # type: ignore[arg-type]
    return client.queue(name)


def holders(client: weft.Client, ids: list[weft.MessageId]) -> Counter[str]:
    """The nodes that lead the partitions of messages."""
    view = client._session.router.view
    return Counter(view.primary(each.partition).id for each in ids)


def command(nodes: Cluster, *words: str) -> str:
    done = CliRunner().invoke(cli, [*words, "-s", ",".join(nodes.servers)])
    assert done.exit_code == 0, done.output
    return done.output


def stub(nodes: Cluster, number: int) -> weft_pb2_grpc.QueueStub:
    channel = grpc.insecure_channel(nodes.node(number).grpc)
    return weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]


def take_all(queue: weft.Queue) -> list[bytes]:
    bodies: list[bytes] = []
    while batch := queue.pop_many(100):
        bodies += [message.body for message in batch]
        queue.ack_many(batch)
    return bodies


def test_the_pushes_of_a_client_stay_on_one_node(nodes: Cluster, queue: weft.Queue) -> None:
    for number in range(3):
        with weft.connect([nodes.node(number).grpc]) as client:
            own = client.queue(queue.name)
            own.push(b"first")  # tells the client which kind the queue is
            ids = [own.push(b"x") for _ in range(50)] + own.push_many([b"y"] * 50)
            assert holders(client, ids) == {nodes.node(number).id: 100}
    assert len(take_all(queue)) == 303


def test_nothing_there_is_said_only_after_all_nodes(nodes: Cluster, client: weft.Client) -> None:
    queue = made(client, max_hops=1)
    for number in range(3):
        with weft.connect([nodes.node(number).grpc]) as other:
            other.queue(queue.name).push_many([b"%d" % number])
    assert len(take_all(queue)) == 3
    began = time.monotonic()
    assert queue.pop(wait_ms=300) is None
    assert 0.25 < time.monotonic() - began < 5


def test_a_waiting_consumer_gets_a_message_of_any_node(nodes: Cluster, queue: weft.Queue) -> None:
    """A wait at one node ends after a second, whichever node the message is on."""
    for number in range(3):
        with ThreadPoolExecutor(1) as pool, weft.connect([nodes.node(number).grpc]) as other:
            waiting = pool.submit(queue.pop, wait_ms=30_000)
            time.sleep(0.05)
            other.queue(queue.name).push(b"%d" % number)
            message = waiting.result()
            assert message is not None
            assert message.body == b"%d" % number
            message.ack()


def test_a_full_buffer_blocks_its_own_producers_alone(nodes: Cluster, client: weft.Client) -> None:
    queue = made(client, buffers=5)
    with (
        weft.connect([nodes.node(0).grpc]) as near,
        weft.connect([nodes.node(1).grpc]) as other,
    ):
        blocked = near.queue(queue.name)
        while True:
            try:
                blocked.push(b"x", timeout_ms=3_000)
            except weft.QueueFull:
                break
        held = client.queue(queue.name).stats().ready
        assert 5 <= held <= 10, "the first push of a client may go to any node"
        for _ in range(4):  # another node's buffer has room
            other.queue(queue.name).push(b"y", timeout_ms=60_000)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(blocked.push, b"late", timeout_ms=60_000)
            time.sleep(0.2)
            assert not waiting.done()
            bodies = take_all(queue)
            waiting.result()
        bodies += take_all(queue)
    assert sorted(bodies) == sorted([b"x"] * held + [b"y"] * 4 + [b"late"])
    stats = queue.stats()
    assert stats.full_buffers > 0
    assert stats.room_wait_us > 0


def test_producers_and_consumers_move_everything_through_small_buffers(
    nodes: Cluster, client: weft.Client
) -> None:
    queue = made(client, buffers=20)
    total = 600

    def produce(number: int) -> None:
        with (
            weft.connect([nodes.node(number).grpc]) as own,
            own.queue(queue.name).producer(batch_count=10) as producer,
        ):
            for index in range(total // 3):
                producer.send(b"%d.%d" % (number, index))

    seen: Counter[bytes] = Counter()
    with ThreadPoolExecutor(3) as pool:
        made_all = [pool.submit(produce, number) for number in range(3)]
        for message in queue.consume(prefetch=10):
            seen[message.body] += 1
            message.ack()
            if len(seen) == total:
                break
        for each in made_all:
            each.result()
    assert set(seen.values()) == {1}
    stats = queue.stats()
    assert stats.probes > 0


def test_workers_and_nacks(queue: weft.Queue) -> None:
    queue.push_many([b"%d" % number for number in range(40)])
    failed, done = set[bytes](), Counter[bytes]()

    def handle(message: weft.Message) -> None:
        if message.body not in failed and len(failed) < 5:
            failed.add(message.body)
            raise ValueError("first attempt")
        done[message.body] += 1

    queue.work(
        handle, concurrency=2, idle_ms=3_000,
        retry=weft.Retry(attempts=3, backoff=weft.expo(0.01, 0.02)),
    )  # fmt: skip
    assert set(done.values()) == {1}


def test_plain_grpc_clients(nodes: Cluster, client: weft.Client) -> None:
    queue = made(client, buffers=3)
    plain = [stub(nodes, number) for number in range(3)]
    ids: list[weft.MessageId] = []
    for number, each in enumerate(plain):
        request = pb.PushRequest(queue=queue.name, messages=[pb.OutMessage(body=b"%d" % number)])
        own = [weft.MessageId.parse(each.Push(request).ids[0]) for _ in range(3)]
        assert holders(client, own) == {nodes.node(number).id: 3}
        ids += own
        with pytest.raises(grpc.RpcError) as refused:
            each.Push(request)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not plain[0].Room(pb.RoomRequest(queue=queue.name, wait_ms=50)).room
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(plain[0].Room, pb.RoomRequest(queue=queue.name, wait_ms=30_000))
        time.sleep(0.1)
        # One node's client reaches the messages of all nodes, and then knows that there are none.
        popped = [
            message
            for _ in range(9)
            for message in plain[2].Pop(pb.PopRequest(queue=queue.name, limit=1)).messages
        ]
        assert sorted(message.body for message in popped) == sorted([b"0", b"1", b"2"] * 3)
        assert not plain[2].Pop(pb.PopRequest(queue=queue.name, wait_ms=200)).messages
        granted = waiting.result()
    assert granted.room
    plain[0].Push(
        pb.PushRequest(
            queue=queue.name, messages=[pb.OutMessage(body=b"named")],
            producer=granted.producer, batch=granted.batch,
        )
    )  # fmt: skip
    answer = plain[1].Pop(pb.PopRequest(queue=queue.name, wait_ms=10_000))
    assert [message.body for message in answer.messages] == [b"named"]
    receipts = [each.receipt for each in (*popped, *answer.messages)]
    assert plain[1].Ack(pb.AckRequest(queue=queue.name, receipts=receipts)).done == 10
    assert queue.stats().acked == 10


def test_bad_calls_of_plain_clients(nodes: Cluster, client: weft.Client) -> None:
    client.create_queue("plain")
    plain = stub(nodes, 1)
    settings = pb.Settings(kind="stochastic")
    for bad in (
        pb.Settings(kind="odd"), pb.Settings(buffers=5), pb.Settings(kind="stochastic", buffers=0),
        pb.Settings(kind="stochastic", max_hops=0), pb.Settings(kind="stochastic", ordered=True),
        pb.Settings(kind="stochastic", access="far"),
    ):  # fmt: skip
        with pytest.raises(grpc.RpcError) as refused:
            plain.CreateQueue(pb.CreateQueueRequest(queue="bad", settings=bad))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError) as refused:
        plain.Room(pb.RoomRequest(queue="plain"))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "bad" not in [each.name for each in client.list_queues()]
    plain.CreateQueue(pb.CreateQueueRequest(queue="good", settings=settings))
    found = plain.DescribeQueue(pb.DescribeQueueRequest(queue="good")).settings
    assert (found.kind, found.buffers, found.max_hops, found.access) == (
        "stochastic", 1000, 3, "even",
    )  # fmt: skip


def test_settings_of_the_python_client(client: weft.Client) -> None:
    for bad in (
        {"kind": "odd"}, {"buffers": 5}, {"kind": "stochastic", "buffers": 0},
        {"kind": "stochastic", "max_hops": 0}, {"kind": "stochastic", "grouped": True},
        {"kind": "stochastic", "access": "far"}, {"kind": 5},
        {"kind": "stochastic", "buffers": "9"},
    ):  # fmt: skip
        with pytest.raises(weft.InvalidArgument):
            client.create_queue("bad", **bad)
    queue = made(client)
    client.update_queue(queue.name, buffers=7, max_hops=2, access="near")
    found = queue.stats().settings
    assert (found.buffers, found.max_hops, found.access) == (7, 2, "near")
    with pytest.raises(weft.InvalidArgument, match="cannot be changed"):
        client.update_queue(queue.name, kind="", buffers=0, max_hops=0, access="")


def test_purge_peek_cancel_and_subscriptions(client: weft.Client) -> None:
    queue = made(client)
    ids = queue.push_many([b"a", b"b", b"c"])
    assert len(queue.peek(10)) == 3
    assert queue.cancel(ids[0])
    subscription = client.subscription(queue.name, "pipeline")
    subscription.open()
    reservation = subscription.reserve(1)
    assert reservation is not None
    assert reservation.messages == 2
    subscription.ack_through(reservation.number)
    queue.push_many([b"x"] * 5)
    assert queue.purge() == 5
    assert queue.pop() is None


def test_the_command_line(nodes: Cluster) -> None:
    command(
        nodes, "queue", "create", "typed", "--kind", "stochastic", "--buffers", "10",
        "--max-hops", "2", "--access", "near",
    )  # fmt: skip
    command(nodes, "push", "typed", "body")
    assert command(nodes, "pop", "typed").strip() == "body"
    text = command(nodes, "queue", "show", "typed")
    assert "stochastic" in text
    assert "probes per find" in text
    found = json.loads(command(nodes, "queue", "show", "typed", "--json"))
    assert found["settings"]["max_hops"] == 2
    assert found["probes"] > 0
    channel = grpc.insecure_channel(nodes.node(0).grpc)
    cluster_stub = weft_pb2_grpc.ClusterStub(channel)  # type: ignore[no-untyped-call]
    assert {node.zone for node in cluster_stub.View(pb.ViewRequest()).nodes} == {"here"}


def test_a_running_queue_is_compared_and_advised(nodes: Cluster, client: weft.Client) -> None:
    """The figures of real nodes depend on the machine: only their form is checked."""
    queue = made(client, buffers=50)
    end = threading.Event()

    def consume() -> None:
        with weft.connect(nodes.servers) as own:
            while not end.is_set():
                message = own.queue(queue.name).pop(wait_ms=200)
                if message is not None:
                    message.ack()

    def produce() -> None:
        with weft.connect([nodes.node(0).grpc]) as own:
            while not end.is_set():
                own.queue(queue.name).push(b"x")

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(consume), pool.submit(consume), pool.submit(produce)]
        try:
            words = ("--consumers", "2", "--seconds", "2", "--objects", "2000", "--json")
            found = json.loads(command(nodes, "model", "compare", queue.name, *words))
            advice = json.loads(command(nodes, "model", "advise", queue.name, *words))
            text = command(nodes, "model", "compare", queue.name, *words[:-1])
        finally:
            end.set()
        for each in running:
            each.result()
    assert found["figures"]["nodes"] == 3
    assert found["figures"]["delivered"] > 0
    assert found["simulation"]["probes"] >= 1
    assert 1 <= advice["queues"][0]["max_hops"] <= 8
    assert advice["queues"][0]["then"]["throughput"] > 0
    assert "probes per request" in text
    client.create_queue("even")
    done = CliRunner().invoke(
        cli, ["model", "compare", "even", "--consumers", "1", "-s", ",".join(nodes.servers)]
    )
    assert done.exit_code == 2
    assert "not a stochastic queue" in done.output


def test_a_killed_node_loses_nothing_and_blocks_nobody(nodes: Cluster) -> None:
    with weft.connect(nodes.servers) as client:
        queue = made(client, lease_ms=1_000)
        for number in range(3):
            with weft.connect([nodes.node(number).grpc]) as own:
                own.queue(queue.name).push_many([b"%d.%d" % (number, i) for i in range(20)])
        nodes.kill(2)
        try:
            seen: Counter[bytes] = Counter()
            deadline = time.monotonic() + 90
            while len(seen) < 60 and time.monotonic() < deadline:
                batch = queue.pop_many(7, wait_ms=2_000)
                seen.update(message.body for message in batch)
                queue.ack_many(batch)
            assert len(seen) == 60
            queue.push(b"after")
            message = queue.pop(wait_ms=30_000)
            assert message is not None
            assert message.body == b"after"
        finally:
            nodes.start(2)
