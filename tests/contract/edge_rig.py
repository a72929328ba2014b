"""An edge of the data path with the test in the role of the node, and raw client connections."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from weft.limits import MIB
from weft.proto import wire
from weft.server.address import Address
from weft.server.edges.edge import PEER_BYTES_MAX, EdgeCaller, Received
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.transport import zmtp

#: Only a hang takes longer.
PATIENCE_S: Final = 60.0
HANDSHAKE: Final = zmtp.GREETING + zmtp.ready(b"DEALER")
DONE: Final = wire.Done(7)
#: The payload of a large answer.
LARGE: Final = bytes(4 * MIB)


class EdgeRig:
    """An edge with the test in the role of the node."""

    def __init__(self, connections_max: int = 1000, secret: bytes | None = None) -> None:
        self.edge = ZmtpEdge(
            Address("127.0.0.1", 0), connections_max=connections_max, secret=secret
        )
        self._stack = ExitStack()

    def turn(self, wait_s: float = 0.0) -> list[Received]:
        """One round: the requests that a node would receive."""
        poller = select.poll()
        poller.register(self.edge.fd, select.POLLIN)
        return self.edge.receive() if poller.poll(wait_s * 1000) else []

    def until(self, done: Callable[[], bool]) -> list[Received]:
        """Run rounds until the condition holds; return all received requests."""
        received: list[Received] = []
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end, "it did not happen in time"
            received += self.turn(0.01)
        return received

    def take(self, count: int) -> list[Received]:
        received: list[Received] = []
        end = time.monotonic() + PATIENCE_S
        while len(received) < count:
            assert time.monotonic() < end, f"{len(received)} of {count} came"
            received += self.turn(0.01)
        return received

    def raw(self, first: bytes = HANDSHAKE) -> Raw:
        return self._stack.enter_context(Raw(self, first))

    @property
    def open(self) -> int:
        return len(self.edge._by_number)

    def close(self) -> None:
        self.leave()
        self.edge.close()

    def leave(self) -> None:
        self._stack.close()


class Raw:
    """The client end of one connection, byte by byte."""

    def __init__(self, rig: EdgeRig, first: bytes) -> None:
        self.socket = socket.create_connection(rig.edge.address, PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rig = rig
        self.reader = zmtp.FrameReader(1 << 30)
        self._greeting = b""
        self.ended = False
        if first:
            self.socket.sendall(first)
            rig.turn(PATIENCE_S)
            rig.turn(0.05)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *why: object) -> None:
        self.socket.close()

    def ask(self, rid: int, *payload: bytes) -> None:
        self.socket.sendall(asked(rid, *payload))

    def hear(self) -> None:
        """Read the available bytes."""
        self.socket.setblocking(False)
        try:
            data = self.socket.recv(1 << 20)
            self.ended = not data
        except BlockingIOError:
            return
        except ConnectionResetError:
            self.ended = True
            return
        finally:
            self.socket.settimeout(PATIENCE_S)
        lacks = zmtp.GREETING_BYTES - len(self._greeting)
        self._greeting += data[:lacks]
        if data[lacks:]:
            self.reader.feed(data[lacks:])

    def answers(self, count: int) -> list[tuple[int, list[bytes]]]:
        """Wait for `count` answers; return each with its request number."""

        def heard() -> bool:
            self.hear()
            return len(self.reader.messages) >= count

        assert self._rig.until(heard) == []
        messages, self.reader.messages = self.reader.messages, []
        return [(wire.decode_reply(first).rid, payload) for first, *payload in messages]

    def hears(self, count: int) -> Callable[[], bool]:
        """For `EdgeRig.until`: True once `count` answers have arrived. Drops the answers."""
        heard = 0

        def all_heard() -> bool:
            nonlocal heard
            self.hear()
            heard += len(self.reader.messages)
            self.reader.messages.clear()
            return heard == count

        return all_heard

    def gone(self) -> bool:
        self.hear()
        return self.ended


def asked(rid: int, *payload: bytes) -> bytes:
    return called(rid, wire.Status(), *payload)


def called(rid: int, request: wire.AnyRequest, *payload: bytes) -> bytes:
    call = wire.encode(wire.Call(wire.WIRE_VERSION, rid, request))
    return b"".join(zmtp.message([call, *payload]))


def rids(received: list[Received]) -> list[int]:
    return [each.caller.rid for each in received]


@contextmanager
def stalled(rig: EdgeRig) -> Iterator[tuple[Raw, EdgeCaller, int]]:
    """A client that reads nothing, with as many unsent answers as allowed."""
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    yield raw, received.caller, fill(rig, received.caller)


def fill(rig: EdgeRig, caller: EdgeCaller) -> int:
    """Send answers until one more would exceed the limit; return their number."""
    assert isinstance(caller.peer, int)
    connection = rig.edge._by_number[caller.peer]
    sent = 0
    while connection.held + len(LARGE) + 100 <= PEER_BYTES_MAX:
        assert rig.edge.send(caller, DONE, [LARGE])
        sent += 1
        assert sent <= PEER_BYTES_MAX // len(LARGE) + 8, "nothing piles up"
    return sent
