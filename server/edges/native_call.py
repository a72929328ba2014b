"""gRPC calls in the node's thread: how each kind of method reads its stream and answers.

| class             | the stream of                                                        |
|-------------------|----------------------------------------------------------------------|
| `RequestAssembly` | a method with one request message, until the message is complete     |
| `NativeExchange`  | an exchange method, afterwards                                       |
| `NativeStream`    | a streaming method                                                   |
| `LocalCall`       | health and reflection                                                |
| `PlainRefusal`    | a request that is not of gRPC, answered in plain HTTP                |

The connection calls `advance` when something has happened on the stream, and `abort` when the
stream has ended without an answer: reset by the client, or lost with the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from weft.limits import GRPC_BYTES_MAX, KIB
from weft.proto import wire
from weft.server.node.call_inbox import QueuedCall
from weft.server.node.node_api import OnAnswer
from weft.server.security.caller import Caller
from weft.transport.grpc_messages import UNIMPLEMENTED, MessageFault, MessageReader, prefix
from weft.transport.http2_limits import STREAM_WINDOW
from weft.transport.http2_stream import Http2Stream

from .call_log import REQUEST_ID
from .grpc_call import CallHeaders, Ended, ExchangeCall, ServedCall
from .grpc_code import GrpcCode
from .grpc_head import OK, RESPONSE, GrpcHead
from .grpc_method import ExchangeMethod, StreamMethod
from .local_method import LocalMethod
from .stream_call import StreamCall

if TYPE_CHECKING:
    from .grpc_connection import GrpcConnection


#: A message to a local method: the name of a service or a symbol. It is not counted against the
#: incomplete messages of the connection.
LOCAL_BYTES_MAX: Final = 64 * KIB
_REQUEST_ID: Final = REQUEST_ID.encode()


class StreamOwner(Protocol):
    #: The time of the client's deadline on the monotonic clock, if any.
    deadline: float | None

    def advance(self) -> None: ...

    def abort(self) -> None: ...

    def expire(self) -> None:
        """The client's deadline has passed."""
        ...


class RequestAssembly:
    """Waits for the one message of a request, which arrives in pieces."""

    __slots__ = ("_connection", "_head", "_held", "_messages", "_reader", "_stream", "deadline")

    def __init__(self, connection: GrpcConnection, stream: Http2Stream, head: GrpcHead) -> None:
        self._connection = connection
        self._stream = stream
        self._head = head
        self._reader = MessageReader(GRPC_BYTES_MAX, gzip=head.gzip)
        self._messages: list[bytes] = []
        #: Bytes counted by the connection: a complete message, too, until the request has ended.
        self._held = 0
        self.deadline: float | None = None

    def advance(self) -> None:
        stream, connection = self._stream, self._connection
        chunks, stream.chunks = stream.chunks, []
        try:
            self._messages += self._reader.feed(chunks)
            before, self._held = self._held, self._reader.size + sum(map(len, self._messages))
            connection.hold(self._held - before)
            if len(self._messages) > 1 or (stream.ended and not self._messages):
                raise MessageFault(UNIMPLEMENTED, "the method takes exactly one message")
            if stream.ended and self._reader.size:
                raise MessageFault(GrpcCode.INTERNAL, "the message is cut off")
        except MessageFault as fault:
            self.abort()
            connection.refuse(stream, GrpcCode(fault.status), str(fault))
            return
        if stream.ended:
            self.abort()
            connection.start(stream, self._head, self._messages[0])
        else:
            connection.grant(stream)

    def abort(self) -> None:
        held, self._held = self._held, 0
        self._connection.hold(-held)

    def expire(self) -> None:
        self.abort()
        self._connection.refuse_expired(self._stream)


class _NativeCall(ServedCall):
    """The hooks that both kinds of the node's calls share."""

    __slots__ = ()
    connection: GrpcConnection
    stream: Http2Stream

    def _submit(
        self, request: wire.AnyRequest, payload: Sequence[bytes], on_answer: OnAnswer, who: Caller
    ) -> int:
        return self.connection.submit(request, payload, on_answer, who)

    def _cancel(self, ticket: int) -> None:
        self.connection.edge.calls.append(QueuedCall(ticket, None))


