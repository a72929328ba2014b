"""The kinds of garbage, one function for each: the port, the data, and the forbidden effects."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any, Final

import grpc
import msgspec
from hypothesis import strategies as st

from tests.process.test_frames import (
    GREETING,
    HANDSHAKE,
    HTTP2,
    METHODS,
    OWN_FAULT,
    PAYLOADS,
    VALID,
    check_frames,
    mutated,
)
from weft.proto import weft_pb2, wire
from weft.server.edges import peer_edge
from weft.transport import noise_transport, zmtp

from .http2_conversations import http2, http2_conversations
from .target import Target

_CONNECT_S: Final = 5.0
_CURVE: Final = zmtp.greeting(b"CURVE")
_HELLO: Final = b"\x05HELLO\x01\x00" + bytes(72)
#: A length that no frame may have, in ZeroMQ's and in HTTP/2's encoding.
_HUGE: Final = st.sampled_from(
    [b"\x02" + struct.pack(">Q", 1 << 40), b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"]
)
_BEGINNINGS: Final = st.sampled_from(
    [b"", GREETING, HANDSHAKE, HTTP2, _CURVE, _CURVE + bytes([4, 200]) + _HELLO,
     noise_transport.CALLS, noise_transport.CALLS + b"\x00\x30" + bytes(range(48)),
     b"GET / HTTP/1.1"]
)  # fmt: skip
_TLS_HELLO: Final = bytes.fromhex("160301020001")


@st.composite
def raw_bytes(draw: st.DrawFn) -> bytes:
    """A valid beginning, cut anywhere, and then arbitrary bytes."""
    beginning = draw(_BEGINNINGS | st.just(_TLS_HELLO))
    cut = draw(st.none() | st.integers(0, len(beginning)))
    return beginning[:cut] + draw(st.binary(max_size=400) | _HUGE)


@st.composite
def http_heads(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from([b"GET", b"HEAD", b"POST", b"\xff"]) | st.binary(max_size=8))
    path = draw(
        st.sampled_from([b"/metrics", b"/healthz", b"/../../etc/passwd", b"*", b"//"])
        | st.binary(max_size=60)
    )
    protocol = draw(st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9", b""]))
    headers = draw(st.lists(st.binary(max_size=80), max_size=8))
    end = draw(st.sampled_from([b"\r\n\r\n", b"\n\n", b"", b"\r\n\r\n" + b"x" * 100]))
    return b" ".join((method, path, protocol)) + b"\r\n" + b"\r\n".join(headers) + end


@st.composite
def protobufs(draw: st.DrawFn) -> tuple[tuple[str, str], bytes]:
    """A method with arbitrary bytes, or with one of its requests with some bytes changed."""
    service, method = draw(st.sampled_from(METHODS))
    name = weft_pb2.DESCRIPTOR.services_by_name[service].methods_by_name[method].input_type.name
    message: Any = getattr(weft_pb2, name)()
    for field in message.DESCRIPTOR.fields:
        if field.type == field.TYPE_STRING and not _repeated(field) and draw(st.booleans()):
            setattr(
                message, field.name, draw(st.sampled_from(["scratch", "../../x", "\0", "ü" * 99]))
            )
        elif field.type == field.TYPE_BYTES and not _repeated(field) and draw(st.booleans()):
            setattr(message, field.name, draw(st.binary(max_size=40)))
    data = bytearray(message.SerializeToString() + draw(st.binary(max_size=30)))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return (service, method), bytes(data)


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


@st.composite
def peer_frames(draw: st.DrawFn) -> tuple[bool, list[bytes]]:
    """From a member: with its own header or not, and then bytes that are no message."""
    return draw(st.booleans()), draw(
        st.lists(st.binary(max_size=200) | st.just(b"\x91" * 5000), min_size=1, max_size=4)
    )


@st.composite
def sealed_words(draw: st.DrawFn) -> tuple[list[bytes], int | None]:
    """The content of records: a valid beginning or none, then anything; a bit may be flipped."""
    said = [zmtp.ready(b"DEALER")] if draw(st.booleans()) else []
    said += draw(
        st.lists(
            st.binary(max_size=200)
            | _HUGE
            | st.lists(mutated() | st.binary(max_size=60), min_size=1, max_size=3).map(
                lambda frames: b"".join(zmtp.message(frames))
            ),
            max_size=4,
        )
    )
    return said, draw(st.none() | st.integers(0, 1000))


def sealed_records(target: Target, case: tuple[list[bytes], int | None]) -> None:
    target.vault.tell(*case)


def zmq_frames(target: Target, frames: list[bytes]) -> None:
    check_frames(target.zmq, frames)


def zmq_mutated(target: Target, case: tuple[bytes, list[bytes]]) -> None:
    check_frames(target.zmq, [case[0], *case[1]])


def zmq_valid(target: Target, case: tuple[wire.Call, list[bytes]]) -> None:
    check_frames(target.zmq, [wire.encode(case[0]), *case[1]])


def tcp(target: Target, case: tuple[str, bytes]) -> None:
    port, data = case
    host, number = target.ports[port].rsplit(":", 1)
    with socket.create_connection((host, int(number)), timeout=_CONNECT_S) as connection:
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return  # rightly disconnected before it had finished


def http(target: Target, head: bytes) -> None:
    host, number = target.ports["http"].rsplit(":", 1)
    with socket.create_connection((host, int(number)), timeout=_CONNECT_S) as connection:
        connection.sendall(head)
        connection.shutdown(socket.SHUT_WR)
        try:
            said = connection.recv(65_536)
        except ConnectionResetError:
            return
    assert not said or said.startswith(b"HTTP/1.1 "), said[:100]
    assert b" 500 " not in said.partition(b"\r\n")[0], said[:200]
    assert b"root:" not in said


def protobuf(target: Target, case: tuple[tuple[str, str], bytes]) -> None:
    (service, method), data = case
    refusal: Any = None
    try:
        target.call(service, method, data)
    except grpc.RpcError as error:
        refusal = error
    if refusal is None:
        return
    codes = [value for key, value in refusal.trailing_metadata() or () if key == "weft-code"]
    unparsed = "Error parsing message" in (refusal.details() or "")
    assert unparsed or (codes and codes[0] not in OWN_FAULT), (case, refusal)


def peer(target: Target, case: tuple[bool, list[bytes]]) -> None:
    own, frames = case
    if own:
        header = [peer_edge.PEER_VERSION, target.cluster_id, target.insider_id]
        frames = [msgspec.msgpack.encode(header), *(f for f in frames if not _is_message(f))]
    target.peer.send_multipart(frames)


def _is_message(frame: bytes) -> bool:
    """A member may send any valid message: members are trusted."""
    try:
        peer_edge._decode_messages(frame)
    except wire.MALFORMED:
        return False
    return True


Check = Callable[[Target, Any], None]
_payloads: Final = st.lists(PAYLOADS | st.binary(max_size=100), max_size=3)
KINDS: Final[dict[str, tuple[st.SearchStrategy[Any], Check]]] = {
    "7701 random frames": (st.lists(st.binary(max_size=200), min_size=1, max_size=5), zmq_frames),
    "7701 changed calls": (st.tuples(mutated(), _payloads), zmq_mutated),
    "7701 wild values": (st.tuples(VALID, _payloads), zmq_valid),
    "7700 protobuf": (protobufs(), protobuf),
    "7700 frames": (http2_conversations(), http2),
    "7700 bytes": (st.tuples(st.just("grpc"), raw_bytes()), tcp),
    "7701 bytes": (st.tuples(st.just("zmq"), raw_bytes()), tcp),
    "7701 bytes, encrypted": (st.tuples(st.just("sealed"), raw_bytes()), tcp),
    "7701 records": (sealed_words(), sealed_records),
    "7702 bytes": (st.tuples(st.just("http"), raw_bytes()), tcp),
    "7702 requests": (http_heads(), http),
    "7703 bytes": (st.tuples(st.just("peer"), raw_bytes()), tcp),
    "7703 frames of a member": (peer_frames(), peer),
}
