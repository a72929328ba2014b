"""A TCP connection that the calling thread itself reads and writes (see `connection`).

A call wakes no other thread: a call is a write and a read on a TCP socket. In exchange, no thread
serves the connection between calls. TCP keepalive probes detect a dead peer. All other work
(connect, greeting, retry) runs in small steps that never block (`dialer.py`), in the thread that
uses the connection; `due` returns the time of the next step. Only name resolution cannot run in
steps, so it runs in a separate thread.
"""

from __future__ import annotations

import errno
import math
import select
import socket
import time
from collections.abc import Sequence
from typing import Final

from weft.errors import ProtocolError
from weft.spin_wait import SpinWait
from weft.transport import noise_transport, zmtp
from weft.transport.zmtp import BUFFERS_MAX, GATHER_BYTES_MAX, PIECE_BYTES, Frame

from . import connection
from .bell import Bell
from .connection import CHANGED, DOWN, READABLE, REFUSED, UP, WRITABLE, ConnectionEnded
from .dialer import Dialer, new_reader
from .spin_limit import ONE_AWAKE, awake_us
from .tcp_socket import parse_address

_AT_ONCE: Final = socket.MSG_DONTWAIT
_SEND: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_WAITS: Final = (errno.EAGAIN, errno.EWOULDBLOCK)
#: Pieces to gather at most; one call takes BUFFERS_MAX.
_GATHERED_MAX: Final = BUFFERS_MAX // 4
#: The states of a connection, in order: idle, dialing, READY sent, up.
_APART, _DIALING, _READYING, _UP = range(4)


