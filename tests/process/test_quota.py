"""A node with limits, and a node whose certificate is renewed, as processes."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import zmq

import weft
from tests.contract.authority import Authority
from tests.contract.served import eventually
from tests.process.live_node import LiveNode
from tests.process.wire_client import Refused, WireClient
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc, wire
from weft.server.security import tls, token_file
from weft.server.security.access import Limits

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "tokens.json"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, file: Path) -> Iterator[LiveNode]:
    folder = tmp_path_factory.mktemp("limits")
    token_file.create(file, "first", ["admin:*"], 0)
    with LiveNode(
        folder / "node", tokens=file, queues_max=6, bytes_max=1_000_000, in_flight_max=3,
        connections_max=20,
    ).start() as made:  # fmt: skip
        yield made


def token(file: Path, name: str, **most: int) -> str:
    grants = [f"{what}:*" for what in ("push", "consume", "watch", "table")]
    made = token_file.create(file, name, [*grants, "admin:*"], 0, Limits(**most))[1]
    time.sleep(token_file.POLL_S + 0.1)
    return made


def test_each_limit_has_its_error_and_an_audit_line(node: LiveNode, file: Path) -> None:
    owner = token(file, "owner")
    with weft.connect(node.grpc, token=owner) as client:
        for number in range(5):
            client.create_queue(f"q{number}")
        queue = client.queue("q0")
        queue.push_many([b"x"] * 10)
        for _ in range(3):
            assert queue.pop() is not None
        # A single request: a client retries, and may report a timeout in the end.
        with WireClient(node.zmq, token=owner) as once, pytest.raises(Refused, match="3 leases"):
            once.ask(wire.Pop("q0", 1))
        client.create_queue("q5")
        with pytest.raises(weft.QuotaExceeded, match="queues_max"):
            client.create_queue("q6")
        payload = wire.encode(wire.Payload([bytes(100_000)] * 11))
        with WireClient(node.zmq, token=owner) as once, pytest.raises(Refused, match="bytes_max"):
            once.ask(wire.Push("q1", 1, 1, 11), payload)
        client.queue("q1").purge()
        client.queue("q1").push(bytes(100_000))
    stranger = WireClient(node.zmq, token="weft_no_such")
    with stranger, pytest.raises(Refused, match="UNAUTHENTICATED"):
        stranger.ask(wire.DeleteQueue("q0"))
    lines = [json.loads(line) for line in (node.data / "audit.jsonl").read_text().splitlines()]
    seen = [(line["who"], line["action"], line["on"], line["result"]) for line in lines]
    assert ("owner", "CreateQueue", "q6", "QUOTA_EXCEEDED") in seen
    assert ("owner", "PurgeQueue", "q1", "OK") in seen
    assert ("", "DeleteQueue", "q0", "UNAUTHENTICATED") in seen
    assert all(line["from"].startswith("127.0.0.1") for line in lines), lines
    assert not any(line["action"] in ("Push", "Pop") for line in lines)


def test_a_token_is_held_to_its_rate_on_both_wires(node: LiveNode, file: Path) -> None:
    slow = token(file, "slow", rate=50)
    with weft.connect(node.grpc, token=slow) as maker:
        maker.create_queue("q2")
    payload = wire.encode(wire.Payload([b"x"] * 4000))
    with WireClient(node.zmq, token=slow) as client:
        client.ask(wire.Push("q2", 1, 1, 4000), payload)  # the excess delays later pushes
        with pytest.raises(Refused) as refused:
            client.ask(wire.Push("q2", 1, 2, 4000), payload)
        assert (refused.value.code, refused.value.retriable) == ("RATE_LIMITED", True)
    with grpc.insecure_channel(node.grpc) as channel:
        stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        request = pb.PushRequest(queue="q2", messages=[pb.OutMessage(body=b"x")])
        with pytest.raises(grpc.RpcError) as told:
            stub.Push(request, metadata=[("authorization", f"Bearer {slow}")])
        assert isinstance(told.value, grpc.Call)
        assert told.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert ("weft-code", "RATE_LIMITED") in list(told.value.trailing_metadata() or ())
    other = token(file, "patient", rate=50)
    with weft.connect(node.grpc, token=other, timeout_ms=100_000) as patient:
        patient.queue("q2").push_many([b"x"] * 100)
        began = time.monotonic()
        for number in range(4):
            patient.queue("q2").push_many([b"%d" % number] * 50)
        assert time.monotonic() - began > 2, "it should have waited for its turn"


def test_connections_past_the_limit_are_closed_and_others_are_served(node: LiveNode) -> None:
    context = zmq.Context()
    host, port = node.zmq.rsplit(":", 1)
    sockets = []
    try:
        for _ in range(60):
            made = context.socket(zmq.DEALER)
            made.linger = 0
            made.connect(f"tcp://{host}:{port}")
            sockets.append(made)
        eventually(lambda: "connections refused" in node.log)
        call = wire.encode(wire.Call(wire.WIRE_VERSION, 1, wire.Status()))
        for made in sockets:
            made.send(call, zmq.NOBLOCK)
        eventually(lambda: any(made.poll(0) for made in sockets))
        time.sleep(1)
        answered = sum(bool(made.poll(0)) for made in sockets)
        assert 1 <= answered <= 20, answered
    finally:
        for made in sockets:
            made.close()
        context.term()
    eventually(lambda: _serves(node))


def _serves(node: LiveNode) -> bool:
    with WireClient(node.zmq, timeout_ms=5000) as client:
        try:
            client.ask(wire.Status())
        except Refused as refused:
            return refused.code == "UNAUTHENTICATED"
    return False


def test_a_certificate_is_renewed_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first, second = authority.sign("first"), authority.sign("second")
    cert, key = tmp_path / "node.pem", tmp_path / "node.key"
    shutil.copy(first.cert, cert)
    shutil.copy(first.key, key)
    with LiveNode(tmp_path / "node", tls_cert=cert, tls_key=key).start() as node:
        address = json.loads((node.data / "address.json").read_text())
        places = [address["grpc"], address["http"]]
        before = [_shown(place) for place in places]
        assert before == [_der(first.cert)] * 2
        with weft.connect(node.grpc, tls=str(authority.pair.cert)) as client:
            client.create_queue("q")
            shutil.copy(second.cert, cert)  # half of the renewal: the key does not match yet
            time.sleep(2 * tls.LOOK_S)
            assert [_shown(place) for place in places] == before
            shutil.copy(second.key, key)
            eventually(lambda: [_shown(p) for p in places] == [_der(second.cert)] * 2)
            client.queue("q").push(b"the old connection works on")
            assert client.queue("q").stats().ready == 1
        assert "certificate not read again" in node.log


def _shown(place: str) -> bytes:
    """The certificate that a port presents."""
    host, port = place.rsplit(":", 1)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection((host, int(port)), timeout=100)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
        shown = secure.getpeercert(binary_form=True)
        assert shown is not None
        return shown


def _der(cert: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(cert.read_text())
