"""The client's own connection against real sockets: it reconnects and never blocks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq

from weft.client.transport.connection import (
    BLINK_MS,
    DOWN,
    READABLE,
    REFUSED,
    UP,
    WRITABLE,
    ConnectionEnded,
)
from weft.client.transport.tcp_connection import TcpConnection
from weft.errors import InvalidArgument
from weft.transport import zmtp

PATIENCE_S = 10.0


class Nodes:
    """Sockets of ZeroMQ's own library."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._made: list[zmq.Socket[bytes]] = []

    def router(self, port: int = 0, key: bytes = b"") -> tuple[zmq.Socket[bytes], int]:
        made = self._context.socket(zmq.ROUTER)
        self._made.append(made)
        made.RCVTIMEO = int(PATIENCE_S * 1000)
        made.LINGER = 0
        if key:
            made.curve_server = True
            made.curve_secretkey = key
        made.bind(f"tcp://127.0.0.1:{port or '*'}")
        endpoint = made.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        return made, int(endpoint.rstrip(b"\0").rsplit(b":", 1)[1])

    def close(self) -> None:
        for made in self._made:
            made.close(0)
        self._context.term()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A listening socket for a hand-made node."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@contextmanager
def direct(address: str) -> Iterator[TcpConnection]:
    made = TcpConnection(address)
    try:
        yield made
    finally:
        made.close(0)


def until(connection: TcpConnection, so: Callable[[list[int]], bool]) -> list[int]:
    """All state changes until the condition holds."""
    seen: list[int] = []
    end = time.monotonic() + PATIENCE_S
    while not so(seen):
        assert time.monotonic() < end, seen
        connection.wait(0.05, for_room=False)
        seen += connection.changes()
    return seen


def talk(connection: TcpConnection, node: zmq.Socket[bytes], frames: list[bytes]) -> list[bytes]:
    """Send the frames and return the echoed frames."""
    assert connection.send(frames)
    heard: list[list[bytes]] = []
    hears = threading.Thread(target=lambda: heard.append(node.recv_multipart()))
    hears.start()
    while hears.is_alive():  # flush the bytes that the kernel did not take at once
        connection.wait(0.01, for_room=False)
    node.send_multipart(heard[0])
    end = time.monotonic() + PATIENCE_S
    while (answer := connection.receive()) is None:
        assert time.monotonic() < end
        connection.wait(0.05, for_room=False)
    assert heard[0][1:] == frames
    return list(map(bytes, answer))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_it_talks_with_zeromqs_own_router(nodes: Nodes, host: str) -> None:
    node, port = nodes.router()
    with direct(f"{host}:{port}") as connection:
        assert until(connection, bool) == [UP]
        for frames in ([b"a"], [b"", bytes(255), bytes(256)], [b"large", bytes(9 << 20)]):
            assert talk(connection, node, frames) == frames
        assert connection.state() == WRITABLE


def test_a_lost_connection_is_made_again(nodes: Nodes) -> None:
    node, port = nodes.router()
    with direct(f"127.0.0.1:{port}") as connection:
        until(connection, bool)
        node.close(0)
        seen = until(connection, lambda seen: REFUSED in seen)
        assert seen[0] == DOWN
        assert not connection.send([b"nobody is there"])
        assert connection.due() < float("inf")
        again, _ = nodes.router(port)
        assert until(connection, lambda seen: UP in seen)[-1] == UP
        assert talk(connection, again, [b"back"]) == [b"back"]


def test_what_came_before_the_end_is_still_read(server: socket.socket) -> None:
    with direct(f"127.0.0.1:{server.getsockname()[1]}") as connection:
        made = greeted(server, connection)
        made.sendall(b"".join(zmtp.message([b"last", b"words"])))
        made.close()
        until(connection, lambda seen: DOWN in seen or bool(connection.state() & READABLE))
        assert connection.receive() == [b"last", b"words"]
        assert DOWN in until(connection, lambda seen: DOWN in seen)


def greeted(server: socket.socket, connection: TcpConnection) -> socket.socket:
    """A hand-made node, up to READY."""
    connection.wait(0.1, for_room=False)
    made, _ = server.accept()
    made.settimeout(PATIENCE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.sendall(zmtp.GREETING)
    connection.wait(0.1, for_room=False)
    made.sendall(zmtp.ready(b"ROUTER"))
    assert until(connection, bool) == [UP]
    heard = b""
    while len(heard) < zmtp.GREETING_BYTES + len(zmtp.ready(b"DEALER")):
        heard += made.recv(4096)
    return made


def test_answer_waits_for_a_blink_and_no_longer(server: socket.socket) -> None:
    with direct(f"127.0.0.1:{server.getsockname()[1]}") as connection:
        made = greeted(server, connection)
        began = time.monotonic()
        assert connection.answer() is None
        took = time.monotonic() - began
        assert BLINK_MS / 1000 * 0.9 <= took < PATIENCE_S
        made.sendall(b"".join(zmtp.message([b"there"])))
        assert connection.answer() == [b"there"]
        made.close()


def test_a_ping_is_answered(server: socket.socket) -> None:
    with direct(f"127.0.0.1:{server.getsockname()[1]}") as connection:
        made = greeted(server, connection)
        ping = b"\x04PING\x00\x00hello"
        made.sendall(bytes((4, len(ping))) + ping)
        assert connection.answer() is None
        assert made.recv(100) == b"\x04\x0a\x04PONGhello"
        made.close()


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 400 no\r\n".ljust(80),
        b"\xff" + bytes(79),
        zmtp.GREETING + zmtp.ready(b"DEALER"),  # as if connected to itself
        zmtp.GREETING + b"\x04\x05\x04PING",
    ],
)
def test_what_is_not_a_node_is_refused(server: socket.socket, first: bytes) -> None:
    with direct(f"127.0.0.1:{server.getsockname()[1]}") as connection:
        connection.wait(0.1, for_room=False)
        made, _ = server.accept()
        made.sendall(first)
        assert until(connection, bool) == [REFUSED]
        made.close()


