"""One client connection of the ZMTP edge: received requests, and responses not yet written.

A connection never blocks and has no knowledge of other connections. Bytes refused by the kernel are
buffered here, up to a limit; past the limit `send` refuses a response. While a mebibyte is buffered
the connection reads nothing, so TCP applies backpressure to a caller with requests in flight and
responses unread. Reads are small, except for the rest of a long frame, which takes one large read.
The requests of one read are handled before the next read: besides the message in progress they are
the only input that a connection buffers. If the node has a secret key for the connection,
everything after the greetings is encrypted (`transport/noise_transport.py`).
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from typing import Final

from weft.errors import ProtocolError
from weft.limits import MIB
from weft.proto import wire
from weft.transport import noise_transport, zmtp
from weft.transport.zmtp import BUFFERS_MAX, GATHER_BYTES_MAX, PIECE_BYTES

from .edge import FRAME_BYTES_MAX, PEER_ANSWERS_MAX, PEER_BYTES_MAX, PEER_MESSAGES_MAX

#: While so many bytes wait to be written, nothing more is read. A response loaded when its turn
#: comes is still in the processor's cache when sent, and reuses the memory of the previous
#: response.
AHEAD_BYTES_MAX: Final = MIB
#: `leave` reads and discards input at most this many times; a peer that sends more is cut off.
_LAST_READS: Final = 16
#: Socket types allowed to connect to a ROUTER of libzmq.
_KINDS: Final = (b"DEALER", b"REQ", b"ROUTER")
_READY: Final = zmtp.ready(b"ROUTER")
_SIGNATURE: Final = zmtp.GREETING[:1]


class ZmtpConnection:
    __slots__ = (
        "_answers",
        "_greeting",
        "_handshake",
        "_kept",
        "_lent",
        "_low",
        "_opener",
        "_reader",
        "_scratch",
        "_sealer",
        "_secret",
        "_socket",
        "bulky",
        "due",
        "fd",
        "held",
        "more",
        "number",
        "requests",
        "since",
        "waiting",
        "watched",
        "welcome",
        "where",
    )  # fmt: skip

    def __init__(
        self,
        made: socket.socket,
        number: int,
        where: str,
        since: float,
        secret: bytes | None = None,
        scratch: memoryview | None = None,
    ) -> None:
        """With a `secret` key the connection is encrypted, and reads go into `scratch`."""
        assert (secret is None) == (scratch is None)
        made.setblocking(False)
        self._socket = made
        self.fd = made.fileno()
        #: Unique among all connections of the node, never reused.
        self.number = number
        #: The peer's host, and the time of accept.
        self.where = where
        self.since = since
        #: True once the handshake is complete.
        self.welcome = False
        #: Received requests that are not handled yet, the oldest last.
        self.requests: list[list[bytes]] = []
        #: True if the last read filled its buffer, so more input is likely.
        self.more = False
        # Owned by the edge: `due` is True while the connection is in the read queue, `bulky` is
        # True if the last pop had a large response, `watched` is the epoll event mask.
        self.due = False
        self.bulky = False
        self.watched = 0
        self._greeting = b""
        #: The node's secret key, and the bytes of the client's handshake received so far.
        self._secret = secret
        self._handshake = b""
        self._scratch = scratch
        self._sealer: noise_transport.Sealer | None = None
        self._opener: noise_transport.SealedReader | None = None
        self._reader: zmtp.FrameReader | noise_transport.SealedReader = zmtp.FrameReader(
            FRAME_BYTES_MAX
        )
        self._low = 1
        #: (bytes to write, True for the last piece of a response).
        self.waiting: list[tuple[memoryview, bool]] = []
        self._answers = 0
        self.held = 0
        #: Responses ever buffered; the last `_answers` of them are still unsent.
        self._kept = 0
        #: Messages leased by buffered responses, each with the response's number in `_kept`. The
        #: first entries may belong to responses already sent.
        self._lent: deque[tuple[int, list[wire.Lent]]] = deque()

    # --- reading --------------------------------------------------------------------------

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
        data = self._greeted(data)
        if data and self._secret is not None:
            data = self._shaken(data, self._secret)
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

    def _greeted(self, data: bytes) -> bytes:
        """Strips the peer's greeting from the first bytes received.

        The node sent its own greeting when the connection was accepted.
        """
        lacks = zmtp.GREETING_BYTES - len(self._greeting)
        if not lacks:
            return data
        self._greeting += data[:lacks]
        if not self._greeting.startswith(_SIGNATURE):
            raise ProtocolError("the other end does not speak ZeroMQ's protocol")
        if len(data) >= lacks:
            if self._secret is not None:
                zmtp.check_greeting(self._greeting, noise_transport.MECHANISM)
            else:
                zmtp.check_greeting(self._greeting)
                self._say([_READY])
        return data[lacks:]

    def _shaken(self, data: bytes, secret: bytes) -> bytes:
        """Strips the client's handshake after the greeting; all later bytes are encrypted."""
        lacks = noise_transport.HANDSHAKE_BYTES - len(self._handshake)
        if not lacks:
            return data
        self._handshake += data[:lacks]
        if len(data) >= lacks:
            handshake = noise_transport.called(secret, self._greeting)
            noise_transport.hear(handshake, self._handshake)
            self._say([noise_transport.say(handshake)])
            ours, theirs = handshake.split()
            assert self._scratch is not None
            self._sealer = noise_transport.Sealer(ours, self._scratch)
            self._reader = self._opener = noise_transport.SealedReader(
                theirs, zmtp.FrameReader(FRAME_BYTES_MAX, _room_for), self._scratch
            )
            self._say([_READY])
        return data[lacks:]

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

    # --- writing --------------------------------------------------------------------------

    @property
    def stalled(self) -> bool:
        """True if so much output is buffered that nothing more is to be read."""
        return self.held >= AHEAD_BYTES_MAX or self._answers >= PEER_MESSAGES_MAX // 2

    def greet(self) -> None:
        self._say([zmtp.GREETING if self._secret is None else noise_transport.CALLED])

    def send(self, pieces: Sequence[bytes]) -> bool:
        """Writes or buffers the pieces of one response; False if the response was refused.

        The next read reports the end of a connection.
        """
        if self.waiting:
            if self._answers >= PEER_ANSWERS_MAX:
                return False
            if self.held + sum(map(len, pieces)) > PEER_BYTES_MAX:
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
            except BlockingIOError:
                pass
            except OSError:
                return False
        self._keep(written, sent)
        return True

    def _keep(self, pieces: Sequence[noise_transport.Piece], sent: int) -> None:
        last = len(pieces) - 1
        for place, piece in enumerate(pieces):
            size = len(piece)
            if sent >= size:
                sent -= size
                continue
            self.waiting.append((noise_transport.kept(piece, sent), place == last))
            self.held += size - sent
            self._answers += place == last
            self._kept += place == last
            sent = 0

    def note_lent(self, lent: list[wire.Lent]) -> None:
        """Records the messages leased by the last response, which is not fully sent yet."""
        self._forget_sent()
        self._lent.append((self._kept, lent))

    def unsent_lent(self) -> list[wire.Lent]:
        """Returns the messages leased by buffered responses.

        The client cannot have seen any of these messages: a response of which the kernel took only
        a part was never received in full.
        """
        self._forget_sent()
        return [one for _, lent in self._lent for one in lent]

    def _forget_sent(self) -> None:
        sent = self._kept - self._answers
        while self._lent and self._lent[0][0] <= sent:
            self._lent.popleft()

    def flush(self) -> None:
        """Writes buffered output until the kernel refuses. Raises OSError when the peer is gone."""
        try:
            sent = self._socket.sendmsg([piece for piece, _ in self.waiting[:BUFFERS_MAX]])
        except BlockingIOError:
            return
        self.held -= sent
        gone = 0
        for piece, last in self.waiting:
            if sent < len(piece):
                break
            sent -= len(piece)
            gone += 1
            self._answers -= last
        del self.waiting[:gone]
        if sent:
            piece, last = self.waiting[0]
            self.waiting[0] = piece[sent:], last

    # --- the end --------------------------------------------------------------------------

    def close(self) -> None:
        self.more = False
        self.watched = 0
        self.requests = []
        self.waiting = []
        self._lent.clear()
        self._socket.close()

    def leave(self) -> None:
        """Closes after the last response; unread input would make the kernel drop that response."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            for _ in range(_LAST_READS):
                if not self._socket.recv(GATHER_BYTES_MAX):
                    break
        except OSError:
            pass  # the peer has closed, or has no more input
        self.close()


def _room_for(size: int) -> bytearray | None:
    """Allocates the buffer of one frame; records are decrypted straight into the buffer.

    Nothing changes the buffer after decryption. A longer frame gets memory only as its bytes
    arrive: otherwise a peer could make the node allocate memory by announcing a large frame.
    """
    return bytearray(size) if size <= noise_transport.DESK_BYTES else None
