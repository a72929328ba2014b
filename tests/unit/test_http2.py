"""The server's HTTP/2 connection: requests, responses, flow control, faults."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.http2_client import HEAD, LAST, REQUEST, TRAILERS, Http2Client
from weft.transport import http2_frames as h2
from weft.transport.http2 import GREETING, Http2Connection
from weft.transport.http2_limits import STREAM_WINDOW


def test_a_request_and_its_response() -> None:
    client = Http2Client()
    stream = client.request(b"question")
    assert stream.ended
    assert stream.head.path == b"/some.Service/Method"
    assert b"".join(stream.chunks) == b"question"
    client.connection.respond(stream, HEAD, [b"ans", b"wer"], TRAILERS, LAST)
    head, data, trailers = client.taken()
    assert client.fields(head) == list(HEAD)
    assert data.payload == b"answer"
    assert client.fields(trailers) == [*TRAILERS, LAST]
    assert trailers.flags == h2.END_HEADERS | h2.END_STREAM
    assert stream.closed
    assert not client.connection.streams


def test_the_third_response_has_few_bytes_of_headers() -> None:
    client = Http2Client()
    for count in range(3):
        last = (b"x-request-id", b"id-%d" % count)
        client.connection.respond(client.request(), HEAD, [b"x"], TRAILERS, last)
        head, _, trailers = client.taken()
        client.fields(head)
        assert client.fields(trailers) == [*TRAILERS, last]
    assert len(head.payload) + len(trailers.payload) == 3 + 3 + len(last[1])


@given(st.data())
def test_bytes_may_arrive_in_any_pieces(data: st.DataObject) -> None:
    whole = Http2Client()
    sent = b"".join(
        whole.head() + h2.frame(h2.DATA, h2.END_STREAM, number, bytes(number))
        for number in (1, 3, 5)
    )
    client = Http2Client()
    news = []
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        news += client.send(sent[:size])
        sent = sent[size:]
    bodies = {stream.number: b"".join(stream.chunks) for stream in news}
    assert bodies == {1: bytes(1), 3: bytes(3), 5: bytes(5)}
    assert all(stream.ended for stream in news)


def test_the_node_speaks_first() -> None:
    assert Http2Connection().output == [GREETING]


def test_a_body_waits_for_the_windows_and_trailers_wait_for_the_body() -> None:
    client = Http2Client(settings=h2.setting.pack(h2.INITIAL_WINDOW_SIZE, 10))
    stream = client.request()
    client.connection.respond(stream, HEAD, [bytes(25)], TRAILERS, LAST)
    head, data = client.taken()
    assert client.fields(head) == list(HEAD)
    assert len(data.payload) == 10
    assert client.connection.queued_bytes == 15
    client.send(h2.window_update(stream.number, 5))
    (data,) = client.taken()
    assert len(data.payload) == 5
    client.send(h2.frame(h2.SETTINGS, 0, 0, h2.setting.pack(h2.INITIAL_WINDOW_SIZE, 100)))
    _, data, trailers = client.taken()
    assert len(data.payload) == 10
    assert client.fields(trailers) == [*TRAILERS, LAST]
    assert client.connection.queued_bytes == 0
    assert stream.closed


def test_the_connection_window_holds_back_all_streams() -> None:
    client = Http2Client(settings=h2.setting.pack(h2.INITIAL_WINDOW_SIZE, 1 << 20))
    first, second = client.request(), client.request()
    for stream in (first, second):
        client.connection.respond(stream, HEAD, [bytes(40_000)], TRAILERS, LAST)
    sent = sum(len(each.payload) for each in client.taken() if each.kind == h2.DATA)
    assert sent == h2.WINDOW_DEFAULT
    client.send(h2.window_update(0, 100_000))
    sent += sum(len(each.payload) for each in client.taken() if each.kind == h2.DATA)
    assert sent == 80_000


def test_a_stream_with_room_again_is_reported() -> None:
    client = Http2Client(settings=h2.setting.pack(h2.INITIAL_WINDOW_SIZE, 10))
    stream = client.request()
    client.connection.send_head(stream, HEAD)
    client.connection.send_data(stream, [bytes(20)])
    assert client.send(h2.window_update(stream.number, 100)) == [stream]
    assert stream.queue is None


def test_the_client_gets_a_new_window_for_what_the_owner_has_taken() -> None:
    client = Http2Client()
    stream = client.opened()
    for _ in range(STREAM_WINDOW // 16_384):
        client.send(h2.frame(h2.DATA, 0, stream.number, bytes(16_384)))
    assert [each for each in client.taken() if each.number == stream.number] == []
    client.connection.grant(stream)
    (update,) = client.taken()
    assert (update.kind, update.number) == (h2.WINDOW_UPDATE, stream.number)
    client.send(h2.frame(h2.DATA, 0, stream.number, b"more"))
    assert not stream.closed


def test_more_than_the_stream_window_is_a_fault() -> None:
    client = Http2Client()
    stream = client.opened()
    for _ in range(STREAM_WINDOW // 16_384 + 1):
        client.send(h2.frame(h2.DATA, 0, stream.number, bytes(16_384)))
    assert stream.closed
    last = client.taken()[-1]
    assert (last.kind, last.code) == (h2.RST_STREAM, h2.FLOW_CONTROL_ERROR)


def test_a_response_before_the_end_of_the_request_resets_the_stream() -> None:
    client = Http2Client()
    stream = client.opened()
    client.connection.respond(stream, HEAD, [], TRAILERS, LAST)
    assert client.taken()[-1].code == h2.NO_ERROR
    client.send(h2.frame(h2.DATA, h2.END_STREAM, stream.number, b"late"))
    assert not client.connection.closing, "frames that were under way are ignored"
    assert client.taken() == []


def test_a_client_that_resets_closes_its_stream() -> None:
    client = Http2Client()
    stream = client.opened()
    assert client.send(h2.reset(stream.number, h2.CANCEL)) == [stream]
    assert stream.closed


def test_trailers_end_a_request() -> None:
    client = Http2Client()
    stream = client.opened()
    flags = h2.END_HEADERS | h2.END_STREAM
    client.send(client.head(stream.number, fields=[(b"x", b"y")], flags=flags))
    assert stream.ended


def test_a_header_block_in_three_frames() -> None:
    client = Http2Client()
    block = bytes(client.encoder.encode(REQUEST))
    (stream,) = client.send(
        h2.frame(h2.HEADERS, h2.END_STREAM, 3, block[:3])
        + h2.frame(h2.CONTINUATION, 0, 3, block[3:5])
        + h2.frame(h2.CONTINUATION, h2.END_HEADERS, 3, block[5:])
    )
    assert stream.ended
    assert stream.head.method == b"POST"


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        (b":method", None),
        (b":path", None),
        (b":path", b""),
        (b":scheme", None),
        (b"te", b"gzip"),
        (b"connection", b"close"),
        (b"Upper", b"x"),
        (b"a b", b"x"),
        (b"x", b"line\nbreak"),
        (b"x", b" space"),
        (b":status", b"200"),
        (b"content-length", b"many"),
        (b"content-length", b"7"),
    ],
)
def test_a_malformed_request_resets_its_stream(changed: bytes, value: bytes | None) -> None:
    client = Http2Client()
    fields = [(name, old) for name, old in REQUEST if name != changed]
    if value is not None:
        fields.append((changed, value))
    client.send(client.head(fields=fields, flags=h2.END_HEADERS | h2.END_STREAM))
    (last,) = client.taken()
    assert (last.kind, last.code) == (h2.RST_STREAM, h2.PROTOCOL_ERROR)
    assert not client.connection.closing


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (h2.frame(h2.DATA, 0, 1, b"x"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.DATA, 0, 0, b"x"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.HEADERS, h2.END_HEADERS, 2, b"\x82"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff"), h2.COMPRESSION_ERROR),
        (h2.frame(h2.HEADERS, h2.END_HEADERS | h2.PADDED, 1, b"\x09a"), h2.PROTOCOL_ERROR),
        (h2.frame(h2.HEADERS, 0, 1, b"") + h2.frame(h2.PING, 0, 0, bytes(8)), h2.PROTOCOL_ERROR),
        (h2.frame(h2.CONTINUATION, 0, 1, b""), h2.PROTOCOL_ERROR),
        (h2.frame(h2.SETTINGS, 0, 1, b""), h2.PROTOCOL_ERROR),
        (h2.frame(h2.SETTINGS, 0, 0, b"abc"), h2.FRAME_SIZE_ERROR),
        (h2.frame(h2.SETTINGS, h2.ACK, 0, bytes(6)), h2.FRAME_SIZE_ERROR),
        (h2.frame(h2.SETTINGS, 0, 0, h2.setting.pack(2, 2)), h2.PROTOCOL_ERROR),
        (h2.frame(h2.SETTINGS, 0, 0, h2.setting.pack(4, 1 << 31)), h2.FLOW_CONTROL_ERROR),
        (h2.frame(h2.SETTINGS, 0, 0, h2.setting.pack(5, 1)), h2.PROTOCOL_ERROR),
        (h2.frame(h2.PING, 0, 1, bytes(8)), h2.PROTOCOL_ERROR),
        (h2.frame(h2.PING, 0, 0, bytes(7)), h2.FRAME_SIZE_ERROR),
        (h2.frame(h2.GOAWAY, 0, 1, bytes(8)), h2.PROTOCOL_ERROR),
        (h2.frame(h2.PUSH_PROMISE, 0, 1, bytes(8)), h2.PROTOCOL_ERROR),
        (h2.frame(h2.PRIORITY, 0, 0, bytes(5)), h2.PROTOCOL_ERROR),
        (h2.frame(h2.RST_STREAM, 0, 1, bytes(4)), h2.PROTOCOL_ERROR),
        (h2.frame(h2.RST_STREAM, 0, 1, bytes(3)), h2.FRAME_SIZE_ERROR),
        (h2.window_update(0, 0), h2.PROTOCOL_ERROR),
        (h2.window_update(1, 1), h2.PROTOCOL_ERROR),
        (h2.window_update(0, h2.NUMBER_MAX), h2.FLOW_CONTROL_ERROR),
        (h2.frame(h2.WINDOW_UPDATE, 0, 0, b""), h2.FRAME_SIZE_ERROR),
        (h2.frame_header.pack(16_385 << 8, 0, 1), h2.FRAME_SIZE_ERROR),
    ],
)
def test_a_fault_of_the_client_ends_the_connection(sent: bytes, code: int) -> None:
    client = Http2Client()
    client.send(sent)
    assert client.ended_with() == code
    assert client.send(client.head()) == [], "nothing is read after the end"


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n", b"\0" * 9, b"PRI * HTTP/2.0\r\n\r\nXX"])
def test_what_is_not_http2_ends_the_connection(first: bytes) -> None:
    connection = Http2Connection()
    connection.receive(first)
    assert connection.closing


def test_the_end_of_a_connection_closes_its_streams() -> None:
    client = Http2Client()
    stream = client.opened()
    assert client.send(h2.frame(h2.PUSH_PROMISE, 0, 1)) == [stream]
    assert stream.closed


def test_a_stopping_node_accepts_streams_after_the_announcement() -> None:
    client = Http2Client()
    client.connection.announce_end()
    (goaway,) = client.taken()
    assert goaway.payload[:4] == h2.uint32.pack(h2.NUMBER_MAX)
    assert client.request().ended


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 255), st.integers(0, 9),
                          st.binary(max_size=30)), max_size=30))  # fmt: skip
def test_any_frames_are_answered_or_refused(sent: list[tuple[int, int, int, bytes]]) -> None:
    client = Http2Client()
    client.opened()
    for each in sent:
        client.send(h2.frame(*each))
    client.taken()
    assert all(not stream.closed for stream in client.connection.streams.values())
