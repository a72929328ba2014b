"""Message groups against real nodes: the client, the producer, workers, and kills."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

import weft
from tests import group_load
from tests.group_order import GroupOrder
from weft.client.cli.main import cli
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process
_names = count()
SOON = weft.expo(0.01, 0.02)


@pytest.fixture
def client(node: Cluster) -> Iterator[weft.Client]:
    with node.client() as client:
        yield client


@pytest.fixture
def queue(client: weft.Client) -> weft.Queue:
    name = f"groups-{next(_names)}"
    client.create_queue(name, lease_ms=5_000, grouped=True)
    return client.queue(name)


def command(node: Cluster, *words: str) -> str:
    done = CliRunner().invoke(cli, [*words, "-s", ",".join(node.servers)])
    assert done.exit_code == 0, done.output
    return done.output


def take_all(queue: weft.Queue) -> dict[str | None, list[bytes]]:
    found: dict[str | None, list[bytes]] = defaultdict(list)
    while batch := queue.pop_many(100):
        for message in batch:
            found[message.group].append(message.body)
        queue.ack_many(batch)
    return found


def test_each_group_is_delivered_in_order(queue: weft.Queue) -> None:
    queue.push(b"0", group="a")
    queue.push(b"1", group="a")
    queue.push(b"0", group="b")
    first = queue.pop()
    second = queue.pop()
    assert first is not None
    assert second is not None
    assert (first.group, first.body, second.group) == ("a", b"0", "b")
    assert queue.pop() is None, "a/0 is leased"
    first.nack(delay_ms=300)
    assert queue.pop() is None, "a/0 is delayed"
    again = queue.pop_many(5, wait_ms=10_000)
    assert [(each.group, each.body) for each in again] == [("a", b"0"), ("a", b"1")]


def test_push_many_returns_the_ids_in_the_order_of_the_bodies(queue: weft.Queue) -> None:
    groups = [f"g{number % 40}" for number in range(400)]
    bodies = [b"%d" % number for number in range(400)]
    ids = queue.push_many(bodies, groups=groups)
    assert len(set(ids)) == 400
    seen: dict[weft.MessageId, bytes] = {}
    while batch := queue.pop_many(100):
        seen |= {message.id: message.body for message in batch}
        queue.ack_many(batch)
    assert [seen[each] for each in ids] == bodies


def test_push_many_of_a_generator_and_of_a_group_larger_than_a_batch(queue: weft.Queue) -> None:
    size = 20_000
    ids = queue.push_many(
        (b"%d" % number for number in range(size)), groups=("ab"[n % 2] for n in range(size))
    )
    assert len(ids) == size
    found = take_all(queue)
    for place, group in enumerate("ab"):
        assert found[group] == [b"%d" % number for number in range(place, size, 2)]


def test_a_producer_keeps_the_order_of_each_group(queue: weft.Queue) -> None:
    with queue.producer(batch_count=5, linger_ms=1) as producer:
        for number in range(600):
            producer.send(b"%d" % number, group=f"g{number % 7}")
    found = take_all(queue)
    for group in range(7):
        assert found[f"g{group}"] == [b"%d" % number for number in range(group, 600, 7)]


def test_a_consumer_does_not_hoard_groups(client: weft.Client, queue: weft.Queue) -> None:
    queue.push_many([b"x"] * 100, groups=[f"g{number}" for number in range(100)])
    with queue.consume(prefetch=1000) as consumer:
        first = next(consumer)
        assert first.group == "g0"
        others = [message.group for message in client.queue(queue.name).pop_many(200)]
        assert len(others) > 50, "one consumer holds more than half of the groups"


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_worker_handles_each_group_in_order_through_failures(
    queue: weft.Queue, concurrency: int
) -> None:
    """A message that fails is handled again before the messages behind it."""
    queue.push_many(
        [b"%d" % (number // 5) for number in range(50)],
        groups=[f"g{number % 5}" for number in range(50)],
    )
    done: dict[str | None, list[int]] = defaultdict(list)
    running: set[str | None] = set()
    lock = threading.Lock()

    def handle(message: weft.Message) -> None:
        with lock:
            assert message.group not in running, "two handlers of one group"
            running.add(message.group)
        try:
            time.sleep(0.002)
            if message.body in (b"2", b"6") and message.deliveries == 1:
                raise RuntimeError("the first attempt fails")
            done[message.group].append(int(message.body))
        finally:
            with lock:
                running.discard(message.group)

    errors: list[BaseException] = []
    queue.work(
        handle, concurrency=concurrency, retry=weft.Retry(backoff=SOON), idle_ms=2_000,
        on_error=lambda _, error: errors.append(error),
    )  # fmt: skip
    assert {str(error) for error in errors} == {"the first attempt fails"}
    assert done == {f"g{group}": list(range(10)) for group in range(5)}


def test_bad_input_is_refused_and_nothing_is_stored(client: weft.Client, queue: weft.Queue) -> None:
    client.create_queue("plain")
    plain = client.queue("plain")
    refused: list[tuple[str, object]] = [
        ("is not grouped", lambda: plain.push(b"x", group="a")),
        ("is not grouped", lambda: plain.push_many([b"x"], groups=["a"])),
        ("is grouped: push each", lambda: queue.push(b"x")),
        ("is grouped: push each", lambda: queue.push_many([b"x", b"y"])),
        ("1 to 256 bytes, not 257", lambda: queue.push(b"x", group="g" * 257)),
        ("1 to 256 bytes, not 0", lambda: queue.push(b"x", group="")),
        ("group must be a text", lambda: queue.push(b"x", group=7)),  # type: ignore[arg-type]
        ("each of groups must be a text", lambda: queue.push_many([b"x"], groups=[None])),  # type: ignore[list-item]
        ("groups has 1 entries for 2", lambda: queue.push_many([b"x", b"y"], groups=["a"])),
        ("has no dedup key", lambda: queue.push_many([b"x"], groups=["a"], dedup_keys=["k"])),
        ("no dedup keys", lambda: queue.push(b"x", group="a", dedup_key="k")),
        ("neither", lambda: queue.push(b"x", group="a", delay_ms=5)),
        ("neither", lambda: queue.push_many([b"x"], groups=["a"], priority=1)),
        ("not both", lambda: client.create_queue("new", grouped=True, ordered=True)),
        ("cannot be changed", lambda: client.update_queue(queue.name, grouped=False)),
    ]  # fmt: skip
    for words, act in refused:
        with pytest.raises(weft.InvalidArgument, match=words):
            act()  # type: ignore[operator]
    assert queue.stats().ready == plain.stats().ready == 0


def test_a_backup_keeps_the_groups(
    node: Cluster, client: weft.Client, queue: weft.Queue, tmp_path: Path
) -> None:
    queue.push_many([b"0", b"1", b"2"], groups=["a", "b", "a"])
    file = str(tmp_path / "backup.weft")
    command(node, "backup", file, "--queue", queue.name)
    client.delete_queue(queue.name)
    command(node, "restore", file, "--queue", queue.name)
    first = queue.pop()
    assert first is not None
    assert first.group == "a"
    assert [each.body for each in queue.pop_many(5)] == [b"1"]
    first.ack()
    assert [each.body for each in queue.pop_many(5)] == [b"2"]


def test_the_command_line(node: Cluster) -> None:
    assert "created cli-groups" in command(node, "queue", "create", "cli-groups", "--grouped")
    assert "grouped" in command(node, "queue", "show", "cli-groups")
    command(node, "push", "cli-groups", "one", "--group", "a")
    shown = json.loads(command(node, "pop", "cli-groups", "--json"))
    assert shown["group"] == "a"


def test_grpc(node: Cluster, queue: weft.Queue) -> None:
    with grpc.insecure_channel(node.servers[0]) as channel:
        stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        for number in range(3):
            out = pb.OutMessage(body=b"%d" % number)
            stub.Push(pb.PushRequest(queue=queue.name, messages=[out], group="a"))
        first = stub.Pop(pb.PopRequest(queue=queue.name, limit=2)).messages
        assert [(each.body, each.group) for each in first] == [(b"0", "a"), (b"1", "a")]
        assert not stub.Pop(pb.PopRequest(queue=queue.name, limit=2)).messages
        stub.Ack(pb.AckRequest(queue=queue.name, receipts=[each.receipt for each in first]))
        assert [m.body for m in stub.Pop(pb.PopRequest(queue=queue.name, limit=2)).messages] == [
            b"2"
        ]
        with pytest.raises(grpc.RpcError, match="push each message with a group"):
            stub.Push(pb.PushRequest(queue=queue.name, messages=[pb.OutMessage(body=b"x")]))
        settings = pb.Settings(grouped=True)
        made = stub.CreateQueue(pb.CreateQueueRequest(queue="from-grpc", settings=settings))
        assert made.created
        both = pb.Settings(grouped=True, ordered=True)
        with pytest.raises(grpc.RpcError, match="not both"):
            stub.CreateQueue(pb.CreateQueueRequest(queue="both", settings=both))


# --- three nodes and kills ----------------------------------------------------------------------

GROUPS, KILLS = 200, 3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_break_no_group() -> None:
    order = GroupOrder()
    with cluster(3) as nodes:

        def disturb() -> None:
            for number in range(KILLS):
                time.sleep(2)
                nodes.kill(number % 3)
                time.sleep(3)
                nodes.start(number % 3)
                nodes.settled()

        pushed = asyncio.run(group_load.run(nodes.servers, "q", GROUPS, order, disturb))
    assert not order.violations, order.violations[:5]
    assert order.delivered >= order.settled == pushed > GROUPS
