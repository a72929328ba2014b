"""One gRPC connection in the node's thread: its streams, and the calls on them.

A read hands each stream with news to its owner (`native_call`), whose requests gather in the edge.
`grpc_output` has the socket's other half.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from weft.errors import DeadlineExceeded, Overloaded, WeftError
from weft.limits import GRPC_BYTES_MAX, MIB
from weft.proto import wire
from weft.server.node.call_inbox import QueuedCall
from weft.server.node.node_api import OnAnswer
from weft.server.security.caller import Caller
from weft.transport.grpc_messages import (
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    MessageFault,
    prefix,
    status_message,
    timeout_s,
)
from weft.transport.hpack_table import HeaderField
from weft.transport.http2_frames import ENHANCE_YOUR_CALM
from weft.transport.http2_stream import Http2Stream

from . import grpc_code
from .edge import PEER_BYTES_MAX, TICKET_BITS
from .grpc_call import Ended
from .grpc_code import CODES, GrpcCode
from .grpc_head import (
    OK,
    RESPONSE,
    TIMEOUT,
    GrpcHead,
)
from .grpc_method import ExchangeMethod, StreamMethod
from .grpc_output import LATER, READ_BYTES, GrpcOutput
from .local_method import LocalMethod
from .native_call import (
    LocalCall,
    NativeExchange,
    NativeStream,
    PlainRefusal,
    RequestAssembly,
    StreamOwner,
)

if TYPE_CHECKING:
    from .native_grpc_edge import NativeGrpcEdge

log = logging.getLogger(__name__)

#: The largest record of TLS, and how many records one read takes.
_RECORD_BYTES: Final = 16 * 1024
_RECORDS: Final = READ_BYTES // _RECORD_BYTES
#: Bytes of incomplete messages on all streams of a connection: two of the largest, and some more.
#: Past it the message that grows is refused, so that the others can complete.
ASSEMBLED_BYTES_MAX: Final = 64 * MIB
assert ASSEMBLED_BYTES_MAX > 2 * GRPC_BYTES_MAX
#: The text of a status in a header field, before its encoding: blocks stay within one frame.
_DETAILS_MAX: Final = 2000
_PLAIN: Final = b"this is a gRPC server\n"
#: Makes a `QueuedCall` without the call of its own constructor.
_queued: Final = tuple.__new__


class GrpcConnection(GrpcOutput):
    __slots__ = ("_assembled", "_heard", "_pinged", "_server", "_tickets", "_tls", "services")

    def __init__(
        self, made: socket.socket, number: int, where: str, since: float, server: NativeGrpcEdge
    ) -> None:
        super().__init__(made, number, where, since, server.edge)
        self._tls = isinstance(made, ssl.SSLSocket)
        self._server = server
        #: The upper bits of the tickets of this connection's calls.
        self._tickets = number << TICKET_BITS
        self.services = server.services
        self._assembled = 0
        #: Times of the last input, and of a ping without an answer.
        self._heard = since
        self._pinged = 0.0

    # --- reading --------------------------------------------------------------------------

    def read(self) -> int:
        self.more = False
        try:
            data = self._socket.recv(READ_BYTES)
            if self._tls and data:
                data = self._more_records(data)
        except LATER:
            return 0
        if not data:
            raise EOFError
        h2 = self.h2
        h2.now = self._heard = self._server.now()
        for stream in h2.receive(data):
            self._advance(stream)
        if h2.closing:
            self.flush()  # ends the connection, once the last frame is written
        elif h2.output:
            self.mark()
        self.more = len(data) >= READ_BYTES
        return len(data)

    def _more_records(self, data: bytes) -> bytes:
        """Reads on while records are full: a recv of TLS returns one record at most."""
        records = [data]
        try:
            while len(data) == _RECORD_BYTES and len(records) < _RECORDS:
                data = self._socket.recv(READ_BYTES)  # the next read reports an end
                records.append(data)
        except LATER:
            pass
        return b"".join(records)

    def _advance(self, stream: Http2Stream) -> None:
        owner: StreamOwner | None = stream.context
        try:
            if owner is None:
                if not stream.closed:
                    self._begin(stream)
            elif stream.closed:
                owner.abort()
            else:
                owner.advance()
        except Exception:
            # A fault in the node's own code: it must not end the node.
            log.exception("a call failed")
            if not stream.closed:
                self.refuse(stream, GrpcCode.INTERNAL, "the node failed; see the node's log")

    def _begin(self, stream: Http2Stream) -> None:
        """Finds the owner of a new stream, or answers it."""
        head: GrpcHead | None = stream.head.context
        if head is None:
            head = stream.head.context = GrpcHead(stream.head, self._server.methods)
        method = head.method
        if head.http_status or head.refusal is not None or method is None:
            self._refuse_head(stream, head)
            return
        if stream.ended and len(stream.chunks) == 1:
            chunk = stream.chunks[0]
            size = len(chunk) - PREFIX_BYTES
            if chunk[0] == 0 and int.from_bytes(chunk[1:PREFIX_BYTES], "big") == size:
                message = chunk[PREFIX_BYTES:]
                if type(method) is not LocalMethod:
                    stream.chunks = []
                    self.start(stream, head, message)
                    return
                if (answer := method.answer(message)) is not None:
                    self.h2.respond(stream, RESPONSE, (prefix.pack(0, len(answer)), answer), OK)
                    return
        owner: StreamOwner
        if isinstance(method, LocalMethod):
            owner = LocalCall(self, stream, method, head)
        elif isinstance(method, ExchangeMethod) or not method.client_streams:
            owner = RequestAssembly(self, stream, head)
            stream.context = owner
            owner.deadline = self._deadline(stream)
        else:
            self.start(stream, head, None)
            return
        stream.context = owner
        if not stream.closed:
            owner.advance()

    def start(self, stream: Http2Stream, head: GrpcHead, message: bytes | None) -> None:
        """Starts a call of the node, with its request message or with a stream of messages."""
        if self.services.calls.under_way >= self._server.calls_max:
            self.refuse_with(
                stream, Overloaded("the node has as many calls under way as calls_max allows")
            )
            return
        deadline = None
        if stream.context is not None:
            deadline = stream.context.deadline
        elif stream.varying:
            deadline = self._deadline(stream)
            if stream.closed:
                return
        remaining_s = None if deadline is None else deadline - self._heard
        method = head.method
        if isinstance(method, ExchangeMethod):
            assert message is not None
            call = NativeExchange(self, stream, method, head.call_headers(stream.varying), deadline)
            stream.context = call
            call.start(message, remaining_s)
            return
        assert isinstance(method, StreamMethod)
        streaming = NativeStream(self, stream, method, head, deadline)
        stream.context = streaming
        if message is not None:
            streaming.deliver(message)
            streaming.end_of_input()
        streaming.start(remaining_s)
        if message is None and not stream.closed:
            streaming.advance()

    def _deadline(self, stream: Http2Stream) -> float | None:
        """The deadline of a call; refuses the call if the deadline is malformed or has passed."""
        for name, value in stream.varying:
            if name == TIMEOUT:
                remaining_s = timeout_s(value)
                if remaining_s is None:
                    self.refuse(stream, GrpcCode.INTERNAL, "grpc-timeout is malformed")
                    return None
                if remaining_s <= 0:
                    self.refuse_expired(stream)
                    return None
                return self._heard + remaining_s
        return None

    def hold(self, size: int) -> None:
        """Counts bytes of incomplete messages. Raises MessageFault past the limit."""
        self._assembled += size
        if size > 0 and self._assembled > ASSEMBLED_BYTES_MAX:
            raise MessageFault(
                RESOURCE_EXHAUSTED,
                f"the incomplete messages of a connection have more than {ASSEMBLED_BYTES_MAX} "
                "bytes: send fewer large messages at one time",
            )

    def grant(self, stream: Http2Stream) -> None:
        self.h2.grant(stream)
        self.mark()

    def submit(
        self, request: wire.AnyRequest, payload: Sequence[bytes], on_answer: OnAnswer, who: Caller
    ) -> int:
        ticket = self._tickets | next(self._server.tickets)
        self.edge.calls.append(_queued(QueuedCall, (ticket, request, payload, on_answer, who)))
        return ticket

    # --- answers --------------------------------------------------------------------------

    def refuse(
        self,
        stream: Http2Stream,
        code: GrpcCode,
        details: str,
        trailing: tuple[tuple[str, str], ...] = (),
        more: tuple[HeaderField, ...] = (),
    ) -> None:
        """Ends a call with a status, in the head of the response if none was sent."""
        fields = [
            (b"grpc-status", b"%d" % code),
            (b"grpc-message", status_message(details[:_DETAILS_MAX])),
            *((name.encode(), value.encode()) for name, value in trailing),
            *more,
        ]
        head = () if stream.responded else RESPONSE
        self.h2.send_trailers(stream, (*head, *fields))
        self.mark()

    def refuse_with(self, stream: Http2Stream, error: WeftError) -> None:
        self.refuse(stream, CODES[error.code], error.message, grpc_code.trailing(error))

    def refuse_expired(self, stream: Http2Stream) -> None:
        if not stream.closed:
            self.refuse_with(stream, DeadlineExceeded("the call's deadline has passed"))

    def end_stream(self, stream: Http2Stream, ended: Ended) -> None:
        """Ends a streaming call."""
        if ended.code:
            self.refuse(stream, ended.code, ended.details, ended.trailing)
            return
        if not stream.responded:
            self.h2.send_head(stream, RESPONSE)
        trailing = [(name.encode(), value.encode()) for name, value in ended.trailing]
        self.h2.send_trailers(stream, ((b"grpc-status", b"0"), *trailing))
        self.mark()

    def _refuse_head(self, stream: Http2Stream, head: GrpcHead) -> None:
        if head.http_status:
            stream.context = PlainRefusal(self, stream, head.http_status)
            stream.context.advance()
            return
        assert head.refusal is not None
        self.refuse(stream, head.refusal.code, head.refusal.details, (), head.refusal.fields)

    def refuse_plainly(self, stream: Http2Stream, status: bytes) -> None:
        self.h2.send_head(stream, ((b":status", status), (b"content-type", b"text/plain")))
        self.h2.send_data(stream, (_PLAIN,))
        self.h2.send_trailers(stream, ((b"grpc-status", b"%d" % GrpcCode.UNKNOWN),))
        self.mark()

    # --- housekeeping ---------------------------------------------------------------------

    def tend(self, now: float, keepalive_s: float, keepalive_timeout_s: float) -> str:
        """Ends expired calls and pings a silent client; returns why the connection is to end."""
        for stream in list(self.h2.streams.values()):
            owner: StreamOwner | None = stream.context
            if owner is not None and owner.deadline is not None and owner.deadline <= now:
                owner.expire()
        if self.held > PEER_BYTES_MAX:
            self.h2.end(ENHANCE_YOUR_CALM, "the answers are not read")
            return "the client does not read its answers"
        if self._pinged > self._heard:
            if now - self._pinged > keepalive_timeout_s:
                return "the client does not answer a ping"
        elif now - self._heard > keepalive_s and self.h2.welcome:
            self._pinged = now
            self.h2.ping()
            self.mark()
        return ""
