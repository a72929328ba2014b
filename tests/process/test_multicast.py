"""Multicasts and topics against real nodes: both clients, gRPC, the command line, and a kill."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
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
def three() -> Iterator[Cluster]:
    with cluster(nodes=3) as nodes:
        yield nodes


@pytest.fixture
def client(three: Cluster) -> Iterator[weft.Client]:
    with three.client() as client:
        yield client


def made(client: weft.Client, number: int, **settings: bool) -> list[str]:
    names = [f"fan-{next(_names)}" for _ in range(number)]
    for name in names:
        client.create_queue(name, **settings)  # type: ignore[arg-type]
    return names


def taken(
    client: weft.Client, queue: str, *, least: int = 0, wait_ms: int = 0
) -> dict[weft.MessageId, bytes]:
    """Everything in the queue, waiting for `least` messages.

    A partition may be between two primaries, so that a pop without a wait misses its messages.
    """
    found: dict[weft.MessageId, bytes] = {}
    while batch := client.queue(queue).pop_many(
        100, wait_ms=60_000 if len(found) < least else wait_ms
    ):
        found |= {message.id: message.body for message in batch}
        client.queue(queue).ack_many(batch)
    return found


def command(nodes: Cluster, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [*words, "-s", ",".join(nodes.servers)])
    assert done.exit_code == code, done.output
    return done.output


def test_every_queue_gets_the_message_under_its_own_id(client: weft.Client) -> None:
    queues = made(client, 4)
    expected: dict[str, dict[weft.MessageId, bytes]] = {queue: {} for queue in queues}
    for number in range(20):
        body = b"%d" % number
        for queue, each in client.multicast(body, queues=queues, headers={"k": "v"}).items():
            expected[queue][each] = body
    assert {queue: taken(client, queue, least=20) for queue in queues} == expected
    assert [client.queue(queue).stats().bytes for queue in queues] == [0] * 4


def test_ordered_and_grouped_queues_keep_their_order(client: weft.Client) -> None:
    (plain,) = made(client, 1)
    (ordered,) = made(client, 1, ordered=True)
    (grouped,) = made(client, 1, grouped=True)
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        client.multicast(body, queues=[plain, ordered])
        client.multicast(body, queues=[plain, grouped], conflict_key="customer-7")
    assert list(taken(client, ordered, least=20).values()) == bodies
    assert list(taken(client, grouped, least=20).values()) == bodies
    assert sorted(taken(client, plain, least=40).values()) == sorted(bodies * 2)


def test_one_refusing_queue_refuses_all(client: weft.Client) -> None:
    (plain,) = made(client, 1)
    full = f"fan-{next(_names)}"
    client.create_queue(full, max_messages=1, ordered=True)  # on one node, with the whole limit
    client.queue(full).push(b"")
    refusals: list[tuple[list[str], type[weft.WeftError]]] = [
        ([plain, full], weft.QueueFull),
        ([plain, "nowhere"], weft.QueueNotFound),
        ([plain, plain], weft.InvalidArgument),
        ([], weft.InvalidArgument),
    ]
    for queues, error in refusals:
        for _ in range(4):  # on several nodes
            # A full queue is asked again until the deadline, which may cut off the last answer.
            refused = (error, weft.DeadlineExceeded) if error is weft.QueueFull else error
            with pytest.raises(refused):
                client.multicast(b"x", queues=queues, timeout_ms=500)
    assert taken(client, plain) == {}


def test_a_topic_feeds_the_queues_whose_filter_matches(client: weft.Client) -> None:
    everything, europe, euro = made(client, 3)
    name = f"prices-{next(_names)}"
    assert client.create_topic(name)
    assert not client.create_topic(name)
    topic = client.topic(name)
    assert topic.push(b"nobody") == {}
    assert client.bind(name, everything)
    assert client.bind(name, europe, headers={"region": "us"})
    assert not client.bind(name, europe, headers={"region": "eu"}), "replaced"
    assert client.bind(name, euro, headers={"region": "eu"}, prefixes={"symbol": "EUR"})
    bodies = [b"0", b"1", b"2", b"3"]
    headers = [
        None,
        {"region": "eu"},
        {"region": "eu", "symbol": "EURUSD"},
        {"region": "us", "symbol": "EURUSD"},
    ]
    ids = topic.push_many(bodies, headers=headers)
    assert [sorted(each) for each in ids] == [
        [everything],
        sorted([everything, europe]),
        sorted([everything, europe, euro]),
        [everything],
    ]
    for queue, expected in ((everything, bodies), (europe, bodies[1:3]), (euro, bodies[2:3])):
        found = taken(client, queue, least=len(expected))
        assert list(found.values()) == expected
        assert list(found) == [each[queue] for each in ids if queue in each]
    assert client.queue(euro).stats().topics == [name]
    with pytest.raises(weft.QueueInUse):
        client.delete_queue(euro)
    assert client.unbind(name, euro)
    assert not client.unbind(name, euro)
    client.delete_queue(euro)
    assert topic.push(b"4").keys() == {everything}
    assert [each.name for each in client.list_topics(name)] == [name]
    client.delete_topic(name)
    with pytest.raises(weft.TopicNotFound):
        topic.push(b"5")


def test_a_push_after_a_bind_reaches_the_queue_on_every_node(three: Cluster) -> None:
    with three.client() as one, three.client() as other:
        name = f"t-{next(_names)}"
        one.create_topic(name)
        bound: list[str] = []
        for queue in made(one, 5):
            one.bind(name, queue)
            bound.append(queue)
            for _ in range(5):
                assert list(other.topic(name).push(b"x")) == bound


def test_many_messages_to_many_queues_are_split(client: weft.Client) -> None:
    name = f"t-{next(_names)}"
    client.create_topic(name)
    queues = made(client, 3)
    for queue in queues:
        client.bind(name, queue)
    bodies = [b"%d" % number for number in range(3000)]
    ids = client.topic(name).push_many(bodies)
    for queue in queues:
        assert taken(client, queue, least=len(bodies)) == {
            each[queue]: body for each, body in zip(ids, bodies, strict=True)
        }


def test_the_asyncio_client_has_the_same(three: Cluster) -> None:
    async def main() -> None:
        async with weft.aio.connect(three.servers) as client:
            for queue in ("aio-a", "aio-b"):
                await client.create_queue(queue)
            ids = await client.multicast(b"x", queues=["aio-a", "aio-b"])
            assert list(ids) == ["aio-a", "aio-b"]
            await client.create_topic("aio-t")
            await client.bind("aio-t", "aio-a")
            assert list(await client.topic("aio-t").push(b"y")) == ["aio-a"]
            found = await client.queue("aio-a").pop_many(10, wait_ms=5000)
            assert {message.body for message in found} <= {b"x", b"y"}

    asyncio.run(main())


def test_grpc_multicasts_and_topics(three: Cluster, client: weft.Client) -> None:
    one, two = made(client, 2)
    for server in three.servers:
        with grpc.insecure_channel(server) as channel:
            queues = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
            topics = weft_pb2_grpc.TopicStub(channel)  # type: ignore[no-untyped-call]
            messages = [pb.OutMessage(body=b"0"), pb.OutMessage(body=b"1", headers={"k": "v"})]
            request = pb.MulticastRequest(
                queues=[one, two], messages=messages, producer=1, batch=hash(server) % 1000
            )
            first = queues.Multicast(request)
            again = queues.Multicast(request)
            assert [copy.duplicate for copy in again.copies] == [True, True]
            assert [list(copy.ids) for copy in first.copies] == [
                list(copy.ids) for copy in again.copies
            ]
            topic = f"grpc-{next(_names)}"
            assert topics.Create(pb.CreateTopicRequest(topic=topic)).created
            topics.Bind(pb.BindRequest(topic=topic, queue=one))
            topics.Bind(pb.BindRequest(topic=topic, queue=two, headers={"k": "v"}))
            done = topics.Push(pb.PushTopicRequest(topic=topic, messages=messages))
            assert [(copy.queue, list(copy.indexes)) for copy in done.copies] == [
                (one, []),
                (two, [1]),
            ]
            assert [each.queue for each in topics.Describe(
                pb.DescribeTopicRequest(topic=topic)).bindings] == [one, two]  # fmt: skip
            assert topic in [
                each.name for each in topics.List(pb.ListTopicsRequest(prefix="grpc-")).topics
            ]
            assert topics.Unbind(pb.UnbindRequest(topic=topic, queue=two)).removed
            topics.Delete(pb.DeleteTopicRequest(topic=topic))
            with pytest.raises(grpc.RpcError) as refused:
                topics.Push(pb.PushTopicRequest(topic=topic, messages=messages))
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            assert sorted(taken(client, one, least=4).values()) == [b"0", b"0", b"1", b"1"]
            assert sorted(taken(client, two, least=3).values()) == [b"0", b"1", b"1"]


def test_the_commands(three: Cluster, client: weft.Client) -> None:
    one, two = made(client, 2)
    topic = f"cli-{next(_names)}"
    assert command(three, "topic", "create", topic) == f"created {topic}\n"
    assert command(three, "topic", "bind", topic, one) == f"bound {one} to {topic}\n"
    command(three, "topic", "bind", topic, two, "-H", "a=b", "--prefix", "c=d")
    shown = json.loads(command(three, "topic", "show", topic, "--json"))
    assert shown["bindings"][1] == {"queue": two, "headers": {"a": "b"}, "prefixes": {"c": "d"}}
    assert "a=b, c=d..." in command(three, "topic", "show", topic)
    assert topic in command(three, "topic", "list")
    assert topic in command(three, "queue", "show", one)
    ids = json.loads(command(three, "multicast", f"{one},{two}", "hello", "--json"))["ids"]
    assert list(ids) == [one, two]
    assert "hello" in command(three, "pop", two)
    pushed = json.loads(command(three, "topic", "push", topic, "news", "--json"))["ids"]
    assert list(pushed) == [one]
    matching = ("topic", "push", topic, "more", "-H", "a=b", "-H", "c=dd", "--json")
    assert list(json.loads(command(three, *matching))["ids"]) == [one, two]
    assert "more" in command(three, "pop", two)
    assert "does not exist" in command(three, "topic", "push", "nothing", "x", code=1)
    assert "does not exist" in command(three, "topic", "show", "nothing", code=1)
    assert "unbound" in command(three, "topic", "unbind", topic, two)
    assert "deleted" in command(three, "topic", "delete", topic, "--yes")


def test_a_kill_leaves_each_message_in_all_queues_or_in_none() -> None:
    with cluster(nodes=3) as nodes, nodes.client() as client:
        queues = made(client, 3)
        stored: set[bytes] = set()
        tried: set[bytes] = set()
        for number in range(60):
            if number == 20:
                nodes.kill(1)
            if number == 40:
                nodes.start(1)
            body = b"%d" % number
            tried.add(body)
            try:
                client.multicast(body, queues=queues, timeout_ms=20_000)
            except weft.Unavailable:
                continue
            stored.add(body)
        assert len(stored) >= 40
        found = [list(taken(client, queue, wait_ms=5_000).values()) for queue in queues]
        for each in found:
            assert len(each) == len(set(each)), "a message is twice in a queue"
            assert set(each) == set(found[0]), "a message is in some queues only"
        assert stored <= set(found[0]) <= tried


def test_several_ordered_queues_get_concurrent_multicasts_in_one_order(three: Cluster) -> None:
    with three.client() as client:
        ordered = made(client, 3, ordered=True)
        (grouped,) = made(client, 1, grouped=True)
        queues = [*ordered, grouped]

    async def publish(number: int) -> None:
        async with weft.aio.connect(three.servers) as publisher:
            for at in range(10):
                body = b"%d.%d" % (number, at)
                await publisher.multicast(body, queues=queues, conflict_key="k")

    async def publish_all() -> None:
        await asyncio.gather(*(publish(number) for number in range(3)))

    asyncio.run(publish_all())
    with three.client() as client:
        found = [list(taken(client, queue, least=30).values()) for queue in queues]
    assert sorted(found[0]) == sorted(b"%d.%d" % (n, at) for n in range(3) for at in range(10))
    assert found == [found[0]] * 4


def test_the_ids_of_a_multicast_to_ordered_queues_name_its_messages(client: weft.Client) -> None:
    queues = made(client, 3, ordered=True)
    ids = client.multicast(b"x", queues=queues)
    for queue in queues:
        assert list(taken(client, queue, least=1)) == [ids[queue]]
    ids = client.multicast(b"x", queues=queues, headers={"k": "v"})
    message = client.queue(queues[0]).pop(wait_ms=60_000)
    assert message is not None
    assert (message.id, message.headers) == (ids[queues[0]], {"k": "v"})
