"""The protocol on the wire: read in any fragmentation, and understood by ZeroMQ's own library."""

from __future__ import annotations

import socket
from itertools import pairwise

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.client.transport.buffer_pool import BufferPool
from weft.errors import ProtocolError
from weft.transport import zmtp

MESSAGES_MAX = 1 << 20

_frames = st.lists(st.binary(max_size=600), min_size=1, max_size=4)


def _cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[a:b] for a, b in pairwise(places)]


@given(st.lists(_frames, max_size=6), st.lists(st.integers(0, 1 << 16), max_size=12))
def test_any_pieces_give_the_same_messages(messages: list[list[bytes]], cuts: list[int]) -> None:
    stream = b"".join(b"".join(zmtp.message(frames)) for frames in messages)
    reader = zmtp.FrameReader(MESSAGES_MAX)
    for piece in _cut(stream, cuts):
        reader.feed(piece)
    assert reader.messages == messages
    assert not reader.lacks


@settings(deadline=None)  # moves megabytes
@given(
    st.lists(st.lists(st.integers(0, 3 * zmtp.LONG_BYTES), min_size=1, max_size=3), max_size=3),
    st.lists(st.integers(1, 2 * zmtp.LONG_BYTES), min_size=1, max_size=5),
)
def test_a_long_frame_is_read_into_its_place(sizes: list[list[int]], reads: list[int]) -> None:
    """As from a socket, which returns as many bytes as requested, or fewer."""
    messages = [[bytes([n % 251]) * size for n, size in enumerate(each)] for each in sizes]
    stream = b"".join(b"".join(zmtp.message(frames)) for frames in messages)
    pool = BufferPool()
    reader = zmtp.FrameReader(MESSAGES_MAX, pool.take)
    heard: list[list[bytes]] = []
    place = turn = 0
    while place < len(stream):
        read, turn = reads[turn % len(reads)], turn + 1
        if reader.room is not None:
            read = min(read, len(reader.room), len(stream) - place)
            assert len(reader.room) == reader.lacks
            reader.room[:read] = stream[place : place + read]
            reader.filled(read)
        else:
            reader.feed(stream[place : place + read])
        place += read
        # Copied at once, as a client does: later frames may reuse the memory.
        heard += [[bytes(frame) for frame in frames] for frames in reader.messages]
        reader.messages = []
    assert heard == messages
    assert not reader.lacks


@given(st.binary(max_size=300), st.lists(st.integers(0, 1 << 10), max_size=5))
def test_garbage_is_refused_or_waited_for(garbage: bytes, cuts: list[int]) -> None:
    reader = zmtp.FrameReader(1000)
    try:
        for piece in _cut(garbage, cuts):
            reader.feed(piece)
    except ProtocolError:
        pass


def test_a_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    reader = zmtp.FrameReader(1000)
    head, _ = zmtp.message([bytes(1001)])
    with pytest.raises(ProtocolError, match="more than 1000 bytes"):
        reader.feed(head)
    many = zmtp.FrameReader(1000)
    part = b"".join(zmtp.message([bytes(400), b""]))[:-2]
    many.feed(part + part)
    with pytest.raises(ProtocolError, match="more than 1000 bytes"):
        many.feed(part)


def test_commands_stand_beside_messages() -> None:
    reader = zmtp.FrameReader(1000)
    ping = b"\x04PING\x00\x0acontext"
    reader.feed(b"".join(zmtp.message([b"a", b"b"]))[:3] + bytes((4, len(ping))) + ping)
    reader.feed(b"\x00\x01b")
    assert reader.messages == [[b"a", b"b"]]
    assert reader.commands == [ping]
    assert zmtp.pong(ping) == b"\x04\x0c\x04PONGcontext"
    assert zmtp.pong(b"\x05READY") is None


@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (b"GET / HTTP/1.1\r\n".ljust(64), "does not speak"),
        (zmtp.GREETING[:10] + b"\x02" + zmtp.GREETING[11:], "ZMTP 2"),
        (zmtp.GREETING.replace(b"NULL\0", b"CURVE"), "CURVE"),
    ],
)
def test_another_protocol_is_refused(greeting: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        zmtp.check_greeting(greeting)


def test_zeromq_understands_it() -> None:
    """Against the library's own ROUTER: greeting, READY, short and long frames, both ways."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.RCVTIMEO = router.SNDTIMEO = 10_000
    port = router.bind_to_random_port("tcp://127.0.0.1")
    sent = [b"", b"short", bytes(255), bytes(256), bytes(100_000)]
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(zmtp.GREETING)
            heard = b""
            while len(heard) < zmtp.GREETING_BYTES:
                heard += connection.recv(zmtp.GREETING_BYTES - len(heard))
            zmtp.check_greeting(heard)
            # The library may skip frames that come before its own READY: send one after the other.
            connection.sendall(zmtp.ready(b"DEALER"))
            reader = zmtp.FrameReader(MESSAGES_MAX)
            while not reader.commands:
                reader.feed(connection.recv(4096))
            assert reader.commands[0].startswith(b"\x05READY")
            connection.sendall(b"".join(zmtp.message(sent)))
            peer, *got = router.recv_multipart()
            assert got == sent
            router.send_multipart([peer, *sent])
            while not reader.messages:
                reader.feed(connection.recv(reader.lacks or 4096))
            assert reader.messages == [sent]
    finally:
        context.destroy(0)


def test_a_ready_names_its_kind() -> None:
    ready = zmtp.ready(b"DEALER")[2:]
    assert zmtp.kind_of(ready) == b"DEALER"
    assert zmtp.kind_of(ready.replace(b"Socket-Type", b"socket-type")) == b"DEALER"
    for length in range(len(ready) - len(b"\x08Identity\0\0\0\0")):
        with pytest.raises(ProtocolError, match="READY"):
            zmtp.kind_of(ready[:length])
    with pytest.raises(ProtocolError, match="in place of READY"):
        zmtp.kind_of(b"\x05ERROR\x04went")