class NativeExchange(_NativeCall, ExchangeCall):
    __slots__ = ("connection", "deadline", "stream")

    def __init__(
        self,
        connection: GrpcConnection,
        stream: Http2Stream,
        method: ExchangeMethod,
        headers: CallHeaders,
        deadline: float | None,
    ) -> None:
        ExchangeCall.__init__(self, connection.services, method, headers, connection.where)
        self.connection = connection
        self.stream = stream
        self.deadline = deadline

    def advance(self) -> None:
        """The request is complete: nothing more arrives, but room for the response."""

    def abort(self) -> None:
        self.cancel()

    def expire(self) -> None:
        self.cancel()
        self.connection.refuse_expired(self.stream)

    def _finish(self, ended: Ended) -> None:
        connection, stream = self.connection, self.stream
        if stream.closed:
            return
        connection.refuse(stream, ended.code, ended.details, ended.trailing)
        if stream.closed:
            stream.context = None  # the call and its stream are no cycle any more

    def _respond(self, message: bytes) -> None:
        connection, stream = self.connection, self.stream
        if stream.closed:
            return
        connection.h2.respond(
            stream,
            RESPONSE,
            (prefix.pack(0, len(message)), message),
            OK,
            (_REQUEST_ID, self._entry.name.encode()),
        )
        if stream.closed:
            stream.context = None
        if type(self._asked.request) is wire.Pop:
            connection.track(self)
        connection.mark()


class NativeStream(_NativeCall, StreamCall):
    def __init__(
        self,
        connection: GrpcConnection,
        stream: Http2Stream,
        method: StreamMethod,
        head: GrpcHead,
        deadline: float | None,
    ) -> None:
        headers = head.call_headers(stream.varying)
        StreamCall.__init__(self, connection.services, method, headers, connection.where)
        self.connection = connection
        self.stream = stream
        self.deadline = deadline
        self._reader = MessageReader(GRPC_BYTES_MAX, gzip=head.gzip)
        #: Messages that the method's full inbox has no room for.
        self._arrived: deque[bytes] = deque()
        #: Bytes in the method's inbox, and bytes that the connection counts for the call.
        self._inbox_bytes = self._held = 0
        self._alarm: int | None = None
        self._unwritten = 0

    # --- input --------------------------------------------------------------------------------

    def advance(self) -> None:
        stream = self.stream
        if stream.chunks and not self.closed:
            chunks, stream.chunks = stream.chunks, []
            before = self._reader.size
            try:
                messages = self._reader.feed(chunks)
                more = self._reader.size - before + sum(map(len, messages))
                self._held += more
                self.connection.hold(more)
            except MessageFault as fault:
                self.abort()
                self.connection.refuse(stream, GrpcCode(fault.status), str(fault))
                return
            if messages:
                self.connection.h2.note_progress()
                self._arrived += messages
        self._pass_on()

    def _pass_on(self) -> None:
        """Delivers messages while the method has room, and lets the client send as much again."""
        while self._arrived and not self.full and self._inbox_bytes < STREAM_WINDOW:
            message = self._arrived.popleft()
            self._inbox_bytes += len(message)
            self.deliver(message)
        if self._arrived:
            return
        if not self.stream.ended:
            self.connection.grant(self.stream)
        elif not self._end_of_input:
            self.end_of_input()

    def _taken(self, message: bytes) -> None:
        size = min(len(message), self._held)  # the message of a unary request was not counted
        self._inbox_bytes -= size
        self._held -= size
        self.connection.hold(-size)
        if self._arrived or not self.stream.ended:
            self._pass_on()

    # --- output -------------------------------------------------------------------------------

    def _send(self, message: bytes) -> None:
        connection, stream = self.connection, self.stream
        if stream.closed:
            return
        if not stream.responded:
            connection.h2.send_head(stream, RESPONSE)
        connection.h2.send_data(stream, (prefix.pack(0, len(message)), message))
        if not self._unwritten:
            connection.sending.append(self)
        self._unwritten += len(message)
        connection.mark()

    def written(self) -> bool:
        """All output of the connection was written: True if the messages of the call were, too."""
        if self.stream.queue is not None:
            return False
        size, self._unwritten = self._unwritten, 0
        self.sent(size)
        return True

    def _resume(self) -> None:
        self.connection.edge.resumed.append(self.step)

    def _set_alarm(self, at: float | None) -> None:
        alarms = self.connection.edge.alarms
        if self._alarm is not None:
            alarms.cancel(self._alarm)
        self._alarm = None if at is None else alarms.set(at, self.wake)

    # --- the end ------------------------------------------------------------------------------

    def abort(self) -> None:
        self._release()
        self.cancel()

    def expire(self) -> None:
        self.abort()
        self.connection.refuse_expired(self.stream)

    def _finish(self, ended: Ended) -> None:
        self._release()
        if not self.stream.closed:
            self.connection.end_stream(self.stream, ended)

    def _release(self) -> None:
        held, self._held = self._held, 0
        self.connection.hold(-held)
        self._arrived.clear()


