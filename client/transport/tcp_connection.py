"""A TCP connection that the calling thread itself reads and writes (see `connection`).

A call wakes no other thread: a call is a write and a read on a TCP socket. In exchange, no thread
serves the connection between calls. TCP keepalive probes detect a dead peer. All other work
(connect, greeting, retry) runs in small steps that never block, in the thread that uses the
connection; `due` returns the time of the next step. Only name resolution cannot run in steps, so it
runs in a separate thread.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from weft.errors import InvalidArgument, ProtocolError
from weft.spin_wait import SpinWait
from weft.transport import noise_transport, zmtp
from weft.transport.zmtp import BUFFERS_MAX, GATHER_BYTES_MAX, PIECE_BYTES, Frame

from . import connection
from .buffer_pool import POOL
from .connection import (
    CHANGED,
    CONNECT_MS_MAX,
    DOWN,
    FRAME_BYTES_MAX,
    READABLE,
    RECONNECT_MS,
    RECONNECT_MS_MAX,
    REFUSED,
    SILENT_EVERY_MS,
    SILENT_MS_MAX,
    UNTAKEN_MS_MAX,
    UP,
    WRITABLE,
    ConnectionEnded,
)

if TYPE_CHECKING:
    from weft.transport.noise import Handshake

#: Largest message: a pop's answer has many frames.
MESSAGE_BYTES_MAX: Final = 4 * FRAME_BYTES_MAX
#: Timeout for the peer's greeting: a node greets between two rounds, and a round may wait for a
#: disk.
GREETING_MS_MAX: Final = 5_000

#: How long a synchronous call spins for its answer: enough for an answer that waits for a disk
#: sync. The environment variable WEFT_AWAKE_US overrides this value.
AWAKE_US: Final = 500
AWAKE_US_MAX: Final = 10_000
#: Held by the one thread of the process that spins: several spinning threads would slow each other.
_ONE_AWAKE: Final = threading.Lock()

_READY: Final = zmtp.ready(b"DEALER")
_AT_ONCE: Final = socket.MSG_DONTWAIT
_SEND: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_WAITS: Final = (errno.EAGAIN, errno.EWOULDBLOCK)

#: The states of a connection, in order: idle, resolving the name, connecting, greeting sent, Noise
#: handshake, READY sent, up.
_APART: Final = 0
_NAMED: Final = 1
_CONNECTING: Final = 2
_GREETED: Final = 3
_SEALING: Final = 4
_READYING: Final = 5
_UP: Final = 6


class TcpConnection:
    """Implements connection.NodeConnection."""

    def __init__(self, address: str, key: bytes | None = None) -> None:
        """With the node's public `key`, encrypts the connection and verifies the node."""
        self.address = address
        self._key = key
        self._host, self._port = _parsed(address)
        self._socket: socket.socket | None = None
        self._epoll = select.epoll()
        #: Eventfd that other threads write: a name was resolved, or the connection must end.
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Held during writes and close: a closed descriptor may already belong to another file.
        self._bell_lock = threading.Lock()
        self._epoll.register(self._bell, select.EPOLLIN)
        self._step = _APART
        self._reader: zmtp.FrameReader | noise_transport.SealedReader = _reader()
        self._sealer: noise_transport.Sealer | None = None
        self._handshake: Handshake | None = None
        #: The bytes of the peer's greeting received so far, then those of its handshake.
        self._greeting = b""
        self._low = 1
        self._out: list[memoryview] = []
        self._changes: list[int] = []
        #: The resolved name and its first address; the address is empty if there is none.
        self._found: tuple[str, str] | None = None
        self._lookup: threading.Thread | None = None
        self._due = 0.0
        self._pause_s = 0.0
        self._rang = self._is_ended = self._closed = False
        self._awake = SpinWait(_awake_us())
        self._advance()

    # --- interface for links ---

    def move(self, address: str) -> None:
        self._host, self._port = _parsed(address)
        self.address = address
        if self._step == _UP:
            self._changes.append(DOWN)
        self._part(0.0)

    def send(self, frames: Sequence[bytes]) -> bool:
        if self._step != _UP or self._out:
            return False
        self._write(zmtp.message(frames))
        return True

    def answer(self) -> list[Frame] | None:
        messages = self._reader.messages
        if not messages:
            if self._step != _UP or self._out:
                return None
            if _ONE_AWAKE.acquire(blocking=False):
                try:
                    self._awake.wait(self._look, self._blink)
                finally:
                    _ONE_AWAKE.release()
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
        return state | WRITABLE if self._step == _UP and not self._out else state

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
            if for_room and self._step == _UP and not self._out:
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
        self._ring()

    def close(self, linger_ms: int) -> None:
        if self._closed:
            return
        self._closed = True
        if linger_ms and self._out and self._socket is not None:
            self._flush_for(linger_ms)
        if self._socket is not None:
            self._socket.close()
        self._epoll.close()
        with self._bell_lock:  # a lookup may be about to write the eventfd
            os.close(self._bell)
            self._bell = -1

    # --- steps ---

    def _advance(self) -> None:
        """Takes every step that is possible now."""
        if self._rang:
            self._heard()
        if self._step == _UP:
            if self._out:
                self._flush()
            if self._step == _UP:
                if not self._reader.messages:
                    self._read(_AT_ONCE)
                return
        now = time.monotonic()
        if self._step == _APART and now >= self._due:
            self._look_up(now)
        if self._step == _NAMED and self._found is not None:
            self._connect(*self._found)
        if self._step == _CONNECTING and self._writable():
            self._greet()
        if self._step in (_GREETED, _SEALING, _READYING):
            self._shake()
        if self._step not in (_UP, _APART) and time.monotonic() >= self._due:
            self._fail()

    def _look_up(self, now: float) -> None:
        self._step = _NAMED
        self._due = now + CONNECT_MS_MAX / 1000
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            socket.inet_pton(family, self._host)
        except OSError:
            if self._lookup is None or not self._lookup.is_alive():
                self._lookup = threading.Thread(
                    target=self._resolve, args=(self._host,), daemon=True
                )
                self._lookup.start()
            return
        self._found = self._host, self._host

    def _resolve(self, name: str) -> None:
        """Runs in a separate thread. As in ZeroMQ, a name resolves to IPv4 addresses only."""
        try:
            answers = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
            self._found = name, str(answers[0][4][0])
        except OSError:
            self._found = name, ""
        self._ring()

    def _ring(self) -> None:
        with self._bell_lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)
                self._rang = True

    def _heard(self) -> None:
        with self._bell_lock:
            os.eventfd_read(self._bell)
            self._rang = False

    def _connect(self, name: str, address: str) -> None:
        self._found = None
        if name != self._host:  # `move` was called since: look up again
            self._part(0.0)
            return
        if not address:
            self._fail()
            return
        try:
            made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        except OSError:  # too many open files: the next try may succeed
            self._fail()
            return
        self._socket = made
        made.setblocking(False)
        for level, option, value in _OPTIONS:
            made.setsockopt(level, option, value)
        self._step = _CONNECTING
        if made.connect_ex((address, self._port)) not in (0, errno.EINPROGRESS):
            self._fail()
            return
        self._epoll.register(made.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _writable(self) -> bool:
        assert self._socket is not None
        ready = select.poll()
        ready.register(self._socket, select.POLLOUT)
        if not ready.poll(0):
            return False
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or self._meets_itself():
            self._fail()
            return False
        return True

    def _meets_itself(self) -> bool:
        """True for a self-connect: the kernel may choose the target port as source port."""
        assert self._socket is not None
        try:
            return bool(self._socket.getsockname() == self._socket.getpeername())
        except OSError:
            return True  # already disconnected

    def _greet(self) -> None:
        assert self._socket is not None
        self._step = _GREETED
        self._low = 1
        self._due = time.monotonic() + GREETING_MS_MAX / 1000
        self._greeting = b""
        self._read_with(_reader())
        # From here on the socket blocks for BLINK_MS at most; non-blocking calls pass a flag.
        self._socket.setblocking(True)
        seconds, millis = divmod(connection.BLINK_MS, 1000)
        self._socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds, millis * 1000)
        )
        self._epoll.modify(self._socket.fileno(), select.EPOLLIN)
        self._write([zmtp.GREETING if self._key is None else noise_transport.CALLS])

    def _read_with(self, reader: zmtp.FrameReader | noise_transport.SealedReader) -> None:
        reader.messages = self._reader.messages  # complete messages from before the last break
        self._reader = reader

    def _shake(self) -> None:
        """Reads the peer's greeting and, if encrypted, its handshake; then exchanges READY."""
        try:
            if self._step == _GREETED and (greeting := self._first(zmtp.GREETING_BYTES)):
                if self._key is None:
                    zmtp.check_greeting(greeting)
                    self._step = _READYING
                    self._write([_READY])
                else:
                    zmtp.check_greeting(greeting, noise_transport.MECHANISM)
                    self._step = _SEALING
                    self._handshake = noise_transport.call(self._key, greeting)
                    self._write([noise_transport.say(self._handshake)])
            if self._step == _SEALING and (answer := self._first(noise_transport.HANDSHAKE_BYTES)):
                assert self._handshake is not None
                noise_transport.hear(self._handshake, answer)
                ours, theirs = self._handshake.split()
                scratch = noise_transport.scratch()
                self._sealer = noise_transport.Sealer(ours, scratch)
                self._read_with(noise_transport.SealedReader(theirs, _reader(), scratch))
                self._step = _READYING
                self._write([_READY])
        except ProtocolError:
            self._fail()
        if self._step == _READYING:
            self._read(_AT_ONCE)

    def _first(self, size: int) -> bytes:
        """Returns the first `size` bytes of the stream once all have arrived, else b""."""
        self._greeting += self._receive(size - len(self._greeting), _AT_ONCE) or b""
        if len(self._greeting) < size:
            return b""
        whole, self._greeting = self._greeting, b""
        return whole

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
        if not flags and self._sealer is None:  # `room` is exactly the rest of a long frame
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
                self._due, self._pause_s = math.inf, 0.0
                self._changes.append(UP)
            elif (pong := zmtp.pong(command)) is not None:
                self._write([pong])

    def _write(self, plain: list[bytes]) -> None:
        assert self._socket is not None
        pieces: Sequence[noise_transport.Piece] = plain
        if self._sealer is not None:
            pieces = self._sealer.seal(plain)
        if self._out:  # a message must not interleave with another
            self._out += map(noise_transport.kept, pieces)
            return
        try:
            sent = self._socket.sendmsg(pieces[:BUFFERS_MAX], (), _SEND)
        except OSError as error:
            if error.errno not in _WAITS:
                return  # a read reports the break, after the data received before
            sent = 0
        size = sum(map(len, pieces))
        if sent < size:
            self._out = _after([noise_transport.kept(piece) for piece in pieces], sent)
            self._epoll.modify(self._socket.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _flush(self) -> None:
        assert self._socket is not None
        while self._out:
            try:
                sent = self._socket.sendmsg(self._out[:BUFFERS_MAX], (), _SEND)
            except OSError as error:
                if error.errno not in _WAITS:
                    self._fail()
                return
            self._out = _after(self._out, sent)
        self._epoll.modify(self._socket.fileno(), select.EPOLLIN)

    def _flush_for(self, linger_ms: int) -> None:
        until = time.monotonic() + linger_ms / 1000
        while self._out and self._step == _UP and (left := until - time.monotonic()) > 0:
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
        self._part(self._pause_s or RECONNECT_MS / 1000)
        self._pause_s = min(RECONNECT_MS_MAX / 1000, 2 * (self._pause_s or RECONNECT_MS / 1000))

    def _part(self, pause_s: float) -> None:
        if self._socket is not None:
            self._socket.close()  # this also removes the socket from the epoll object
            self._socket = None
        self._step = _APART
        self._sealer = self._handshake = None
        self._out = []
        self._due = time.monotonic() + pause_s


_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_EVERY_MS // 1000),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_EVERY_MS // 1000),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT_MS_MAX // SILENT_EVERY_MS),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_MS_MAX),
)


def _reader() -> zmtp.FrameReader:
    return zmtp.FrameReader(MESSAGE_BYTES_MAX, POOL.take)


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidArgument(f"cannot connect to the address {address!r}: give HOST:PORT")
    return host, int(port)


def _awake_us() -> int:
    said = os.environ.get("WEFT_AWAKE_US") or str(AWAKE_US)
    if not said.isascii() or not said.isdigit() or int(said) > AWAKE_US_MAX:
        raise InvalidArgument(
            f"WEFT_AWAKE_US is {said!r}: it is a number of microseconds from 0 to {AWAKE_US_MAX}"
        )
    return int(said)


def _timeval(seconds: int, micros: int) -> bytes:
    return struct.pack("@ll", seconds, micros)


def _after(pieces: list[memoryview], sent: int) -> list[memoryview]:
    """Returns the pieces that remain after `sent` bytes."""
    for place, piece in enumerate(pieces):
        if sent < len(piece):
            return [piece[sent:], *pieces[place + 1 :]]
        sent -= len(piece)
    return []