def test_an_encrypted_node_is_refused(nodes: Nodes) -> None:
    _, port = nodes.router(key=zmq.curve_keypair()[1])
    with direct(f"127.0.0.1:{port}") as connection:
        assert until(connection, bool)[0] == REFUSED


def test_a_node_that_is_not_there_is_tried_less_and_less_often() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with direct(f"127.0.0.1:{port}") as connection:
        began = time.monotonic()
        seen = until(connection, lambda seen: len(seen) >= 4)
        assert set(seen) == {REFUSED}
        assert time.monotonic() - began >= (50 + 100 + 200) / 1000


def test_a_name_that_does_not_exist_is_refused_without_a_wait() -> None:
    began = time.monotonic()
    with direct("no-such-name.invalid:7701") as connection:
        assert time.monotonic() - began < 1
        assert until(connection, bool)[0] == REFUSED


@pytest.mark.parametrize("address", ["", "host", "host:", ":7701", "host:port", "host:70000"])
def test_what_is_no_address_is_said_at_once(address: str) -> None:
    with pytest.raises(InvalidArgument, match="HOST:PORT"):
        TcpConnection(address)


def test_it_moves(nodes: Nodes) -> None:
    _, port = nodes.router()
    other, elsewhere = nodes.router()
    with direct(f"127.0.0.1:{port}") as connection:
        until(connection, bool)
        connection.move(f"127.0.0.1:{elsewhere}")
        assert until(connection, lambda seen: UP in seen) == [DOWN, UP]
        assert talk(connection, other, [b"here"]) == [b"here"]


def test_another_thread_ends_a_wait(nodes: Nodes) -> None:
    _, port = nodes.router()
    with direct(f"127.0.0.1:{port}") as connection:
        until(connection, bool)
        threading.Timer(0.1, connection.end).start()
        began = time.monotonic()
        with pytest.raises(ConnectionEnded):
            connection.wait(60, for_room=False)
        assert time.monotonic() - began < PATIENCE_S
        with pytest.raises(ConnectionEnded):
            connection.wait(60, for_room=False)


@pytest.mark.parametrize("said", ["-1", "fast", "1.5", "10001", "\u0665"])
def test_how_long_to_wait_awake_is_a_number(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_AWAKE_US", said)
    with pytest.raises(InvalidArgument, match="WEFT_AWAKE_US"):
        TcpConnection("127.0.0.1:1")


@pytest.mark.parametrize("awake_us", ["0", "10000"])
def test_a_break_ends_the_wait_for_an_answer(
    nodes: Nodes, awake_us: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_AWAKE_US", awake_us)
    node, port = nodes.router()
    with direct(f"127.0.0.1:{port}") as connection:
        until(connection, lambda seen: UP in seen)
        assert talk(connection, node, [b"request"]) == [b"request"]
        assert connection.send([b"the last"])
        node.recv_multipart()
        ends = threading.Timer(0.003, node.close)
        ends.start()
        end = time.monotonic() + PATIENCE_S
        while not connection.changed():
            assert time.monotonic() < end
            assert connection.answer() is None
        ends.join()
        assert DOWN in until(connection, lambda seen: DOWN in seen)


def test_only_one_thread_waits_awake(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others block, and all get their answers."""
    monkeypatch.setenv("WEFT_AWAKE_US", "10000")
    node, port = nodes.router()
    heard: list[list[bytes] | None] = []

    def call(word: bytes) -> None:
        with direct(f"127.0.0.1:{port}") as connection:
            until(connection, lambda seen: UP in seen)
            assert connection.send([word])
            end = time.monotonic() + PATIENCE_S
            while (answer := connection.answer()) is None and time.monotonic() < end:
                pass
            heard.append(list(map(bytes, answer or [])))

    words = [b"%d" % number for number in range(4)]
    threads = [threading.Thread(target=call, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    came = [node.recv_multipart() for _ in words]
    for frames in came:
        node.send_multipart(frames)
    for thread in threads:
        thread.join()
    assert sorted(heard, key=str) == [[word] for word in words]
