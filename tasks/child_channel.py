"""Frames between a supervisor and one of its worker processes, over a pair of sockets.

A frame is its length in four bytes and one msgpack value. A worker process sends the leases in
use; the end of the stream is the end of the other process.

The supervisor never waits for a worker process, which may hold the interpreter's lock, and whose
end of the pair a forked process may keep open: it uses `post`, `flush` and `drain`.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from weft.client.lease_ticket import LeaseTicket

from .heartbeat import TaskCounts

_LENGTH: Final = struct.Struct("<I")


class HoldFrame(msgspec.Struct, tag="hold", frozen=True):
    """The worker has popped messages under the leases."""

    held: list[LeaseTicket]


class DropFrame(msgspec.Struct, tag="drop", frozen=True):
    """The leases are settled."""

    nonces: list[int]


class ReadyFrame(msgspec.Struct, tag="ready", frozen=True):
    """The worker's code is imported, and the worker takes tasks of the queues."""

    queues: list[str]
    app: str
    #: Tasks of the worker are near data: the supervisor serves blocks.
    sited: bool = False
    #: Those of the queues with tasks for gangs.
    gangs: list[str] = []


class FailedFrame(msgspec.Struct, tag="failed", frozen=True):
    """The worker cannot work: the supervisor ends with this text."""

    text: str


class IdleFrame(msgspec.Struct, tag="idle", frozen=True):
    """The worker ends because no task has come for its limit."""


class CancelFrame(msgspec.Struct, tag="cancel", frozen=True):
    """From the supervisor: the tasks are cancelled. The first frame has those known so far."""

    numbers: list[str]


class CountsFrame(msgspec.Struct, tag="counts", frozen=True):
    """The counts of the worker, now and then."""

    counts: TaskCounts


class StopFrame(msgspec.Struct, tag="stop", frozen=True):
    """From the supervisor: end after the running tasks."""


AnyFrame = (
    HoldFrame | DropFrame | ReadyFrame | FailedFrame | IdleFrame | CountsFrame | CancelFrame
    | StopFrame
)  # fmt: skip

_decode = msgspec.msgpack.Decoder(AnyFrame).decode
_encode = msgspec.msgpack.Encoder().encode


class ChildChannel:
    """One end. Any thread may send; one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self._received = bytearray()
        self._unsent = bytearray()
        #: The other process has closed its end.
        self.ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: AnyFrame) -> None:
        """Raises OSError if the other process has ended."""
        data = _encode(frame)
        with self._lock:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def post(self, frame: AnyFrame) -> None:
        """Sends the frame without a wait: what the socket does not take, a later `flush` sends."""
        data = _encode(frame)
        self._unsent += _LENGTH.pack(len(data)) + data
        self.flush()

    def flush(self) -> None:
        """Sends what the socket takes; nothing if the other process has ended."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def drain(self) -> list[AnyFrame]:
        """All complete frames that have arrived, without a wait; sets `ended` at the end of the
        stream."""
        try:
            while data := self._socket.recv(1 << 16, socket.MSG_DONTWAIT):
                self._received += data
            self.ended = True
        except BlockingIOError:
            pass
        except ConnectionError:
            self.ended = True
        return list(self._frames())

    def receive(self) -> list[AnyFrame] | None:
        """Waits for data and returns the complete frames; None at the end of the stream."""
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            return None
        if not data:
            return None
        self._received += data
        return list(self._frames())

    def _frames(self) -> Iterator[AnyFrame]:
        while len(self._received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received)
            end = _LENGTH.size + length
            if len(self._received) < end:
                return
            frame = bytes(self._received[_LENGTH.size : end])
            del self._received[:end]
            yield _decode(frame)

    def close(self) -> None:
        self._socket.close()


class RemoteKeeper:
    """The keeper of a worker process: its supervisor."""

    def __init__(self, channel: ChildChannel) -> None:
        self._channel = channel

    def hold(self, held: Sequence[LeaseTicket]) -> None:
        self._channel.send(HoldFrame(list(held)))

    def drop(self, nonces: Sequence[int]) -> None:
        self._channel.send(DropFrame(list(nonces)))
