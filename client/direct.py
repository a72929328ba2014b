"""A connection that its own thread reads and writes (see `connection`).

Nobody else is woken on the way: a call is a write and a read on a TCP socket. In exchange there is
no thread that looks after the connection while nobody calls. What TCP can do for it, TCP does: it
notices a dead end by probes of its own (keepalive). The rest (connecting, greeting, trying again)
is done in small steps, none of which blocks, by whoever looks at the connection; `due` says when
somebody should. A name is looked up in a thread, since that alone cannot be done in steps.
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

from weft.awake import Awake
from weft.errors import InvalidArgument, ProtocolError
from weft.proto import sealed, zmtp
from weft.proto.zmtp import BUFFERS_MAX, GATHER_BYTES_MAX, PIECE_BYTES, Frame

from . import connection
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
    Ended,
)
from .pool import POOL

if TYPE_CHECKING:
    from weft.proto.noise import Handshake

#: Of a message: many frames of a pop's answer.
MESSAGE_BYTES_MAX: Final = 4 * FRAME_BYTES_MAX
#: Until the other end has greeted: a node does so between two rounds, and one may wait for a disk.
GREETING_MS_MAX: Final = 5_000

#: For so long a synchronous call waits awake for its answer: with a sync of the disk it is there.
#: The environment's WEFT_AWAKE_US takes its place.
AWAKE_US: Final = 500
AWAKE_US_MAX: Final = 10_000
#: Held by the only thread of this process that does so: several would only be in each other's way.
_ONE_AWAKE: Final = threading.Lock()

_READY: Final = zmtp.ready(b"DEALER")
_AT_ONCE: Final = socket.MSG_DONTWAIT
_SEND: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_WAITS: Final = (errno.EAGAIN, errno.EWOULDBLOCK)

#: The steps to a connection that is up.
_APART: Final = 0
_NAMED: Final = 1
_CONNECTING: Final = 2
_GREETED: Final = 3
_SEALING: Final = 4
_READYING: Final = 5
_UP: Final = 6


class Direct:
    """Implements Connection."""

    def __init__(self, address: str, key: bytes | None = None) -> None:
        """With the node's public `key` it is encrypted, and ends at nobody else."""
        self.address = address
        self._key = key
        self._host, self._port = _parsed(address)
        self._socket: socket.socket | None = None
        self._epoll = select.epoll()
        #: Written by other threads: a name was found, or the connection is to end.
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Held while it is rung or closed: a closed descriptor may already be somebody else's.
        self._bell_lock = threading.Lock()
        self._epoll.register(self._bell, select.EPOLLIN)
        self._step = _APART
        self._reader: zmtp.Reader | sealed.SealedReader = _reader()
        self._sealer: sealed.Sealer | None = None
        self._handshake: Handshake | None = None
        #: The other end's greeting, then its handshake.
        self._greeting = b""
        self._low = 1
        self._out: list[memoryview] = []
        self._changes: list[int] = []
        #: The name that was looked up, and its first address; empty: it has none.
        self._found: tuple[str, str] | None = None
        self._lookup: threading.Thread | None = None
        self._due = 0.0
        self._pause_s = 0.0
        self._rang = self._is_ended = self._closed = False
        self._awake = Awake(_awake_us())
        self._advance()

    # --- what a link calls ---

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
        """Whether there is no more to wait for."""
        self._read(_AT_ONCE)
        return self._step != _UP or bool(self._reader.messages)

    def _blink(self) -> bool:
        self._read(0)  # blocks for a blink at most: SO_RCVTIMEO
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
                raise Ended
            state = READABLE if self._reader.messages else 0
            if self._changes:
                state |= CHANGED
            if for_room and self._step == _UP and not self._out:
                state |= WRITABLE
            now = time.monotonic()
            if state or now >= until:
                return state
            # A millisecond more: waking just before a deadline would mean to poll it away.
            self._epoll.poll(max(0.0, min(until, self._due) - now) + 0.001)

    def descriptors(self) -> list[int]:
        return [self._epoll.fileno()]

    def due(self) -> float:
        return self._due

    def end(self) -> None:
        """From any thread: whoever waits, or will, gets Ended."""
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
        with self._bell_lock:  # a lookup may be about to ring it
            os.close(self._bell)
            self._bell = -1

    # --- steps ---

    def _advance(self) -> None:
        """Takes every step that can be taken now."""
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
        """In a thread of its own. As with ZeroMQ, a name is one of IPv4 addresses."""
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
        if name != self._host:  # it has moved since: another lookup
            self._part(0.0)
            return
        if not address:
            self._fail()
            return
        try:
            made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        except OSError:  # too many open files: perhaps fewer at the next try
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
        """Where nobody listens, the kernel may give a connection its own other end's port."""
        assert self._socket is not None
        try:
            return bool(self._socket.getsockname() == self._socket.getpeername())
        except OSError:
            return True  # it has gone already

    def _greet(self) -> None:
        assert self._socket is not None
        self._step = _GREETED
        self._low = 1
        self._due = time.monotonic() + GREETING_MS_MAX / 1000
        self._greeting = b""
        self._read_with(_reader())
        # From here on it blocks, for a blink at most; whoever must not wait says so in each call.
        self._socket.setblocking(True)
        seconds, millis = divmod(connection.BLINK_MS, 1000)
        self._socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds, millis * 1000)
        )
        self._epoll.modify(self._socket.fileno(), select.EPOLLIN)
        self._write([zmtp.GREETING if self._key is None else sealed.CALLS])

    def _read_with(self, reader: zmtp.Reader | sealed.SealedReader) -> None:
        reader.messages = self._reader.messages  # whole, before the last connection broke
        self._reader = reader

    def _shake(self) -> None:
        """Their greeting, their handshake if it is encrypted, then READY of either end."""
        try:
            if self._step == _GREETED and (greeting := self._first(zmtp.GREETING_BYTES)):
                if self._key is None:
                    zmtp.check_greeting(greeting)
                    self._step = _READYING
                    self._write([_READY])
                else:
                    zmtp.check_greeting(greeting, sealed.MECHANISM)
                    self._step = _SEALING
                    self._handshake = sealed.call(self._key, greeting)
                    self._write([sealed.say(self._handshake)])
            if self._step == _SEALING and (answer := self._first(sealed.HANDSHAKE_BYTES)):
                assert self._handshake is not None
                sealed.hear(self._handshake, answer)
                ours, theirs = self._handshake.split()
                desk = sealed.desk()
                self._sealer = sealed.Sealer(ours, desk)
                self._read_with(sealed.SealedReader(theirs, _reader(), desk))
                self._step = _READYING
                self._write([_READY])
        except ProtocolError:
            self._fail()
        if self._step == _READYING:
            self._read(_AT_ONCE)

    def _first(self, size: int) -> bytes:
        """So many bytes of what comes first, once they are all there."""
        self._greeting += self._receive(size - len(self._greeting), _AT_ONCE) or b""
        if len(self._greeting) < size:
            return b""
        whole, self._greeting = self._greeting, b""
        return whole

    # --- bytes ---

    def _receive(self, most: int, flags: int) -> bytes | None:
        """What is there; None for nothing, or when the connection has just broken."""
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
        """Reads until there is a message, or nothing more to read; a blink at most."""
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
            if not flags:  # it comes, but slowly
                until = until or time.monotonic() + connection.BLINK_MS / 1000
                if time.monotonic() >= until:
                    break
        if self._low != 1 or reader.lacks > PIECE_BYTES:
            self._wake_for(reader.lacks)

    def _fill(self, room: memoryview, flags: int) -> bool:
        """Reads what is to come into its place; whether there was any."""
        assert self._socket is not None
        if not flags and self._sealer is None:  # it is the rest of a long frame, and no more
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
        """Has the kernel gather the rest of a long frame: each piece of it would wake us."""
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
        pieces: Sequence[sealed.Piece] = plain
        if self._sealer is not None:
            pieces = self._sealer.seal(plain)
        if self._out:  # between the pieces of a message there is no room for another
            self._out += map(sealed.kept, pieces)
            return
        try:
            sent = self._socket.sendmsg(pieces[:BUFFERS_MAX], (), _SEND)
        except OSError as error:
            if error.errno not in _WAITS:
                return  # a reader finds out, after what came before the break
            sent = 0
        size = sum(map(len, pieces))
        if sent < size:
            self._out = _after([sealed.kept(piece) for piece in pieces], sent)
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
        """The connection broke, or could not be made: it is tried again, at first at once."""
        if self._step == _UP:
            self._changes.append(DOWN)
            self._part(0.0)
            return
        self._changes.append(REFUSED)
        self._part(self._pause_s or RECONNECT_MS / 1000)
        self._pause_s = min(RECONNECT_MS_MAX / 1000, 2 * (self._pause_s or RECONNECT_MS / 1000))

    def _part(self, pause_s: float) -> None:
        if self._socket is not None:
            self._socket.close()  # the epoll object forgets it
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


def _reader() -> zmtp.Reader:
    return zmtp.Reader(MESSAGE_BYTES_MAX, POOL.take)


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
    """What is left of the pieces after so many bytes."""
    for place, piece in enumerate(pieces):
        if sent < len(piece):
            return [piece[sent:], *pieces[place + 1 :]]
        sent -= len(piece)
    return []