class SocketWriter:
    """The sending half; never blocks. The epoll reports room while there are unsent bytes."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._socket: socket.socket | None = None
        #: Encrypts what is written; None: the bytes leave in plain.
        self.sealer: noise_transport.Sealer | None = None
        #: What the socket did not take yet, in order.
        self.unsent: list[memoryview] = []
        #: The pieces of messages to write together, between `gather` and `write_gathered`.
        self._gathered: list[bytes] | None = None

    def open(self, connected: socket.socket, sealer: noise_transport.Sealer | None) -> None:
        self._socket, self.sealer = connected, sealer

    def close(self) -> None:
        self._socket = self.sealer = self._gathered = None
        self.unsent = []

    def gather(self) -> None:
        """Gathers messages until `write_gathered`: one system call for all of them."""
        self._gathered = []

    def write_gathered(self) -> None:
        gathered, self._gathered = self._gathered, None
        if gathered:
            self.write(gathered)

    def write(self, plain: list[bytes]) -> None:
        if self._gathered is not None:
            self._gathered += plain
            if len(self._gathered) >= _GATHERED_MAX:
                self.write_gathered()
                self._gathered = []
            return
        assert self._socket is not None
        pieces: Sequence[noise_transport.Piece] = plain
        if self.sealer is not None:
            pieces = self.sealer.seal(plain)
        if self.unsent:  # a message must not interleave with another
            self.unsent += map(noise_transport.kept, pieces)
            return
        try:
            sent = self._socket.sendmsg(pieces[:BUFFERS_MAX], (), _SEND)
        except OSError as error:
            if error.errno not in _WAITS:
                return  # a read reports the break, after the data received before
            sent = 0
        size = sum(map(len, pieces))
        if sent < size:
            self.unsent = _after([noise_transport.kept(piece) for piece in pieces], sent)
            self._epoll.modify(self._socket.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def flush(self) -> bool:
        """Sends what there is room for; returns False if the connection is broken."""
        assert self._socket is not None
        while self.unsent:
            try:
                sent = self._socket.sendmsg(self.unsent[:BUFFERS_MAX], (), _SEND)
            except OSError as error:
                return error.errno in _WAITS
            self.unsent = _after(self.unsent, sent)
        self._epoll.modify(self._socket.fileno(), select.EPOLLIN)
        return True


def _after(pieces: list[memoryview], sent: int) -> list[memoryview]:
    """Returns the pieces that remain after `sent` bytes."""
    for place, piece in enumerate(pieces):
        if sent < len(piece):
            return [piece[sent:], *pieces[place + 1 :]]
        sent -= len(piece)
    return []


class TcpConnection:
    """Implements connection.NodeConnection."""

    def __init__(self, address: str, key: bytes | None = None) -> None:
        """With the node's public `key`, encrypts the connection and verifies the node."""
        self.address = address
        self._host, self._port = parse_address(address)
        self._socket: socket.socket | None = None
        self._epoll = select.epoll()
        self._bell = Bell()
        self._epoll.register(self._bell, select.EPOLLIN)
        self._dialer = Dialer(key, self._epoll, self._bell.ring)
        self._step = _APART
        self._reader: zmtp.FrameReader | noise_transport.SealedReader = new_reader()
        self._low = 1
        self._writer = SocketWriter(self._epoll)
        self._changes: list[int] = []
        self._due = 0.0
        self._is_ended = self._closed = False
        self._awake = SpinWait(awake_us())
        self._advance()

    # --- interface for links ---

    def move(self, address: str) -> None:
        self._host, self._port = parse_address(address)
        self.address = address
        if self._step == _UP:
            self._changes.append(DOWN)
        self._part(0.0)

    def send(self, frames: Sequence[bytes]) -> bool:
        if self._step != _UP or self._writer.unsent:
            return False
        self._writer.write(zmtp.message(frames))
        return True

    def gather(self) -> None:
        self._writer.gather()

    def send_gathered(self) -> None:
        self._writer.write_gathered()

    def answer(self) -> list[Frame] | None:
        messages = self._reader.messages
        if not messages:
            if self._step != _UP or self._writer.unsent:
                return None
            if ONE_AWAKE.acquire(blocking=False):
                try:
                    self._awake.wait(self._look, self._blink)
                finally:
                    ONE_AWAKE.release()
            else:
                self._blink()
            if not messages:
                return None
        return messages.pop(0)

    def _look(self) -> bool:
        """Reads without blocking; returns True if there is nothing more to wait for."""
        self._read(_AT_ONCE)
        return self._step != _UP or bool(self._reader.messages)

    def _blink(self) -> bool:
        self._read(0)  # blocks for BLINK_MS at most: SO_RCVTIMEO
        return self._step != _UP or bool(self._reader.messages)

    def receive(self) -> list[Frame] | None:
        messages = self._reader.messages
        if not messages:
            if self._step == _UP:
                self._read(_AT_ONCE)
            if not messages:
                return None
        return messages.pop(0)

    def state(self) -> int:
        messages = self._reader.messages
        if not messages and self._step == _UP:
            self._read(_AT_ONCE)
        state = READABLE if messages else 0
        return state | WRITABLE if self._step == _UP and not self._writer.unsent else state

    def changed(self) -> bool:
        return bool(self._changes)

    def changes(self) -> list[int]:
        self._advance()
        seen, self._changes = self._changes, []
        return seen

    def wait(self, seconds: float, *, for_room: bool) -> int:
        until = time.monotonic() + seconds
        while True:
            self._advance()
            if self._is_ended:
                raise ConnectionEnded
            state = READABLE if self._reader.messages else 0
            if self._changes:
                state |= CHANGED
            if for_room and self._step == _UP and not self._writer.unsent:
                state |= WRITABLE
            now = time.monotonic()
            if state or now >= until:
                return state
            # One millisecond more: waking just before a deadline would cause a busy poll.
            self._epoll.poll(max(0.0, min(until, self._due) - now) + 0.001)

    def descriptors(self) -> list[int]:
        return [self._epoll.fileno()]

    def due(self) -> float:
        return self._due

    def end(self) -> None:
        """From any thread: every current and later `wait` raises ConnectionEnded."""
        self._is_ended = True
        self._bell.ring()

    def close(self, linger_ms: int) -> None:
        if self._closed:
            return
        self._closed = True
        if linger_ms and self._writer.unsent and self._socket is not None:
            self._flush_for(linger_ms)
        self._dialer.stop()
        if self._socket is not None:
            self._socket.close()
        self._epoll.close()
        self._bell.close()

    # --- steps ---

    def _advance(self) -> None:
        """Takes every step that is possible now."""
        if self._bell.rang:
            self._bell.heard()
        if self._step == _UP:
            if self._writer.unsent:
                self._flush()
            if self._step == _UP:
                if not self._reader.messages:
                    self._read(_AT_ONCE)
                return
        now = time.monotonic()
        if self._step == _APART and now >= self._due:
            self._step = _DIALING
            self._dialer.start(self._host, self._port)
        if self._step == _DIALING:
            self._dial()
        if self._step == _READYING:
            self._read(_AT_ONCE)
        if self._step not in (_UP, _APART) and time.monotonic() >= self._due:
            self._fail()

    def _dial(self) -> None:
        try:
            dialed = self._dialer.step()
        except (OSError, ProtocolError):
            self._fail()
            return
        self._due = self._dialer.due
        if dialed is not None:
            self._socket, reader, sealer, ready = dialed
            reader.messages = self._reader.messages  # complete messages from before the last break
            self._reader = reader
            self._low = 1
            self._step = _READYING
            self._writer.open(self._socket, sealer)
            self._writer.write([ready])

    # --- bytes ---

    def _receive(self, most: int, flags: int) -> bytes | None:
        """Returns received bytes; None if there are none or the connection has just broken."""
        assert self._socket is not None
        try:
            data = self._socket.recv(most, flags)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self._fail()
            return None
        return data

    def _read(self, flags: int) -> None:
        """Reads until a message is complete or no data is left, for BLINK_MS at most."""
        reader = self._reader
        until = 0.0
        while True:
            try:
                if (room := reader.room) is not None:
                    if not self._fill(room, flags):
                        break
                else:
                    data = self._receive(reader.lacks or PIECE_BYTES, flags)
                    if data is None:
                        break
                    reader.feed(data)
                if reader.commands:
                    self._obey()
            except ProtocolError:
                self._fail()
                return
            if reader.messages or self._step != _UP:
                break
            if not flags:  # data arrives, but slowly
                until = until or time.monotonic() + connection.BLINK_MS / 1000
                if time.monotonic() >= until:
                    break
        if self._low != 1 or reader.lacks > PIECE_BYTES:
            self._wake_for(reader.lacks)

    def _fill(self, room: memoryview, flags: int) -> bool:
        """Reads into the buffer of a long frame; returns True if any bytes arrived."""
        assert self._socket is not None
        if not flags and self._writer.sealer is None:  # `room` is exactly the rest of a long frame
            flags = socket.MSG_WAITALL
        try:
            size = self._socket.recv_into(room, 0, flags)
        except BlockingIOError:
            return False
        except OSError:
            size = 0
        if not size:
            self._fail()
            return False
        self._reader.filled(size)
        return True

    def _wake_for(self, lacks: int) -> None:
        """Sets SO_RCVLOWAT for a long frame, so that not every piece wakes this thread."""
        low = min(lacks, GATHER_BYTES_MAX) if lacks > PIECE_BYTES else 1
        if low != self._low and self._socket is not None:
            self._low = low
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)

    def _obey(self) -> None:
        commands, self._reader.commands = self._reader.commands, []
        for command in commands:
            if self._step == _READYING:
                if zmtp.kind_of(command) != b"ROUTER":
                    raise ProtocolError("no node is at the other end")
                self._step = _UP
                self._due = math.inf
                self._dialer.succeeded()
                self._changes.append(UP)
            elif (pong := zmtp.pong(command)) is not None:
                self._writer.write([pong])

    def _flush(self) -> None:
        if not self._writer.flush():
            self._fail()

    def _flush_for(self, linger_ms: int) -> None:
        until = time.monotonic() + linger_ms / 1000
        while self._writer.unsent and self._step == _UP and (left := until - time.monotonic()) > 0:
            self._epoll.poll(left)
            self._flush()

    # --- endings ---

    def _fail(self) -> None:
        """The connection broke or could not be made: retry, after a break at once."""
        if self._step == _UP:
            self._changes.append(DOWN)
            self._part(0.0)
            return
        self._changes.append(REFUSED)
        self._part(self._dialer.pause_s())

    def _part(self, pause_s: float) -> None:
        if self._socket is not None:
            self._socket.close()  # this also removes the socket from the epoll object
            self._socket = None
        self._dialer.stop()
        self._step = _APART
        self._writer.close()
        self._due = time.monotonic() + pause_s
