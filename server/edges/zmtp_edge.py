"""The ZMTP edge: client connections on which the node is a ROUTER of ZeroMQ (`transport/zmtp.py`).

libzmq and Weft's own client connect alike. libzmq itself would move every message through an I/O
thread; here the node's own thread reads the sockets (`socket_edge.py`). If the node has a key,
connections are encrypted. Frames are checked while they are decoded; a message that is no request
is answered with a PROTOCOL failure and discarded.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from weft.errors import ProtocolError, Refused
from weft.limits import KIB, MIB
from weft.proto import wire
from weft.server.address import Address
from weft.server.observability.log import fields
from weft.server.security.access import Access
from weft.server.security.audit import Audit, audited
from weft.server.security.caller import ANONYMOUS, Caller
from weft.transport import noise_transport, zmtp
from weft.transport.zmtp import BUFFERS_MAX, GATHER_BYTES_MAX, PIECE_BYTES

from .edge import EdgeCaller, Received, cannot_listen
from .edge_connection import EdgeConnection
from .response_buffer import Response, ResponseBuffer
from .socket_edge import SocketEdge
from .tcp_listener import listen
from .zmtp_handshake import NodeHandshake

log = logging.getLogger(__name__)

#: A connection with so many bytes in its last pop response gets one pop per round. If all its pops
#: were loaded at once, the first response would leave the processor's cache before the send, and
#: each response would take memory from the kernel and return it. Small batches are not limited so.
BULKY_BYTES: Final = MIB
#: A response with payloads of this size leaves by itself: gathered responses together would leave
#: the processor's cache before the send.
LARGE_BYTES: Final = 64 * KIB
#: Socket types allowed to connect to a ROUTER of libzmq.
_KINDS: Final = (b"DEALER", b"REQ", b"ROUTER")
_READY: Final = zmtp.ready(b"ROUTER")


class ZmtpConnection(ResponseBuffer):
    """One client connection: received requests, and responses.

    A connection never blocks and has no knowledge of other connections. Reads are small, except for
    the rest of a long frame, which takes one large read. The requests of one read are handled
    before the next read: besides the message in progress they are the only input that a connection
    buffers.
    """

    __slots__ = ("_handshake", "_low", "_opener", "_reader", "welcome")

    def __init__(
        self,
        made: socket.socket, number: int, where: str, since: float,
        secret: bytes | None = None, scratch: memoryview | None = None,
    ) -> None:  # fmt: skip
        """With a `secret` key the connection is encrypted, and reads go into `scratch`."""
        super().__init__(made, number, where, since)
        #: True once the client has sent READY.
        self.welcome = False
        self._handshake: NodeHandshake | None = NodeHandshake(secret, scratch)
        self._opener: noise_transport.SealedReader | None = None
        self._reader = self._handshake.reader
        self._low = 1

    def greet(self) -> None:
        assert self._handshake is not None
        self._say([self._handshake.opening])

    def read(self) -> int:
        """Reads one piece and returns the piece's length in bytes.

        Raises OSError, EOFError or ProtocolError when the connection ends. Call only when
        `requests` is empty, so that requests received before the end are handled before the end is
        reported.
        """
        if self._opener is not None:
            return self._read_sealed(self._opener)
        reader = self._reader
        asked = reader.lacks if reader.lacks > PIECE_BYTES else PIECE_BYTES
        self.more = False
        try:
            data = self._socket.recv(asked)
        except BlockingIOError:
            return 0
        size = len(data)
        if not size:
            raise EOFError
        if self.welcome:  # inlines `_take`: saves a call
            reader.feed(data)
            if reader.commands:
                self._obey()
            requests = reader.messages
            if requests:
                reader.messages = []
                requests.reverse()
                self.requests = requests
        else:
            self._meet(data)
            reader = self._reader
        if size == asked:
            self.more = True
            if reader.lacks:  # the rest of a long frame has probably arrived
                size += self._read_rest(reader.lacks)
        if self._low != 1 or reader.lacks > PIECE_BYTES:
            self._wake_for(reader.lacks)
        return size

    def _read_sealed(self, reader: noise_transport.SealedReader) -> int:
        room = reader.room
        self.more = False
        try:
            size = self._socket.recv_into(room)
        except BlockingIOError:
            return 0
        if not size:
            raise EOFError
        reader.filled(size)
        self._sort(reader)
        self.more = size == len(room)
        if self._low != 1 or reader.lacks > PIECE_BYTES:
            self._wake_for(reader.lacks)
        return size

    def _read_rest(self, asked: int) -> int:
        try:
            data = self._socket.recv(asked)
        except BlockingIOError:
            self.more = False
            return 0
        if data:  # the next read reports an end of stream
            self._take(data)
            self.more = len(data) == asked
        return len(data)

    def _wake_for(self, lacks: int) -> None:
        """Sets SO_RCVLOWAT so that the kernel gathers the rest of a long frame.

        Otherwise every piece of the frame would wake the node.
        """
        low = min(lacks, GATHER_BYTES_MAX) if lacks > PIECE_BYTES else 1
        if low != self._low:
            self._low = low
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)

    def _meet(self, data: bytes) -> None:
        """Handles the handshake, and any frames that arrive with the handshake."""
        handshake = self._handshake
        if handshake is not None:
            data = handshake.feed(data)
            if handshake.done:
                self._handshake, self._reader = None, handshake.reader
                if isinstance(handshake.reader, noise_transport.SealedReader):
                    self._say([handshake.answer])
                    self._opener, self._sealer = handshake.reader, handshake.sealer
                self._say([_READY])
        if data:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Decodes `data` and queues the requests behind those already queued."""
        self._reader.feed(data)
        self._sort(self._reader)

    def _sort(self, reader: zmtp.FrameReader | noise_transport.SealedReader) -> None:
        """Executes decoded commands and queues decoded requests."""
        if reader.commands:
            self._obey()
        if reader.messages:
            if not self.welcome:
                raise ProtocolError("a message before READY")
            requests, reader.messages = reader.messages, []
            requests.reverse()
            self.requests = requests + self.requests if self.requests else requests

    def _obey(self) -> None:
        commands, self._reader.commands = self._reader.commands, []
        if not self.welcome:
            kind = zmtp.kind_of(commands.pop(0))
            if kind not in _KINDS:
                raise ProtocolError(f"a socket of the kind {kind[:20]!r}")
            self.welcome = True
        pongs = [pong for command in commands if (pong := zmtp.pong(command)) is not None]
        if pongs:
            self._say([b"".join(pongs)])

    def _say(self, pieces: Sequence[bytes]) -> None:
        if not self.send(pieces):
            raise EOFError

    def send(self, pieces: Sequence[bytes]) -> bool:
        """Writes or buffers the pieces of one response; False if the response was refused.

        The next read reports the end of a connection.
        """
        if self.waiting and self._is_full(pieces):
            return False
        written: Sequence[noise_transport.Piece] = pieces
        if self._sealer is not None:  # a sealed record has its sequence number and must be written
            written = self._sealer.seal(pieces)
        sent = 0
        count = len(written)
        if count > BUFFERS_MAX:
            written = [b"".join(written)]
            count = 1
        if not self.waiting:
            try:
                if count == 1:
                    sent = self._socket.send(written[0])
                    if sent == len(written[0]):
                        return True
                else:
                    sent = self._socket.sendmsg(written)
                    if sent == sum(map(len, written)):
                        return True
            except BlockingIOError:
                pass
            except OSError:
                return False
        self._keep(written, sent)
        return True


