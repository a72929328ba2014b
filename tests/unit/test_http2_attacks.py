"""Each attack on an HTTP/2 connection meets its limit, and a busy honest client does not."""

from __future__ import annotations

import pytest

from tests.unit.http2_client import HEAD, LAST, REQUEST, TRAILERS, Http2Client
from weft.transport import http2_frames as h2
from weft.transport.http2_limits import (
    BLOCK_FRAMES_MAX,
    IDLE_FRAMES_MAX,
    PING_INTERVAL_S,
    RESETS_MAX,
    SETTINGS_MAX,
    STREAMS_MAX,
)


def test_rapid_reset() -> None:
    client = Http2Client()
    for count in range(RESETS_MAX + 1):
        assert not client.connection.closing, count
        client.send(client.head() + h2.reset(client.next - 2, h2.CANCEL))
    assert client.ended_with() == h2.ENHANCE_YOUR_CALM


def test_made_you_reset() -> None:
    """The client makes the node reset its own streams, with an invalid window update."""
    client = Http2Client()
    for count in range(RESETS_MAX + 1):
        assert not client.connection.closing, count
        client.send(client.head() + h2.window_update(client.next - 2, 0))
    assert client.ended_with() == h2.ENHANCE_YOUR_CALM


def test_answered_calls_allow_as_many_cancelled_ones() -> None:
    client = Http2Client()
    for _ in range(3 * RESETS_MAX):
        client.connection.respond(client.request(), HEAD, [], TRAILERS, LAST)
        client.send(client.head() + h2.reset(client.next - 2, h2.CANCEL))
    assert not client.connection.closing


def test_more_streams_than_allowed_are_refused_one_by_one() -> None:
    client = Http2Client()
    for _ in range(STREAMS_MAX):
        assert not client.opened().closed
    client.taken()
    client.send(client.head())
    (refused,) = client.taken()
    assert (refused.kind, refused.code) == (h2.RST_STREAM, h2.REFUSED_STREAM)
    for _ in range(RESETS_MAX):
        client.send(client.head())
    assert client.ended_with() == h2.ENHANCE_YOUR_CALM


def test_a_flood_of_continuations() -> None:
    client = Http2Client()
    client.send(h2.frame(h2.HEADERS, 0, 1, b""))
    for _ in range(BLOCK_FRAMES_MAX):
        client.send(h2.frame(h2.CONTINUATION, 0, 1, b""))
    assert client.ended_with() == h2.ENHANCE_YOUR_CALM


def test_a_long_header_block() -> None:
    client = Http2Client()
    client.send(h2.frame(h2.HEADERS, 0, 1, bytes(16_000)))
    client.send(h2.frame(h2.CONTINUATION, 0, 1, bytes(1_000)))
    assert client.ended_with() == h2.ENHANCE_YOUR_CALM


def test_a_bomb_of_header_indexes() -> None:
    client = Http2Client()
    client.send(client.head(fields=[*REQUEST, (b"x", b"v" * 3900)]))
    client.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 3, b"\xbe" * 8_000))
    assert client.ended_with() == h2.COMPRESSION_ERROR


def test_header_table_churn_keeps_the_memory_bounded() -> None:
    client = Http2Client()
    connection = client.connection
    for count in range(2_000):
        fields = [*REQUEST, (b"x-%d" % count, b"v" * 100)]
        client.send(client.head(fields=fields, flags=h2.END_HEADERS | h2.END_STREAM))
        stream = connection.streams[client.next - 2]
        connection.respond(stream, HEAD, [], TRAILERS, LAST)
        client.taken()
    assert len(connection._heads) <= 256
    assert len(connection._decoder.known) <= 256
    assert connection._decoder._table._size <= 4096
    assert len(connection._decoder._strings) <= 256