class LocalCall:
    """Implements LocalCaller."""

    def __init__(
        self, connection: GrpcConnection, stream: Http2Stream, method: LocalMethod, head: GrpcHead
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._method = method
        self._reader = MessageReader(LOCAL_BYTES_MAX, gzip=head.gzip)
        self._handled = False
        self.deadline: float | None = None
        self.on_end: Callable[[], None] = lambda: None

    def advance(self) -> None:
        stream = self._stream
        chunks, stream.chunks = stream.chunks, []
        try:
            messages = self._reader.feed(chunks)
        except MessageFault as fault:
            self.finish(GrpcCode(fault.status), str(fault))
            return
        for message in messages:
            if self._handled and not self._method.client_streams:
                self.finish(GrpcCode.UNIMPLEMENTED, "the method takes exactly one message")
            if stream.closed:
                return
            self._handled = True
            self._handle(message)
        if stream.ended and not stream.closed:
            if self._method.client_streams:
                self.finish()
            elif not self._handled:
                self.finish(GrpcCode.UNIMPLEMENTED, "the method takes exactly one message")
        elif not stream.closed:
            self._connection.grant(stream)

    def _handle(self, message: bytes) -> None:
        try:
            self._method.handle(self, message)
        except Exception as error:
            self.finish(GrpcCode.INTERNAL, f"the message cannot be read: {error}")

    def send(self, message: bytes) -> None:
        stream, connection = self._stream, self._connection
        if stream.closed:
            return
        if not stream.responded:
            connection.h2.send_head(stream, RESPONSE)
        connection.h2.send_data(stream, (prefix.pack(0, len(message)), message))
        connection.mark()

    def finish(self, code: GrpcCode = GrpcCode.OK, details: str = "") -> None:
        self.on_end()
        if not self._stream.closed:
            self._connection.end_stream(self._stream, Ended(code, details, b"", ()))

    def abort(self) -> None:
        self.on_end()

    def expire(self) -> None:
        self.on_end()
        self._connection.refuse_expired(self._stream)


class PlainRefusal:
    """Answers in plain HTTP, once the request is complete."""

    def __init__(self, connection: GrpcConnection, stream: Http2Stream, status: bytes) -> None:
        self._connection = connection
        self._stream = stream
        self._status = status
        self.deadline: float | None = None

    def advance(self) -> None:
        self._stream.chunks.clear()
        if self._stream.ended and not self._stream.responded:
            self._connection.refuse_plainly(self._stream, self._status)
        else:
            self._connection.grant(self._stream)

    def abort(self) -> None:
        pass

    def expire(self) -> None:
        pass
