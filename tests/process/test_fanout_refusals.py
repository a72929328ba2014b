"""Bad input of groups, topics, multicasts and calls over every interface, on three nodes: a clear
error with a code, and nothing stored. `tests/engine/test_fanout_refusals.py` has the single node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import grpc
import pytest
from click.testing import CliRunner

import weft
from weft.client.cli.main import cli
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process
QUEUES = ("plain", "other", "fed", "groups")
MANY = [f"q{number}" for number in range(257)]
ONE = [pb.OutMessage(body=b"x")]


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster(nodes=3) as nodes, nodes.client() as client:
        for name in ("plain", "other", "fed"):
            client.create_queue(name)
        client.create_queue("groups", grouped=True)
        client.create_topic("t")
        client.bind("t", "fed", headers={"k": "v"})
        yield nodes


@pytest.fixture
def client(three: Cluster) -> Iterator[weft.Client]:
    with weft.connect(three.servers) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_is_stored(client: weft.Client) -> Iterator[None]:
    def state() -> object:
        counts = {
            each.name: (each.ready, each.leased, each.pushed) for each in client.list_queues()
        }
        return counts, client.list_topics()

    before = state()
    yield
    assert state() == before


PYTHON: dict[str, tuple[str, str, Callable[[weft.Client], object]]] = {
    "group": (
        "INVALID_ARGUMENT", "plain is not grouped",
        lambda client: client.queue("plain").push(b"x", group="a"),
    ),
    "no group": (
        "INVALID_ARGUMENT", "groups is grouped", lambda client: client.queue("groups").push(b"x"),
    ),
    "grouped and ordered": (
        "INVALID_ARGUMENT", "not both",
        lambda client: client.create_queue("new", grouped=True, ordered=True),
    ),
    "too many queues": (
        "INVALID_ARGUMENT", "number of queues must be 1 to 256, not 257",
        lambda client: client.multicast(b"x", queues=MANY),
    ),
    "named twice": (
        "INVALID_ARGUMENT", "queues names a queue twice",
        lambda client: client.multicast(b"x", queues=["plain", "other", "plain"]),
    ),
    "queues as one text": (
        "INVALID_ARGUMENT", "queues", lambda client: client.multicast(b"x", queues="plain"),
    ),
    "unknown queue": (
        "QUEUE_NOT_FOUND", "nowhere",
        lambda client: client.multicast(b"x", queues=["plain", "nowhere"]),
    ),
    "unknown topic": ("TOPIC_NOT_FOUND", "nothing", lambda client: client.bind("nothing", "plain")),
    "unknown bound queue": (
        "QUEUE_NOT_FOUND", "nowhere", lambda client: client.bind("t", "nowhere"),
    ),
    "push to an unknown topic": (
        "TOPIC_NOT_FOUND", "nothing", lambda client: client.topic("nothing").push(b"x"),
    ),
    "delete of a fed queue": (
        "QUEUE_IN_USE", "fed is bound to the topic t", lambda client: client.delete_queue("fed"),
    ),
    "call of an unknown queue": (
        "QUEUE_NOT_FOUND", "nowhere", lambda client: client.queue("nowhere").call(b"x"),
    ),
    "call of a topic": (
        "QUEUE_NOT_FOUND", "t is a topic", lambda client: client.queue("t").call(b"x"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PYTHON)
def test_the_python_client(three: Cluster, what: str) -> None:
    code, words, act = PYTHON[what]
    with (  # a client of its own: its reply queue goes with it
        weft.connect(three.servers, timeout_ms=20_000) as own,
        pytest.raises(weft.WeftError, match=words) as caught,
    ):
        act(own)
    assert caught.value.code == code


GRPC: dict[str, tuple[str, str, str, object]] = {
    "group": (
        "Queue.Push", "INVALID_ARGUMENT", "plain is not grouped",
        pb.PushRequest(queue="plain", messages=ONE, group="a"),
    ),
    "grouped and ordered": (
        "Queue.CreateQueue", "INVALID_ARGUMENT", "not both",
        pb.CreateQueueRequest(queue="new", settings=pb.Settings(grouped=True, ordered=True)),
    ),
    "too many queues": (
        "Queue.Multicast", "INVALID_ARGUMENT", "queues must be 1 to 256, not 257",
        pb.MulticastRequest(queues=MANY, messages=ONE),
    ),
    "named twice": (
        "Queue.Multicast", "INVALID_ARGUMENT", "named twice",
        pb.MulticastRequest(queues=["plain", "plain"], messages=ONE),
    ),
    "unknown queue": (
        "Queue.Multicast", "QUEUE_NOT_FOUND", "nowhere",
        pb.MulticastRequest(queues=["plain", "nowhere"], messages=ONE),
    ),
    "unknown topic": (
        "Topic.Bind", "TOPIC_NOT_FOUND", "nothing", pb.BindRequest(topic="nothing", queue="plain"),
    ),
    "unknown bound queue": (
        "Topic.Bind", "QUEUE_NOT_FOUND", "nowhere", pb.BindRequest(topic="t", queue="nowhere"),
    ),
    "delete of a fed queue": (
        "Queue.DeleteQueue", "QUEUE_IN_USE", "topic t", pb.DeleteQueueRequest(queue="fed"),
    ),
    "answer to a reply queue that is gone": (
        "Queue.Push", "QUEUE_NOT_FOUND", "reply.gone",
        pb.PushRequest(queue="reply.gone", messages=ONE),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", GRPC)
def test_grpc_at_every_node(three: Cluster, what: str) -> None:
    method, code, words, request = GRPC[what]
    service, _, name = method.partition(".")
    for server in three.servers:
        with grpc.insecure_channel(server) as channel:
            stub = getattr(weft_pb2_grpc, f"{service}Stub")(channel)
            with pytest.raises(grpc.RpcError) as caught:
                getattr(stub, name)(request, timeout=60)
        assert isinstance(caught.value, grpc.Call)
        assert dict(caught.value.trailing_metadata() or ())["weft-code"] == code
        assert words in (caught.value.details() or "")


COMMANDS: dict[str, tuple[str, str, list[str]]] = {
    "group": ("INVALID_ARGUMENT", "plain is not grouped", ["push", "plain", "x", "--group", "a"]),
    "grouped and ordered": (
        "INVALID_ARGUMENT", "not both", ["queue", "create", "new", "--grouped", "--ordered"],
    ),
    "too many queues": (
        "INVALID_ARGUMENT", "1 to 256, not 257", ["multicast", ",".join(MANY), "x"],
    ),
    "named twice": ("INVALID_ARGUMENT", "twice", ["multicast", "plain,plain", "x"]),
    "unknown queue": ("QUEUE_NOT_FOUND", "nowhere", ["multicast", "plain,nowhere", "x"]),
    "unknown topic": ("TOPIC_NOT_FOUND", "nothing", ["topic", "bind", "nothing", "plain"]),
    "unknown bound queue": ("QUEUE_NOT_FOUND", "nowhere", ["topic", "bind", "t", "nowhere"]),
    "delete of a fed queue": ("QUEUE_IN_USE", "topic t", ["queue", "delete", "fed", "--yes"]),
    "call of an unknown queue": ("QUEUE_NOT_FOUND", "nowhere", ["call", "nowhere", "x"]),
}  # fmt: skip


@pytest.mark.parametrize("what", COMMANDS)
def test_the_command_line(three: Cluster, what: str) -> None:
    code, words, command = COMMANDS[what]
    done = CliRunner().invoke(cli, [*command, "--json", "-s", ",".join(three.servers)])
    assert done.exit_code != 0
    error = json.loads(done.stderr)["error"]
    assert error["code"] == code
    assert words in error["message"]
