"""Attacks on the gRPC port of a real node: each meets its limit, and other clients are served."""

from __future__ import annotations

import gc
import gzip
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tests.contract.http2_socket import PATIENCE_S, Http2Socket, framed
from tests.contract.served import Served, eventually, serve
from weft.limits import GRPC_BYTES_MAX
from weft.proto import weft_pb2 as pb
from weft.server.edges import grpc_connection, native_grpc_edge, socket_edge
from weft.server.edges.grpc_code import GrpcCode
from weft.server.edges.native_call import NativeExchange
from weft.transport import http2_frames as h2
from weft.transport.http2_limits import IDLE_FRAMES_MAX, RESETS_MAX, STREAMS_MAX

POP = "/weft.v1.Queue/Pop"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = serve(tmp_path_factory.mktemp("data"), grpc_server="native")
    yield served
    served.close()


@pytest.fixture
def client(served: Served) -> Iterator[Http2Socket]:
    """A hostile client; afterwards, an honest one is served."""
    name = served.make()
    with Http2Socket(served.address) as client:
        yield client
        served.push(name, b"x")
        assert len(served.pop(name)) == 1


def resets(client: Http2Socket, queue: str) -> Iterator[bytes]:
    for _ in range(RESETS_MAX + 1):
        number = client.next
        yield client.pop(queue, wait_ms=60_000) + h2.reset(number, h2.CANCEL)


def made_resets(client: Http2Socket, queue: str) -> Iterator[bytes]:
    for _ in range(RESETS_MAX + 1):
        number = client.next
        yield client.pop(queue, wait_ms=60_000) + h2.window_update(number, 0)


def continuations(client: Http2Socket, queue: str) -> Iterator[bytes]:
    yield h2.frame(h2.HEADERS, 0, 1, b"")
    yield h2.frame(h2.CONTINUATION, 0, 1, b"") * 100


