"""The socket of a gRPC connection: gathered output, bytes that the kernel refuses, and the end.

Output gathers in the HTTP/2 state; `flush` writes the output of a round with one system call. Bytes
refused by the kernel are buffered here, and answers that wait for the client's flow control in the
HTTP/2 state, up to a limit together; past the limit the connection ends. Only bytes that the kernel
refuses stop the reading: a client that waits for flow control must be heard.

Messages leased by an answer that was not written when the connection ended go back to their queue
(`ExchangeCall.cancel`): no client has seen them.
"""

from __future__ import annotations

import itertools
import socket
import ssl
from typing import Any, Final

from weft.limits import MIB
from weft.proto import wire
from weft.transport.http2 import Http2Connection

from .edge import PEER_BYTES_MAX
from .edge_connection import EdgeConnection
from .grpc_head import REPEATED, REPEATED_NAMES, VARYING
from .native_call import NativeExchange, NativeStream
from .socket_edge import SocketEdge

#: One read: many small calls, and not so much that a client delays the others.
READ_BYTES: Final = 64 * 1024
#: While so many bytes wait for the kernel, nothing more is read.
_AHEAD_BYTES_MAX: Final = MIB
#: `leave` reads and discards input at most this many times; a peer that sends more is cut off.
_LAST_READS: Final = 16
#: The kernel, or TLS, can do nothing now.
LATER: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Kept:
    """Bytes that the kernel has not taken, and where the answers of pops end in them."""

    __slots__ = ("data", "ends")

    def __init__(self, data: memoryview, ends: list[tuple[int, NativeExchange]]) -> None:
        self.data = data
        self.ends = ends


class GrpcOutput(EdgeConnection):
    """The writing half of `GrpcConnection`."""

    __slots__ = (
        "_kept_bytes", "_marked", "_queued", "_socket", "_tracked", "edge", "h2", "sending",
        "waiting",
    )  # fmt: skip

    def __init__(
        self, made: socket.socket, number: int, where: str, since: float, edge: SocketEdge
    ) -> None:
        super().__init__(made.fileno(), number, where, since)
        made.setblocking(False)
        self._socket = made
        self.edge = edge
        self.h2 = Http2Connection(VARYING, REPEATED, REPEATED_NAMES)
        self.waiting: list[_Kept] = []
        self._kept_bytes = 0
        self._marked = False
        #: Streaming calls with messages that are not written yet.
        self.sending: list[NativeStream] = []
        #: Answered pops in the output, with the number of pieces up to their end; and answered
        #: pops that wait for the client's flow control.
        self._tracked: list[tuple[int, NativeExchange]] = []
        self._queued: list[NativeExchange] = []

    @property
    def welcome(self) -> bool:  # type: ignore[override]
        return self.h2.welcome

    @property
    def held(self) -> int:  # type: ignore[override]
        return self._kept_bytes + self.h2.queued_bytes

    @property
    def stalled(self) -> bool:
        return self.paused or self._kept_bytes >= _AHEAD_BYTES_MAX

    def greet(self) -> None:
        self.flush()

    def mark(self) -> None:
        """Has the output written at the end of the round."""
        if not self._marked:
            self._marked = True
            self.edge.marked.append(self)

    def track(self, call: NativeExchange) -> None:
        """Remembers the answer to a pop until the answer is written."""
        if call.stream.closed:
            self._tracked.append((len(self.h2.output), call))
        else:
            self._queued.append(call)

    def flush(self) -> None:
        self._marked = False
        output = self.h2.output
        if self._queued:
            for call in [call for call in self._queued if call.stream.closed]:
                self._queued.remove(call)
                self._tracked.append((len(output), call))
        if output:
            self.h2.output = []
            tracked, self._tracked = self._tracked, []
            data = output[0] if len(output) == 1 else b"".join(output)
            sent = self._send(data) if not self.waiting else 0
            if sent < len(data):
                self._keep(output, memoryview(data), sent, tracked)
        while self.waiting:
            kept = self.waiting[0]
            sent = self._send(kept.data)
            self._kept_bytes -= sent
            if sent < len(kept.data):
                kept.data = kept.data[sent:]
                kept.ends = [(end - sent, call) for end, call in kept.ends if end > sent]
                return
            del self.waiting[0]
        if self.sending:
            self.sending = [call for call in self.sending if not call.written()]
        if self.h2.closing:
            raise EOFError(self.h2.fault or "the node has ended the connection")

    def _send(self, data: Any) -> int:
        try:
            return self._socket.send(data)
        except LATER:
            return 0

    def _keep(
        self,
        output: list[bytes | memoryview],
        data: memoryview,
        sent: int,
        tracked: list[tuple[int, NativeExchange]],
    ) -> None:
        ends: list[tuple[int, NativeExchange]] = []
        if tracked:
            sizes = list(itertools.accumulate(map(len, output)))
            ends = [
                (sizes[count - 1] - sent, call)
                for count, call in tracked
                if sizes[count - 1] > sent
            ]
        self.waiting.append(_Kept(data[sent:], ends))
        self._kept_bytes += len(data) - sent
        if self.held > PEER_BYTES_MAX:
            raise EOFError("the client does not read its answers")

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    # --- the end --------------------------------------------------------------------------

    def unsent_lent(self) -> list[wire.Lent]:
        """Empty: `close` cancels the calls, which return their messages themselves."""
        return []

    def close(self) -> None:
        self.more = False
        self.watched = 0
        self._cancel_all()
        if self.h2.closing:
            self._read_rest()
        self._socket.close()

    def leave(self) -> None:
        self._cancel_all()
        self._read_rest()
        self._socket.close()

    def _cancel_all(self) -> None:
        calls: list[NativeExchange] = [call for _, call in self._tracked]
        calls += [call for kept in self.waiting for _, call in kept.ends]
        calls += self._queued
        self.waiting, self._tracked, self._queued, self.sending = [], [], [], []
        for call in calls:
            call.cancel()
        for stream in list(self.h2.streams.values()):
            stream.closed = True
            if stream.context is not None:
                stream.context.abort()
        self.h2.streams.clear()

    def _read_rest(self) -> None:
        """Unread input would make the kernel reset the connection, and drop the last frames."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            for _ in range(_LAST_READS):
                if not self._socket.recv(READ_BYTES):
                    break
        except OSError:
            pass  # the peer has closed, or has no more input