@pytest.mark.parametrize(
    "frame",
    [
        h2.frame(h2.SETTINGS, 0, 0),
        h2.frame(h2.SETTINGS, h2.ACK, 0),
        h2.frame(h2.PING, h2.ACK, 0, bytes(8)),
        h2.frame(h2.PRIORITY, 0, 1, bytes(5)),
        h2.frame(h2.PRIORITY, 0, 7, bytes(5)),
        h2.frame(h2.DATA, 0, 1),
        h2.frame(h2.DATA, 0, 1, b"x"),
        h2.frame(h2.DATA, h2.PADDED, 1, b"\x08" + bytes(8)),
        h2.window_update(0, 1),
        h2.window_update(1, 1),
        h2.frame(h2.GOAWAY, 0, 0, bytes(8)),
        h2.frame(0x77, 0, 0),
    ],
    ids=[
        "settings", "settings ack", "ping ack", "priority", "priority of an idle stream",
        "empty data", "data byte by byte", "padding", "connection window", "stream window",
        "goaway", "unknown",
    ],
)  # fmt: skip
def test_a_flood_of_frames_without_effect(frame: bytes) -> None:
    client = Http2Client()
    client.opened()
    assert IDLE_FRAMES_MAX > 1000
    client.send(frame * (IDLE_FRAMES_MAX - 10))
    assert not client.connection.closing
    client.taken()
    client.send(frame * 20)
    assert client.ended_with() == h2.ENHANCE_YOUR_CALM


def test_progress_clears_the_count() -> None:
    client = Http2Client()
    for _ in range(5):
        client.send(h2.window_update(0, 1) * (IDLE_FRAMES_MAX - 100))
        client.connection.respond(client.request(), HEAD, [], TRAILERS, LAST)
    assert not client.connection.closing
    client.send(h2.window_update(0, 1) * (IDLE_FRAMES_MAX - 100))
    client.connection.note_progress()
    client.send(h2.window_update(0, 1) * (IDLE_FRAMES_MAX - 100))
    assert not client.connection.closing


def test_a_flood_of_pings() -> None:
    client = Http2Client()
    ping = h2.frame(h2.PING, 0, 0, b"12345678")
    client.send(ping * 3)
    assert [each.flags for each in client.taken()] == [h2.ACK] * 3
    client.send(ping)
    assert client.ended_with() == h2.ENHANCE_YOUR_CALM


def test_pings_after_answers_or_at_intervals_are_allowed() -> None:
    client = Http2Client()
    ping = h2.frame(h2.PING, 0, 0, b"12345678")
    for _ in range(20):  # a client that measures the round trip after each answer
        client.connection.respond(client.request(), HEAD, [], TRAILERS, LAST)
        client.send(ping)
    for _ in range(20):
        client.connection.now += PING_INTERVAL_S
        client.send(ping)
    assert not client.connection.closing


def test_a_busy_client_may_ping_for_each_data_frame_of_a_burst() -> None:
    """Go's client pings when it has read data, and reads a burst of answers piece by piece."""
    client = Http2Client()
    ping = h2.frame(h2.PING, 0, 0, b"12345678")
    stream = client.request()
    client.connection.send_head(stream, HEAD)
    for _ in range(20):
        client.connection.send_data(stream, [b"some data"])
    for _ in range(20):  # nothing is sent in between but the answers to the pings
        client.send(ping)
    assert not client.connection.closing
    client.send(ping * 4)
    assert client.ended_with() == h2.ENHANCE_YOUR_CALM


def test_many_settings_in_a_frame() -> None:
    client = Http2Client()
    client.send(h2.frame(h2.SETTINGS, 0, 0, h2.setting.pack(0x99, 1) * (SETTINGS_MAX + 1)))
    assert client.ended_with() == h2.ENHANCE_YOUR_CALM


def test_a_reset_stream_frees_its_queued_answer() -> None:
    client = Http2Client(settings=h2.setting.pack(h2.INITIAL_WINDOW_SIZE, 0))
    stream = client.request()
    client.connection.respond(stream, HEAD, [bytes(10_000)], TRAILERS, LAST)
    assert client.connection.queued_bytes == 10_000
    client.send(h2.reset(stream.number, h2.CANCEL))
    assert client.connection.queued_bytes == 0
    assert not client.connection._blocked