class ZmtpEdge(SocketEdge):
    def __init__(
        self,
        address: Address,
        access: Access | None = None,
        audit: Audit | None = None,
        connections_max: int = 1_000_000,
        secret: bytes | None = None,
    ) -> None:
        """With a `secret` key connections are encrypted; a token authenticates the client."""
        super().__init__()
        self._access = access
        self._audit = audit
        #: The last caller: consecutive requests mostly have the same principal.
        self._who = ANONYMOUS
        self._secret = secret
        self._scratch = noise_transport.scratch() if secret is not None else None
        self._zmtp: dict[int, ZmtpConnection] = {}
        #: Responses of this round, gathered by `send_soon`.
        self._gathered: dict[ZmtpConnection, list[Response]] = {}
        try:
            listener = listen(address, cannot_listen)
        except BaseException:
            self.close()
            raise
        self.address = Address(address.host, listener.getsockname()[1])
        self.listen(listener, self._connect, connections_max)

    def send(self, caller: EdgeCaller, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> bool:
        """True if the response was written, or is buffered until it can be."""
        connection = self._zmtp.get(caller.peer)
        if connection is None:
            log.debug("answer not sent", extra=fields(why="the client disconnected"))
            return False
        reply = wire.encode(wire.Reply(caller.rid, answer))
        if payload:
            connection.bulky = sum(map(len, payload)) >= BULKY_BYTES
        if not connection.send(zmtp.message([reply, *payload])):
            # The client would wait for a lost response; on a new connection the client retries.
            self.drop(connection, "the client does not read, or is unreachable")
            return False
        if connection.waiting:
            if type(answer) is wire.Popped and answer.lent:
                connection.note_lent(answer.lent)
            self._watch(connection)
        return True

    def send_soon(
        self, caller: EdgeCaller, answer: wire.AnyAnswer, frames: Sequence[bytes]
    ) -> bool:
        """As `send`, but the response leaves with `flush`, in one system call with the others of
        its connection. A large response leaves at once, while it is in the processor's cache."""
        connection = self._zmtp.get(caller.peer)
        if connection is None or (frames and sum(map(len, frames)) >= LARGE_BYTES):
            self._send_gathered()
            return self.send(caller, answer, frames)
        reply = wire.encode(wire.Reply(caller.rid, answer))
        lent: list[wire.Lent] = []
        if type(answer) is wire.Popped:
            lent = answer.lent
            connection.bulky = False
        response = zmtp.message([reply, *frames]), lent
        if connection in self._gathered:
            self._gathered[connection].append(response)
        else:
            self._gathered[connection] = [response]
        return True

    def flush(self) -> None:
        """Sends the gathered responses, and the output of gRPC."""
        if self._gathered:
            self._send_gathered()
        super().flush()

    def _send_gathered(self) -> None:
        """Messages of refused responses become `undelivered`."""
        gathered, self._gathered = self._gathered, {}
        for connection, responses in gathered.items():
            sent = connection.send_all(responses)
            if sent < len(responses):
                self.undelivered += [one for _, lent in responses[sent:] for one in lent]
                self.drop(connection, "the client does not read, or is unreachable")
            elif connection.waiting:
                self._watch(connection)

    def held(self, number: int) -> int:
        connection = self._by_number.get(number)
        return 0 if connection is None else connection.held

    def _request(self, peer: int, frames: list[bytes], where: str) -> Received | None:
        """Decodes and authorises one request."""
        try:
            call = wire.decode_call(frames[0])
            if call.version != wire.WIRE_VERSION:
                raise msgspec.ValidationError(
                    f"wire version {call.version} is not supported, this node has version "
                    f"{wire.WIRE_VERSION}"
                )
        except (*wire.MALFORMED, IndexError) as error:
            failure = wire.Failure("PROTOCOL", f"not a request: {error}", False)
            self.send(EdgeCaller(peer, 0), failure, ())
            return None
        request = call.request
        who = ANONYMOUS
        if self._access is not None:
            try:
                principal = self._access.check(call.token, request)
            except Refused as error:
                if self._audit is not None:  # audit before the caller learns of the refusal
                    whose = Caller(self._access.whose(call.token), where)
                    self._audit.refused(whose, request, error)
                failure = wire.Failure(error.code, error.message, error.retriable)
                self.send(EdgeCaller(peer, call.rid), failure, ())
                return None
            who = self._who
            if who.principal is not principal:
                who = self._who = Caller(principal)
        if self._audit is not None and type(request) is not wire.Push and audited(request):
            who = Caller(who.principal, where)
        return Received(EdgeCaller(peer, call.rid), request, frames[1:], who)

    def _connect(self, made: socket.socket, where: str, number: int) -> ZmtpConnection:
        connection = ZmtpConnection(
            made, number, where, time.monotonic(), self._secret, self._scratch
        )
        self._zmtp[number] = connection
        return connection

    def _forget(self, connection: EdgeConnection) -> None:
        super()._forget(connection)
        self._zmtp.pop(connection.number, None)
