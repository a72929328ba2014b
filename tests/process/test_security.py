"""A node with TLS and tokens, as a process: accepted callers, refused callers, nothing lost."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

import weft
from tests.contract.authority import Authority
from tests.process.live_node import LiveNode, NodeEnded
from tests.process.secure_node import Caller, Secure
from weft.client.cli.main import cli
from weft.client.transport.connection import REFUSED, UP
from weft.client.transport.tcp_connection import TcpConnection
from weft.persistence.node_keys import Keys
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc, wire
from weft.server.edges.tls_handshakes import HANDSHAKES_MAX
from weft.server.security import token_file
from weft.server.security.data_key import data_key
from weft.transport import noise

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", params=["native", "grpcio"])
def secure(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secure]:
    made = Secure(tmp_path_factory.mktemp("secure"), grpc_server=request.param)
    with made.node.start():
        with made.stub(made.owner) as owner:
            for name in ("orders", "other"):
                owner.call("CreateQueue", pb.CreateQueueRequest(queue=name))
                assert owner.push(name) == "OK"
        yield made


def ready(secure: Secure, queue: str) -> int:
    with secure.stub(secure.owner) as owner:
        told = owner.call("DescribeQueue", pb.DescribeQueueRequest(queue=queue))
        return int(told.ready)


def test_no_wrong_and_expired_tokens_are_refused_and_nothing_is_lost(secure: Secure) -> None:
    expired = secure.token("late", "push:*", "consume:*", "admin:*", expires=int(time.time()) - 1)
    time.sleep(token_file.POLL_S + 0.1)
    for token in ("", "nonsense", secure.owner[:-1], expired):
        with secure.stub(token) as caller:
            assert caller.push("orders") == "UNAUTHENTICATED"
            assert caller.pop("orders") == "UNAUTHENTICATED"
            purge = pb.PurgeQueueRequest(queue="orders")
            assert caller.code("PurgeQueue", purge) == "UNAUTHENTICATED"
            assert caller.code("ListQueues", pb.ListQueuesRequest()) == "UNAUTHENTICATED"
    assert ready(secure, "orders") == 1


def test_another_queues_token_is_refused(secure: Secure) -> None:
    token = secure.token("other", "push:other", "consume:other")
    time.sleep(token_file.POLL_S + 0.1)
    with secure.stub(token) as caller:
        assert caller.push("orders") == "PERMISSION_DENIED"
        assert caller.pop("orders") == "PERMISSION_DENIED"
        assert caller.code("DeleteQueue", pb.DeleteQueueRequest(queue="other")) == (
            "PERMISSION_DENIED"
        )
        popped = caller.call("Pop", pb.PopRequest(queue="other", limit=1)).messages
        # Its own receipt under another queue's name has no effect there.
        ack = pb.AckRequest(queue="orders", receipts=[popped[0].receipt])
        assert caller.code("Ack", ack) == "PERMISSION_DENIED"
        nack = pb.NackRequest(queue="other", receipts=[popped[0].receipt])
        assert caller.code("Nack", nack) == "OK"
    assert (ready(secure, "orders"), ready(secure, "other")) == (1, 1)


def test_a_foreign_receipt_under_ones_own_queue_is_lost(secure: Secure) -> None:
    token = secure.token("thief", "consume:other")
    time.sleep(token_file.POLL_S + 0.1)
    with secure.stub(secure.owner) as owner, secure.stub(token) as thief:
        lent = owner.call("Pop", pb.PopRequest(queue="orders", limit=1)).messages[0]
        told = thief.call("Ack", pb.AckRequest(queue="other", receipts=[lent.receipt]))
        assert (told.done, list(told.lost)) == (0, [lent.receipt])
        owner.call("Nack", pb.NackRequest(queue="orders", receipts=[lent.receipt]))
    assert ready(secure, "orders") == 1


def test_a_revoked_token_is_refused_without_a_restart_and_ends_a_stream(secure: Secure) -> None:
    token = secure.token("short", "consume:empty", "admin:empty", "push:empty")
    time.sleep(token_file.POLL_S + 0.1)
    with secure.stub(token) as caller:
        caller.call("CreateQueue", pb.CreateQueueRequest(queue="empty"))
        stream = caller.call("Consume", pb.ConsumeRequest(queue="empty"))
        assert caller.push("empty") == "OK"
        assert next(stream).messages[0].body == b"x"
        token_file.revoke(secure.file, "short")
        time.sleep(token_file.POLL_S + 0.1)
        assert caller.push("empty") == "UNAUTHENTICATED"
        with secure.stub(secure.owner) as owner:
            assert owner.push("empty") == "OK"  # the stream's last wait ends
        with pytest.raises(grpc.RpcError, match="revoked or expired"):
            list(stream)


def test_many_callers_at_once_keep_their_own_tokens(secure: Secure) -> None:
    weak = secure.token("weak", "push:other")
    time.sleep(token_file.POLL_S + 0.1)
    with secure.stub(secure.owner) as owner, secure.stub(weak) as caller:
        request = pb.DescribeQueueRequest(queue="orders")
        calls = [
            (each, each._stub.DescribeQueue.future(request, metadata=each._metadata, timeout=100))
            for _ in range(50)
            for each in (owner, caller)
        ]
        for each, call in calls:
            refused = call.exception()
            assert (refused is None) == (each is owner)


def test_plain_text_and_a_strangers_certificate(secure: Secure, tmp_path: Path) -> None:
    with grpc.insecure_channel(secure.node.grpc) as channel:
        plain = Caller(weft_pb2_grpc.QueueStub(channel), secure.owner)  # type: ignore[no-untyped-call]
        assert plain.push("orders") == "UNAVAILABLE"
    with secure.stub(secure.owner, authority=Authority(tmp_path, "stranger")) as deceived:
        assert deceived.push("orders") == "UNAVAILABLE"
    assert ready(secure, "orders") == 1


def test_figures_want_a_watcher_and_health_is_for_all(secure: Secure) -> None:
    address = json.loads((secure.node.data / "address.json").read_text())["http"]
    context = ssl.create_default_context(cafile=str(secure.authority.pair.cert))
    weak = secure.token("weak figures", "push:*")
    time.sleep(token_file.POLL_S + 0.1)

    def get(page: str, token: str = "") -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://{address}{page}", headers=headers)
        try:
            with urllib.request.urlopen(request, context=context, timeout=100) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    assert [get("/healthz"), get("/readyz")] == [200, 200]
    assert [get("/metrics"), get("/metrics", "x"), get("/metrics", weak)] == [401, 401, 403]
    assert get("/metrics", secure.owner) == 200
    with socket.create_connection(address.split(":"), timeout=100) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"weft_" not in plain.recv(65536)


# --- the data path ----------------------------------------------------------------------------


def key_of(secure: Secure) -> bytes:
    told = json.loads((secure.node.data / "curve.json").read_text())
    return bytes.fromhex(data_key(Keys("", told["secret"])).public)


@contextmanager
def linked(address: str, key: bytes | None) -> Iterator[TcpConnection]:
    made = TcpConnection(address, key)
    try:
        yield made
    finally:
        made.close(0)


def ask(
    link: TcpConnection, request: wire.AnyRequest, token: str, *payload: bytes
) -> wire.AnyAnswer:
    frames = [wire.encode(wire.Call(wire.WIRE_VERSION, 7, request, token)), *payload]
    until = time.monotonic() + 100
    while not link.send(frames):
        assert time.monotonic() < until
        link.changes()
        link.wait(0.1, for_room=True)
    while (answer := link.receive()) is None:
        assert time.monotonic() < until
        link.wait(0.1, for_room=False)
    return wire.decode_reply(answer[0]).answer


def test_the_data_path_wants_the_token_too(secure: Secure) -> None:
    with linked(secure.node.zmq, key_of(secure)) as link:
        payload = wire.encode(wire.Payload([b"y"]))
        for token in ("", "nonsense"):
            for request in (wire.PurgeQueue("orders"), wire.GetView(), wire.ListQueues()):
                answer = ask(link, request, token)
                assert isinstance(answer, wire.Failure)
                assert (answer.code, answer.retriable) == ("UNAUTHENTICATED", False)
            answer = ask(link, wire.Push("orders", 1, 1, 1), token, payload)
            assert isinstance(answer, wire.Failure)
        assert isinstance(ask(link, wire.GetView(), secure.owner), wire.ViewInfo)
    assert ready(secure, "orders") == 1


@pytest.mark.parametrize("key", ["none", "another"])
def test_a_plain_or_deceived_data_path_is_not_heard(secure: Secure, key: str) -> None:
    wrong = None if key == "none" else noise.public_of(os.urandom(32))
    with linked(secure.node.zmq, wrong) as link:
        seen: list[int] = []
        until = time.monotonic() + 100
        while seen.count(REFUSED) < 3:
            assert time.monotonic() < until
            link.wait(0.1, for_room=True)
            seen += link.changes()
            assert not link.send([b"anything"])
        assert UP not in seen


def test_the_python_client(secure: Secure) -> None:
    authority = str(secure.authority.pair.cert)
    with weft.connect(secure.node.grpc, token=secure.owner, tls=authority) as client:
        client.create_queue("python")
        queue = client.queue("python")
        with queue.producer() as producer:
            for number in range(2000):
                producer.send(b"%d" % number)
        seen = set()
        for message in queue.consume(stop_when_empty=True):
            seen.add(int(message.body))
            message.ack()
        assert seen == set(range(2000))
        assert client.kv.lookup("nothing") is None
    for token in ("", "nonsense"):
        with pytest.raises(weft.Unauthenticated):
            weft.connect(secure.node.grpc, token=token, tls=authority)
    with pytest.raises(weft.TlsError, match="is encrypted with TLS"):
        weft.connect(secure.node.grpc, token=secure.owner, tls=False, connect_timeout_ms=500)


@pytest.mark.parametrize("size", [60, 64, 130, 250, 270, 1000])  # KB: in one record, in many
def test_batches_of_any_size_are_read_on_every_path(secure: Secure, size: int) -> None:
    authority = str(secure.authority.pair.cert)
    name = f"batch{size}"
    with weft.connect(secure.node.grpc, token=secure.owner, tls=authority) as client:
        client.create_queue(name)
        queue = client.queue(name)
        for bodies in (
            [bytes([number % 256]) * 1000 for number in range(size)],
            [b"%d" % number + bytes(1000 + number % 2) for number in range(size)],  # of two lengths
        ):
            queue.push_many(bodies)
            assert queue.peek(1)[0].body == bodies[0]
            first = queue.pop_many(10)  # of a larger batch
            with secure.stub(secure.owner) as owner:
                second = owner.call("Pop", pb.PopRequest(queue=name, limit=10)).messages
            rest = queue.pop_many(size)
            found = [one.body for one in (*first, *second, *rest)]
            assert found == bodies
            queue.nack_many(rest)
            again = queue.pop_many(size)
            assert [one.body for one in again] == bodies[20:]
            queue.ack_many([*first, *again])
        client.queue(name).purge()
        stage = client.stage(name, "app", 0, 0, 0)
        stage.push_many(bodies)
        stage.close()
        assert client.publish(name, "app", 0, [stage.winner]).messages == size
        assert [one.body for one in queue.pop_many(size)] == bodies


async def test_the_async_client_and_a_weak_token(secure: Secure) -> None:
    weak = secure.token("weak python", "push:orders")
    await asyncio.sleep(token_file.POLL_S + 0.1)
    tls = weft.Tls(ca=str(secure.authority.pair.cert))
    async with weft.aio.connect(secure.node.grpc, token=weak, tls=tls) as client:
        with pytest.raises(weft.PermissionDenied, match="weak python may not Pop"):
            await client.queue("orders").pop()
        with pytest.raises(weft.PermissionDenied):
            await client.list_queues()
        with pytest.raises(weft.PermissionDenied):
            await client.delete_queue("orders")
    assert ready(secure, "orders") == 1


def test_the_command_line_takes_them_from_the_environment(
    secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(secure.owner + "\n")
    monkeypatch.setenv("WEFT_TLS", str(secure.authority.pair.cert))
    words = ["-s", secure.node.grpc, "--json", "queue", "show", "orders"]
    denied = CliRunner().invoke(cli, words)
    assert denied.exit_code == 1
    assert json.loads(denied.stdout or denied.stderr)["error"]["code"] == "UNAUTHENTICATED"
    monkeypatch.setenv("WEFT_TOKEN_FILE", str(file))
    told = CliRunner().invoke(cli, words)
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["ready"] == 1


def test_nodes_with_tls_and_tokens_form_a_cluster(tmp_path: Path) -> None:
    first = Secure(tmp_path, mutual=True)
    file = tmp_path / "join.token"
    file.write_text(first.token("joiner", "admin:*"))
    server = first.authority.sign("second")
    settings: dict[str, Any] = {
        "tls_cert": server.cert, "tls_key": server.key, "tls_ca": first.authority.pair.cert,
        "tokens": first.file,
    }  # fmt: skip
    with first.node.start():
        seed = first.node.grpc
        second = LiveNode(
            tmp_path / "second", log=tmp_path / "second.log", join=seed, join_token=file, **settings
        )
        with second.start():
            client = first.authority.sign("client")
            tls = weft.Tls(str(first.authority.pair.cert), str(client.cert), str(client.key))
            with weft.connect([seed], token=first.owner, tls=tls) as connected:
                assert len(connected.view().nodes) == 2
                connected.create_queue("both")
                queue = connected.queue("both")
                queue.push_many([b"%d" % number + bytes(1300) for number in range(100)])
                found: set[bytes] = set()
                end = time.monotonic() + 100
                while len(found) < 100 and time.monotonic() < end:
                    batch = queue.pop_many(100, wait_ms=500)
                    found |= {message.body for message in batch}
                    try:
                        queue.ack_many(batch)
                    except weft.LeaseLost:  # partitions are still being assigned
                        continue
                assert len(found) == 100
        stranger = LiveNode(tmp_path / "third", log=tmp_path / "third.log", join=seed, **settings)
        with pytest.raises(NodeEnded) as ended:
            stranger.start()
        assert "requires a token" in ended.value.log


@pytest.mark.parametrize("grpc_server", ["native", "grpcio"])
def test_mutual_tls_wants_a_certificate_of_the_authority(tmp_path: Path, grpc_server: str) -> None:
    made = Secure(tmp_path, mutual=True, grpc_server=grpc_server)
    (tmp_path / "others").mkdir()
    stranger = Authority(tmp_path / "others", "stranger").sign("client")
    with made.node.start():
        with made.stub(made.owner, client=made.authority.sign("client")) as known:
            assert known.code("ListQueues", pb.ListQueuesRequest()) == "OK"
        for client in (None, stranger):
            with made.stub(made.owner, client=client) as unknown:
                assert unknown.code("ListQueues", pb.ListQueuesRequest()) == "UNAVAILABLE"


def test_half_open_handshakes_do_not_keep_clients_out(tmp_path: Path) -> None:
    made = Secure(tmp_path)
    with made.node.start(), ExitStack() as stack:
        host, _, port = made.node.grpc.rpartition(":")
        for _ in range(HANDSHAKES_MAX + 100):
            stack.enter_context(socket.create_connection((host, int(port)), 60))
        with made.stub(made.owner) as owner:
            assert owner.code("ListQueues", pb.ListQueuesRequest()) == "OK"
        # The others are closed when their time is over, or make room for new ones.
        plain = stack.enter_context(socket.create_connection((host, int(port)), 60))
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        with suppress(ConnectionResetError):
            while plain.recv(1000):
                pass  # an alert


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tokens": "none.json"}, "tokens none.json cannot be read"),
        ({"tls_cert": "none.pem", "tls_key": "none.key"}, "tls_cert none.pem cannot be read"),
        ({"tls_cert": __file__, "tls_key": __file__}, "not a certificate and its key"),
    ],
)
def test_a_node_that_cannot_be_secure_does_not_start(
    tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(NodeEnded) as ended:
        LiveNode(tmp_path / "node", **settings).start()
    assert ended.value.code == 1
    assert says in ended.value.log
