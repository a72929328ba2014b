"""Records: sealed data arrives under any fragmentation, and nothing else does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import ProtocolError
from weft.transport import noise, noise_transport, zmtp
from weft.transport.noise_transport import PLAIN_BYTES_MAX, SealedReader, Sealer

MAX = 1 << 24


def tunnel(
    *, rooms: bool = False, scratch: memoryview | None = None
) -> tuple[Sealer, SealedReader]:
    secret = os.urandom(32)
    caller = noise_transport.call(noise.public_of(secret), noise_transport.CALLED)
    called = noise_transport.called(secret, noise_transport.CALLS)
    noise_transport.hear(called, noise_transport.say(caller))
    noise_transport.hear(caller, noise_transport.say(called))
    place = (lambda size: memoryview(bytearray(size))) if rooms else None
    scratch = scratch or noise_transport.scratch()
    reader = SealedReader(called.split()[1], zmtp.FrameReader(MAX, place), scratch)
    return Sealer(caller.split()[0], scratch), reader


def records_of(written: Sequence[noise_transport.Piece]) -> list[int]:
    """The plaintext size of each record."""
    data, sizes = b"".join(written), []
    while data:
        end = 2 + int.from_bytes(data[:2], "big")
        assert end <= len(data)
        sizes.append(end - 18)
        data = data[end:]
    return sizes


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(ends)]


def plain(message: list[zmtp.Frame]) -> list[bytes]:
    return [bytes(frame) for frame in message]


sizes = st.sampled_from([0, 1, 255, 256, 4095, 4096, 16384, 65518, 65519, 65520, 140_000])


@settings(deadline=None)
@given(
    st.lists(st.lists(sizes, min_size=1, max_size=4), max_size=4),
    st.lists(st.integers(0, 1 << 20), max_size=12),
    st.booleans(),
)
def test_any_pieces_give_the_same_messages(
    messages: list[list[int]], cuts: list[int], rooms: bool
) -> None:
    sealer, reader = tunnel(rooms=rooms)
    sent = [[os.urandom(size) for size in each] for each in messages]
    data = b"".join(b"".join(sealer.seal(zmtp.message(each))) for each in sent)
    ends = 0
    for piece in pieces_of(data, cuts):
        reader.feed(piece)
        ends += len(piece)
        # A reader that lacks bytes waits for them: they must be in flight.
        assert reader.lacks <= len(data) - ends
    assert [plain(each) for each in reader.messages] == sent
    assert reader.lacks == 0


def test_one_byte_at_a_time_and_the_rest_of_a_long_frame_is_known() -> None:
    sealer, reader = tunnel()
    body = os.urandom(200_000)
    data = b"".join(sealer.seal(zmtp.message([b"head", body])))
    reader.feed(data[:100])  # the first record is complete, with the frame's length
    assert reader.lacks == len(data) - 100
    for place in range(100, 300):
        reader.feed(data[place : place + 1])
        assert reader.lacks == len(data) - place - 1
    reader.feed(data[300:])
    assert reader.messages == [[b"head", body]]


def test_small_pieces_share_a_record_and_long_ones_are_not_joined() -> None:
    sealer, _ = tunnel()
    assert records_of(sealer.seal([b"x" * 100] * 50)) == [5000]
    long = [b"head", bytes(PLAIN_BYTES_MAX + 1), b"tail"]
    assert records_of(sealer.seal(long)) == [4, PLAIN_BYTES_MAX, 1, 4]
    assert records_of(sealer.seal([b"y" * 4095] * 20)) == [15 * 4095, 5 * 4095]
    too_much = [b"head", bytes(4 * PLAIN_BYTES_MAX), b"tail"]  # for the scratch buffer
    assert records_of(sealer.seal(too_much)) == [4, *[PLAIN_BYTES_MAX] * 4, 4]


def test_connections_share_a_desk() -> None:
    """With any amount read so far, and with seals between two reads."""
    scratch = noise_transport.scratch()
    ends = [tunnel(scratch=scratch, rooms=rooms) for rooms in (False, True, False)]
    bodies = [os.urandom(150_000), os.urandom(90_000), os.urandom(300_000)]
    data = [
        b"".join(sealer.seal(zmtp.message([b"head", body])))
        for (sealer, _), body in zip(ends, bodies, strict=True)
    ]
    for start in range(0, 310_000, 7_001):
        for (_, reader), each in zip(ends, data, strict=True):
            reader.feed(each[start : start + 7_001])
    assert [plain(reader.messages[0])[1] for _, reader in ends] == bodies


def test_what_is_kept_does_not_change_with_the_desk() -> None:
    sealer, reader = tunnel()
    pieces = [zmtp.message([b"head", os.urandom(size)]) for size in (100_000, 200_000, 300_000)]
    waiting = [noise_transport.kept(each) for some in pieces for each in sealer.seal(some)]
    reader.feed(b"".join(waiting))
    assert [b"".join(zmtp.message(each)) for each in reader.messages] == [
        b"".join(some) for some in pieces
    ]
    assert (
        bytes(noise_transport.kept(b"abc", 1))
        == bytes(noise_transport.kept(memoryview(b"abc"), 1))
        == b"bc"
    )


def test_commands_stand_beside_messages() -> None:
    sealer, reader = tunnel()
    reader.feed(b"".join(sealer.seal([zmtp.ready(b"DEALER")])))
    assert zmtp.kind_of(reader.commands[0]) == b"DEALER"
    assert reader.messages == []


@pytest.mark.parametrize("record", [b"\x00\x00", b"\x00\x0f" + bytes(15), b"\x00\x10" + bytes(16)])
def test_what_is_not_sealed_is_refused(record: bytes) -> None:
    _, reader = tunnel()
    with pytest.raises(ProtocolError):
        reader.feed(record)


@settings(deadline=None)
@given(st.binary(min_size=2, max_size=200), st.integers(0, 200))
def test_garbage_is_refused_or_waited_for(garbage: bytes, cut: int) -> None:
    _, reader = tunnel()
    try:
        reader.feed(garbage[:cut])
        reader.feed(garbage[cut:])
    except ProtocolError:
        return
    assert reader.messages == []
    assert reader.lacks > 0


@pytest.mark.parametrize("place", [0, 1, 2, 30, 70_000])
def test_a_flipped_bit_is_noticed(place: int) -> None:
    sealer, reader = tunnel(rooms=True)
    data = bytearray(b"".join(sealer.seal(zmtp.message([b"head", bytes(100_000)]))))
    data[place] ^= 4
    with pytest.raises(ProtocolError):
        reader.feed(bytes(data) + bytes(70_000))
    assert reader.messages == []


def test_a_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    sealer, reader = tunnel()
    with pytest.raises(ProtocolError, match="more than"):
        reader.feed(b"".join(sealer.seal([b"\x02" + (MAX + 1).to_bytes(8, "big")])))


def test_the_greetings_are_part_of_the_handshake() -> None:
    secret = os.urandom(32)
    changed = noise_transport.CALLED[:-1] + b"\x01"
    caller = noise_transport.call(noise.public_of(secret), changed)
    with pytest.raises(ProtocolError):
        noise_transport.hear(
            noise_transport.called(secret, noise_transport.CALLS), noise_transport.say(caller)
        )
