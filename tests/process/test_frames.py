"""Garbage on both ports: the node reports the error where possible, and continues to serve.

A queue that was filled before is checked after every test, over both protocols. WEFT_TEST_EXAMPLES
sets how many cases each kind of garbage gets.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

import grpc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.process.live_node import LiveNode
from tests.process.wire_client import Loan, Refused, Silence, WireClient
from weft.errors import BY_CODE
from weft.proto import weft_pb2, wire
from weft.proto.settings import Settings

pytestmark = pytest.mark.process

EXAMPLES: Final = int(os.environ.get("WEFT_TEST_EXAMPLES", 150))
PRECIOUS: Final = [b"precious %d" % index for index in range(500)]
#: Codes that would blame the node.
OWN_FAULT: Final = {code for code in BY_CODE if code.startswith("STOR")} | {"WEFT"}
ANSWER_SECONDS_MAX: Final = 100.0

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    # Intended: one connection serves all cases of a test.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with LiveNode(tmp_path_factory.mktemp("frames") / "node") as running:
        with WireClient(running.start().zmq) as client:
            client.create("precious")
            client.create("scratch")
            client.create("target")  # no garbage names this queue, so nothing deletes it
            client.push("precious", 1, 1, PRECIOUS)
        yield running
        assert "Traceback" not in running.log, running.log
        assert running.stop() == 0


@pytest.fixture(autouse=True)
def intact(node: LiveNode) -> Iterator[None]:
    yield
    with WireClient(node.zmq) as client:
        assert _peek(client) == PRECIOUS
        assert client.describe("precious").ready == len(PRECIOUS)
    view = _call(node, "Cluster", "View", b"")
    assert weft_pb2.ViewResponse.FromString(view).nodes[0].zmq == node.zmq


def _peek(client: WireClient) -> list[bytes]:
    answer, frames = client.ask(wire.Peek("precious", len(PRECIOUS)))
    assert isinstance(answer, wire.Peeked)
    return [body for frame in frames for body in wire.decode_payload(frame).bodies]


def _answers(client: WireClient, frames: list[bytes]) -> list[wire.AnyAnswer]:
    """The node's answers to these frames; the node must still answer after them."""
    client.socket.send_multipart(frames)
    marker = client.send(wire.GetView())
    answers: list[wire.AnyAnswer] = []
    while True:
        rid, answer, _ = client.receive()
        if rid == marker and isinstance(answer, wire.ViewInfo):
            return answers
        answers.append(answer)


def _decodes(frame: bytes) -> bool:
    try:
        return wire.decode_call(frame).version == wire.WIRE_VERSION
    except wire.MALFORMED:
        return False


def check_frames(client: WireClient, frames: list[bytes]) -> None:
    answers = _answers(client, frames)
    failures = [answer for answer in answers if isinstance(answer, wire.Failure)]
    if not _decodes(frames[0]):
        # Beside it there may be the answer to an earlier case: a pop that waited a little.
        assert ("PROTOCOL", False) in {(a.code, a.retriable) for a in failures}, answers
    assert not OWN_FAULT & {failure.code for failure in failures}, failures


# --- ZeroMQ ---------------------------------------------------------------------------------