def idle_frames(client: Http2Socket, queue: str) -> Iterator[bytes]:
    yield client.head(POP)
    for frame in (
        h2.frame(h2.SETTINGS, 0, 0),
        h2.frame(h2.PRIORITY, 0, 1, bytes(5)),
        h2.window_update(0, 1),
        h2.frame(h2.DATA, 0, 1),
        h2.frame(h2.DATA, 0, 1, b"\0"),
    ):
        yield frame * (IDLE_FRAMES_MAX // 5 + 1)


def pings(client: Http2Socket, queue: str) -> Iterator[bytes]:
    yield h2.frame(h2.PING, 0, 0, bytes(8)) * 10


def streams(client: Http2Socket, queue: str) -> Iterator[bytes]:
    for _ in range(STREAMS_MAX + RESETS_MAX + 1):
        yield client.pop(queue, wait_ms=60_000)


def header_bomb(client: Http2Socket, queue: str) -> Iterator[bytes]:
    yield client.head(POP, x="v" * 3_900)
    yield h2.frame(h2.HEADERS, h2.END_HEADERS, 3, b"\xbe" * 8_000)


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        (resets, h2.ENHANCE_YOUR_CALM),
        (made_resets, h2.ENHANCE_YOUR_CALM),
        (continuations, h2.ENHANCE_YOUR_CALM),
        (idle_frames, h2.ENHANCE_YOUR_CALM),
        (pings, h2.ENHANCE_YOUR_CALM),
        (streams, h2.ENHANCE_YOUR_CALM),
        (header_bomb, h2.COMPRESSION_ERROR),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_flood_ends_the_connection_and_cancels_its_calls(
    served: Served,
    client: Http2Socket,
    attack: Callable[[Http2Socket, str], Iterator[bytes]],
    code: int,
) -> None:
    name = served.make()
    for sent in attack(client, name):
        client.send(sent)
    assert client.goaway() == code
    assert client.closed()
    eventually(lambda: served.describe(name).waiting_pops == 0)


def test_a_client_without_a_preface_is_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = served.address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as silent:
        eventually(lambda: bool(served.node.edge._strangers))
        monkeypatch.setattr(socket_edge, "HANDSHAKE_MS", 0)
        while silent.recv(1000):
            pass  # the node's own SETTINGS


def test_what_is_not_http2_is_closed(served: Served) -> None:
    host, _, port = served.address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        while browser.recv(1000):
            pass


def test_a_long_message_is_refused_by_its_length(client: Http2Socket) -> None:
    number = client.next
    client.send(client.head(POP))
    client.send(h2.frame(h2.DATA, 0, number, framed(b"")[:1] + h2.uint32.pack(GRPC_BYTES_MAX + 1)))
    fields = client.answered(number)
    assert fields["grpc-status"] == str(GrpcCode.RESOURCE_EXHAUSTED.value)
    assert str(GRPC_BYTES_MAX) in fields["grpc-message"]


def test_a_compressed_bomb_is_refused(client: Http2Socket) -> None:
    bomb = gzip.compress(bytes(GRPC_BYTES_MAX + 1))
    number = client.next
    client.send(client.head(POP, grpc_encoding="gzip"))
    whole = framed(bomb, 1)
    for place in range(0, len(whole), h2.FRAME_BYTES_MAX):
        piece = whole[place : place + h2.FRAME_BYTES_MAX]
        last = place + len(piece) == len(whole)
        client.send(h2.frame(h2.DATA, h2.END_STREAM if last else 0, number, piece))
    fields = client.answered(number)
    assert fields["grpc-status"] == str(GrpcCode.RESOURCE_EXHAUSTED.value)


def test_many_incomplete_messages_are_refused_one_by_one(
    client: Http2Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_connection, "ASSEMBLED_BYTES_MAX", 100_000)
    numbers = []
    for _ in range(10):
        numbers.append(client.next)
        client.send(client.head(POP))
        client.send(h2.frame(h2.DATA, 0, numbers[-1], framed(bytes(20_000))[:15_000]))
    fields = client.answered(numbers[6])
    assert fields["grpc-status"] == str(GrpcCode.RESOURCE_EXHAUSTED.value)
    rest = h2.frame(h2.DATA, h2.END_STREAM, numbers[0], framed(bytes(20_000))[15_000:])
    client.send(rest)
    assert client.answered(numbers[0])["grpc-status"] == str(GrpcCode.INVALID_ARGUMENT.value)


def test_complete_messages_of_requests_without_an_end_count_too(
    client: Http2Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_connection, "ASSEMBLED_BYTES_MAX", 100_000)
    numbers = []
    for _ in range(7):
        numbers.append(client.next)
        client.send(client.head(POP))
        client.send(h2.frame(h2.DATA, 0, numbers[-1], framed(bytes(15_000))))
    fields = client.answered(numbers[6])
    assert fields["grpc-status"] == str(GrpcCode.RESOURCE_EXHAUSTED.value)
    client.send(h2.frame(h2.DATA, h2.END_STREAM, numbers[0]))
    assert client.answered(numbers[0])["grpc-status"] == str(GrpcCode.INVALID_ARGUMENT.value)


def test_a_client_with_a_closed_window_gets_no_more_than_the_budget(
    served: Served, tmp_path: Path
) -> None:
    """The messages of answers that wait for the window are given back when the client leaves."""
    name = served.make()
    body = bytes(1 << 20)
    for _ in range(10):
        served.push(name, body, body)
    settings = h2.setting.pack(h2.INITIAL_WINDOW_SIZE, 0)
    with Http2Socket(served.address, settings=settings) as slow:
        for _ in range(40):
            slow.send(slow.pop(name))
        eventually(lambda: served.describe(name).leased >= 8)
        time.sleep(0.3)
        held = max(each.held for each in served.node.edge._by_number.values())
        assert held < 20 << 20, "the budget of a connection is 16 MiB, and one answer more"
        leased = served.describe(name).leased
        assert leased < 20
    eventually(lambda: served.describe(name).leased == 0)
    assert served.describe(name).ready == 20
    (message,) = served.pop(name)
    assert message.deliveries == 1, "no client has seen it before"


def test_a_client_that_reads_nothing_is_not_read_either(served: Served) -> None:
    """The kernel's buffers fill up, then a mebibyte of the node's, and no more."""
    name = served.make()
    for _ in range(8):
        served.push(name, bytes(1 << 20), bytes(1 << 20))
    window = h2.setting.pack(h2.INITIAL_WINDOW_SIZE, h2.NUMBER_MAX)
    with Http2Socket(served.address, settings=window) as slow:
        slow.send(h2.window_update(0, h2.NUMBER_MAX - h2.WINDOW_DEFAULT))
        for _ in range(30):
            slow.send(slow.pop(name))
        eventually(lambda: any(each.stalled for each in served.node.edge._by_number.values()))
    eventually(lambda: served.describe(name).waiting_pops == 0)
    eventually(lambda: served.describe(name).ready + served.describe(name).leased == 16)


def test_a_silent_client_is_pinged_and_dropped(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = served.make()
    with Http2Socket(served.address) as silent:
        silent.send(silent.pop(name, wait_ms=60_000))
        eventually(lambda: served.describe(name).waiting_pops == 1)
        monkeypatch.setattr(native_grpc_edge, "KEEPALIVE_S", 0.1)
        silent.until(lambda each: each.kind == h2.PING and not each.flags)
        monkeypatch.setattr(native_grpc_edge, "KEEPALIVE_TIMEOUT_S", 0.1)
        eventually(lambda: served.describe(name).waiting_pops == 0)


def test_more_connections_than_allowed_are_closed(tmp_path: Path) -> None:
    few = serve(tmp_path, grpc_server="native", connections_max=2)
    try:
        few.make()
        with Http2Socket(few.address), Http2Socket(few.address) as over:
            assert over.closed()
    finally:
        few.close()


def test_a_call_after_its_deadline_is_cancelled(served: Served) -> None:
    """A client that keeps neither its own deadline nor its connection busy."""
    name = served.make()
    with Http2Socket(served.address) as client:
        number = client.next
        asked = pb.ConsumeRequest(queue=name).SerializeToString()
        client.send(client.request("/weft.v1.Queue/Consume", asked, grpc_timeout="300m"))
        eventually(lambda: served.describe(name).waiting_pops == 1)
        fields = client.answered(number)
        assert fields["grpc-status"] == str(GrpcCode.DEADLINE_EXCEEDED.value)
        assert fields["weft-code"] == "DEADLINE_EXCEEDED"
        eventually(lambda: served.describe(name).waiting_pops == 0)


def exchanges() -> int:
    return sum(isinstance(each, NativeExchange) for each in gc.get_objects())


def test_an_ended_call_is_freed_without_the_collector(served: Served) -> None:
    """Else the calls of a busy moment, with the payloads of their pushes, would pile up."""
    name = served.make()
    gc.collect()
    gc.disable()
    try:
        before = exchanges()  # cancelled calls of other tests, which the node remembers
        for _ in range(20):
            served.push(name, b"x")
            assert len(served.pop(name)) == 1
            with pytest.raises(grpc.RpcError):
                served.pop("absent")
        added = exchanges() - before
    finally:
        gc.enable()
    assert added <= 2, f"{added} of 60 calls are still there"