_any_int = st.integers(-(1 << 63), (1 << 64) - 1) | st.integers(-2, 5000)
_name = st.sampled_from(["scratch", "absent", ""]) | st.text(max_size=100)
_receipts = st.lists(
    st.builds(wire.Receipt, _any_int, _any_int, _any_int, st.lists(st.tuples(_any_int, _any_int)))
)
_bytes = st.none() | st.binary(max_size=50)
_kept_parts = st.builds(
    wire.KeptPart, _any_int, _any_int, _name, _any_int, _any_int, st.text(), st.text()
)
_payload_bytes = st.binary(max_size=50) | st.lists(st.binary(max_size=9), max_size=5).map(
    lambda bodies: wire.encode(wire.Payload(bodies))
)
#: Every verb, with values that need not make sense. A pop does not wait: its answer is awaited.
REQUESTS: Final[st.SearchStrategy[Any]] = st.one_of(
    st.builds(
        wire.Push, _name, _any_int, _any_int, _any_int, _any_int, _any_int,
        st.none() | st.text(max_size=300),
    ),
    st.builds(wire.Pop, _name, _any_int, st.just(0), _any_int),
    st.builds(wire.Peek, _name, _any_int),
    st.builds(wire.Ack, _name, _receipts),
    st.builds(wire.Nack, _name, _receipts, _any_int, st.text(max_size=2000), st.booleans()),
    st.builds(wire.Extend, _name, _receipts, _any_int),
    st.builds(
        wire.CreateQueue, _name,
        st.builds(Settings, _any_int, _any_int, _name, _any_int, _any_int, _any_int),
    ),
    st.builds(wire.UpdateQueue, _name, st.dictionaries(st.text(), _any_int | st.text())),
    st.builds(wire.DeleteQueue, _name),
    st.builds(wire.ListQueues, st.text(), st.text(), _any_int),
    st.builds(wire.DescribeQueue, _name),
    st.builds(wire.PurgeQueue, _name),
    st.builds(wire.Redrive, _name, _any_int),
    st.builds(wire.Insert, st.text(), st.binary(max_size=50)),
    st.builds(wire.Append, st.text(), st.binary(max_size=50)),
    st.builds(wire.CompareAndSwap, st.text(), _bytes, _bytes),
    st.builds(wire.Lookup, st.text()),
    st.builds(wire.Remove, st.text()),
    st.builds(wire.Snapshot, _any_int, st.none() | _name, _any_int, st.none() | st.text()),
    st.builds(
        wire.Restore, _name, st.tuples(_any_int, _any_int), _any_int,
        st.builds(
            wire.Kept, _name, _any_int, _any_int, _any_int, _any_int, _any_int,
            st.none() | st.text(), st.lists(_kept_parts, max_size=3), _payload_bytes,
        ),
    ),
    st.builds(wire.Status),
)  # fmt: skip
VALID: Final = st.builds(wire.Call, st.just(wire.WIRE_VERSION), st.integers(1, 9), REQUESTS)
PAYLOADS: Final = st.builds(
    wire.Payload,
    st.lists(st.binary(max_size=30), max_size=5),
    st.none() | st.lists(st.none() | st.dictionaries(st.text(), st.text()), max_size=5),
    st.none() | st.lists(st.none() | st.text(), max_size=5),
).map(wire.encode)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid call with some bytes changed, cut, duplicated or inserted."""
    frame = bytearray(wire.encode(draw(VALID)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(frame) - 1)))
        match draw(st.sampled_from(["change", "cut", "double", "insert"])):
            case "change" if frame:
                frame[at] = draw(st.integers(0, 255))
            case "cut":
                del frame[at:]
            case "double":
                frame[at:at] = frame[at : at + 20]
            case _:
                frame[at:at] = draw(st.binary(max_size=8))
    return bytes(frame)


_DEEP: Final = b"\x91" * 100_000 + b"\xc0"
_LOOKUP: Final = wire.encode(wire.Call(wire.WIRE_VERSION, 1, wire.Lookup("text")))


@fuzz
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5))
@example([b""])
@example([_LOOKUP.replace(b"text", b"\xff\xfe\xfd\xfc")])
@example([b"\x94" + _LOOKUP[1:] + _DEEP])
@example([b"\xdd\xff\xff\xff\xff"])
@example([b"\x93\x01\x01\xc6\xff\xff\xff\xff"])
@example([wire.encode((wire.WIRE_VERSION, 1, ("purge_queue", 5)))])
def test_random_frames(zmq_client: WireClient, frames: list[bytes]) -> None:
    check_frames(zmq_client, frames)


@fuzz
@given(mutated(), st.lists(PAYLOADS | st.binary(max_size=100), max_size=3))
def test_mutated_calls(zmq_client: WireClient, frame: bytes, payload: list[bytes]) -> None:
    check_frames(zmq_client, [frame, *payload])


@fuzz
@given(VALID, st.lists(PAYLOADS | st.binary(max_size=100), max_size=2))
def test_valid_calls_with_wild_values(
    zmq_client: WireClient, call: wire.Call, payload: list[bytes]
) -> None:
    # A request that is a job of the node, such as a redrive, is answered at the end of its round:
    # after the marker, if both arrive in one round.
    answers = _answers(zmq_client, [wire.encode(call), *payload]) or [zmq_client.receive()[1]]
    (answer,) = answers
    if len(payload) != isinstance(call.request, wire.Push) and not isinstance(
        call.request, wire.GetView | wire.Status
    ):
        assert isinstance(answer, wire.Failure)
        assert answer.code == "INVALID_ARGUMENT"
    elif isinstance(answer, wire.Failure):
        assert answer.code not in OWN_FAULT | {"PROTOCOL"}, answer


@pytest.mark.parametrize("version", [0, 1, 3, -1, 1 << 60])
def test_another_wire_version(zmq_client: WireClient, version: int) -> None:
    (answer,) = _answers(zmq_client, [wire.encode(wire.Call(version, 1, wire.Status()))])
    assert isinstance(answer, wire.Failure)
    assert answer.code == "PROTOCOL"
    assert f"wire version {version}" in answer.message


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", "INVALID_ARGUMENT"),
        (b"\x94\x90\xc0\xc0" + _DEEP, "INVALID_ARGUMENT"),
        (b"\x92\x91\xc4\x00\x91\x81\xa1\xff\xa1a", "INVALID_ARGUMENT"),
        (b"\x91\xdd\xff\xff\xff\xff", "INVALID_ARGUMENT"),
        (wire.encode(wire.Payload([b""] * 2)), "INVALID_ARGUMENT"),
        (wire.encode(wire.Payload([b""], [{}, {}])), "INVALID_ARGUMENT"),
        (wire.encode(wire.Payload([b""], [{"k": "v" * 70_000}])), "TOO_LARGE"),
        (wire.encode(wire.Payload([b""], None, ["k" * 2000])), "TOO_LARGE"),
        (wire.encode(wire.Payload([bytes(5 << 20)])), "TOO_LARGE"),
    ],
    ids=["empty", "deep", "not utf-8", "huge array", "count", "columns", "headers", "key", "body"],
)
def test_a_push_with_a_wrong_payload(zmq_client: WireClient, payload: bytes, code: str) -> None:
    with pytest.raises(Refused) as refused:
        zmq_client.ask(wire.Push("target", 3, 1, 1), payload)
    assert refused.value.code == code


def test_hostile_ranges_under_a_real_lease(zmq_client: WireClient) -> None:
    zmq_client.create("lent")
    zmq_client.push("lent", 4, 1, [b"a", b"b", b"c", b"d"])
    (lent, bodies), *_ = zmq_client.pop("lent", 2, lease_ms=60_000)
    loan = Loan(lent, bodies)
    for first, count in [(0, 1 << 62), (-1, 2), (0, 0), (0, -1), (1, 2), (1 << 62, 1), (3, 1)]:
        receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce, [(first, count)])
        assert zmq_client.ack("lent", [receipt]) == wire.Settled(0, 0, [0])
    other = wire.Receipt(lent.partition + 1, lent.lsn, lent.nonce)
    assert zmq_client.ack("lent", [other]) == wire.Settled(0, 0, [0])
    assert zmq_client.ack("target", [loan.receipt()]) == wire.Settled(0, 0, [0])
    assert zmq_client.ack("lent", [loan.receipt()]).done == 2


def test_a_flood_of_garbage_starves_nobody(node: LiveNode, zmq_client: WireClient) -> None:
    with WireClient(node.zmq) as flood:
        for _ in range(5000):
            flood.socket.send_multipart([b"\xc1"])
        assert zmq_client.status().queues >= 2
        _, answer, _ = flood.receive()
        assert isinstance(answer, wire.Failure)


@pytest.fixture
def zmq_client(node: LiveNode) -> Iterator[WireClient]:
    with WireClient(node.zmq) as client:
        yield client


# --- raw TCP --------------------------------------------------------------------------------

GREETING: Final = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY: Final = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
HANDSHAKE: Final = GREETING + bytes([4, len(_READY)]) + _READY
HTTP2: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _tcp(address: str, data: bytes) -> socket.socket:
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX)
    try:
        connection.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass  # rightly disconnected before it had finished
    return connection


@fuzz
@given(st.sampled_from(["zmq", "grpc"]), st.sampled_from([b"", GREETING, HANDSHAKE, HTTP2]),
       st.binary(max_size=300))  # fmt: skip
def test_raw_bytes(node: LiveNode, port: str, before: bytes, data: bytes) -> None:
    _tcp(getattr(node, port), before + data).close()


def test_a_greeting_cut_short_anywhere(node: LiveNode, zmq_client: WireClient) -> None:
    for length in range(len(HANDSHAKE)):
        _tcp(node.zmq, HANDSHAKE[:length]).close()
        _tcp(node.grpc, HTTP2[:length]).close()
    assert zmq_client.status().queues >= 2


def test_half_a_frame_then_gone(node: LiveNode) -> None:
    call = wire.encode(wire.Call(wire.WIRE_VERSION, 1, wire.PurgeQueue("precious")))
    frame = bytes([0, len(call)]) + call
    for length in range(len(frame)):
        _tcp(node.zmq, HANDSHAKE + frame[:length]).close()
    # The first part of a push whose payload never comes.
    push = wire.encode(wire.Call(wire.WIRE_VERSION, 1, wire.Push("precious", 9, 9, 1)))
    _tcp(node.zmq, HANDSHAKE + bytes([1, len(push)]) + push).close()


def test_a_frame_larger_than_any(node: LiveNode) -> None:
    """Refused by its length alone, before a byte of it is read or kept."""
    before = node.own_bytes()
    with _tcp(node.zmq, HANDSHAKE + b"\x02" + struct.pack(">Q", 1 << 40) + bytes(1000)) as peer:
        while peer.recv(4096):
            pass
    assert node.own_bytes() - before < 50 << 20


def test_connections_that_say_nothing(node: LiveNode, zmq_client: WireClient) -> None:
    silent = [_tcp(address, b"") for address in (node.zmq, node.grpc) for _ in range(50)]
    try:
        assert zmq_client.status().queues >= 2
        assert _call(node, "Cluster", "Status", b"")
    finally:
        for connection in silent:
            connection.close()


# --- gRPC -----------------------------------------------------------------------------------

METHODS: Final = [
    (service.name, method.name)
    for service in weft_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if not method.server_streaming
]
_proto_pop: Final = weft_pb2.PopRequest(queue="scratch", limit=5).SerializeToString()


def _call(node: LiveNode, service: str, method: str, data: bytes) -> bytes:
    with grpc.insecure_channel(node.grpc) as channel:
        ask: Any = channel.unary_unary(f"/weft.v1.{service}/{method}")
        answer = ask(data, timeout=ANSWER_SECONDS_MAX)
        assert isinstance(answer, bytes)
        return answer


@fuzz
@given(st.sampled_from(METHODS), st.binary(max_size=100) | st.binary(max_size=10).map(
    lambda tail: _proto_pop + tail))  # fmt: skip
def test_random_protobuf(node: LiveNode, method: tuple[str, str], data: bytes) -> None:
    refusal: Any = None
    try:
        _call(node, *method, data)
    except grpc.RpcError as error:
        refusal = error
    if refusal is None:
        return
    codes = [value for key, value in refusal.trailing_metadata() or () if key == "weft-code"]
    # gRPC itself refuses input that is not protobuf at all, without a weft-code.
    unparsed = "Error parsing message" in (refusal.details() or "")
    assert unparsed or (codes and codes[0] not in OWN_FAULT), refusal


def test_a_grpc_message_larger_than_any(node: LiveNode) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        _call(node, "Queue", "Push", bytes(64 << 20))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_method_that_is_not(node: LiveNode) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        _call(node, "Queue", "Explode", b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_silence_is_an_error_of_the_test() -> None:
    """The client of these tests must detect a node that does not answer."""
    with WireClient("127.0.0.1:1", timeout_ms=50) as client, pytest.raises(Silence):
        client.status()
