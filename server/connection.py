"""One client's connection to the direct edge: what was read from it, and what waits to be written.

It never blocks and knows nothing of other connections. What the kernel does not take at once waits
here, up to a limit past which an answer is refused; while a mebibyte waits nothing more is read, so
that TCP holds back a caller that asks and does not listen. It is read in small pieces, and in
one large one when the rest of a long frame is to come. Requests of a piece are handled before the
next piece is read: they are all that one connection keeps, but for the message under way. Where the
node has a secret key for it, everything after the greetings is sealed (`proto/sealed.py`).
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from weft.errors import ProtocolError
from weft.limits import MIB
from weft.proto import sealed, zmtp
from weft.proto.zmtp import BUFFERS_MAX, GATHER_BYTES_MAX, PIECE_BYTES

from .edge import FRAME_BYTES_MAX, PEER_ANSWERS_MAX, PEER_BYTES_MAX, PEER_MESSAGES_MAX

#: As long as so much waits to be written nothing more is read: an answer that is loaded when its
#: turn has come is still in the processor's cache when it is sent, and takes the last one's memory.
AHEAD_BYTES_MAX: Final = MIB
#: Reads of what is not handled any more, at most: who goes on is cut short.
_LAST_READS: Final = 16
#: What a ROUTER of ZeroMQ's library talks with.
_KINDS: Final = (b"DEALER", b"REQ", b"ROUTER")
_READY: Final = zmtp.ready(b"ROUTER")
_SIGNATURE: Final = zmtp.GREETING[:1]


class Connection:
    __slots__ = (
        "_answers", "_desk", "_greeting", "_handshake", "_low", "_opener", "_reader", "_sealer",
        "_secret", "_socket", "bulky", "due", "fd", "held", "more", "number", "requests", "since",
        "waiting", "watched", "welcome", "where",
    )  # fmt: skip

    def __init__(
        self,
        made: socket.socket,
        number: int,
        where: str,
        since: float,
        secret: bytes | None = None,
        desk: memoryview | None = None,
    ) -> None:
        """With a `secret` key it is encrypted; what comes is then read to the `desk`."""
        assert (secret is None) == (desk is None)
        made.setblocking(False)
        self._socket = made
        self.fd = made.fileno()
        #: No other connection of this node ever has it.
        self.number = number
        #: The other end's host, and when it came.
        self.where = where
        self.since = since
        #: Whether the handshake is done.
        self.welcome = False
        #: What has come and was not handled, the oldest last.
        self.requests: list[list[bytes]] = []
        #: Whether the last read got all that it asked for.
        self.more = False
        # For the edge: whether it stands in the line of those to be read, whether its last pop had
        # a large answer, and what epoll watches.
        self.due = False
        self.bulky = False
        self.watched = 0
        self._greeting = b""
        #: The node's secret key, and the caller's handshake so far.
        self._secret = secret
        self._handshake = b""
        self._desk = desk
        self._sealer: sealed.Sealer | None = None
        self._opener: sealed.SealedReader | None = None
        self._reader: zmtp.Reader | sealed.SealedReader = zmtp.Reader(FRAME_BYTES_MAX)
        self._low = 1
        #: What waits to be written, and whether it is the last of an answer.
        self.waiting: list[tuple[memoryview, bool]] = []
        self._answers = 0
        self.held = 0

    # --- reading --------------------------------------------------------------------------

    def read(self) -> int:
        """Reads a piece; its length. Raises OSError, EOFError or ProtocolError at the end.

        Only when `requests` is empty: what came before an end is handled before it is seen.
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
        if self.welcome:  # as `_take` does, without a call
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
            if reader.lacks:  # the rest of a long frame is likely to be there
                size += self._read_rest(reader.lacks)
        if self._low != 1 or reader.lacks > PIECE_BYTES:
            self._wake_for(reader.lacks)
        return size

    def _read_sealed(self, reader: sealed.SealedReader) -> int:
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
        if data:  # an end is seen by the next read
            self._take(data)
            self.more = len(data) == asked
        return len(data)

    def _wake_for(self, lacks: int) -> None:
        """Has the kernel gather the rest of a long frame: each piece of it would wake the node."""
        low = min(lacks, GATHER_BYTES_MAX) if lacks > PIECE_BYTES else 1
        if low != self._low:
            self._low = low
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)

    def _meet(self, data: bytes) -> None:
        """The handshake, and what may follow it at once."""
        data = self._greeted(data)
        if data and self._secret is not None:
            data = self._shaken(data, self._secret)
        if data:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Puts what is in it behind what is there."""
        self._reader.feed(data)
        self._sort(self._reader)

    def _sort(self, reader: zmtp.Reader | sealed.SealedReader) -> None:
        """Commands and requests that were read."""
        if reader.commands:
            self._obey()
        if reader.messages:
            if not self.welcome:
                raise ProtocolError("a message before READY")
            requests, reader.messages = reader.messages, []
            requests.reverse()
            self.requests = requests + self.requests if self.requests else requests

    def _greeted(self, data: bytes) -> bytes:
        """Takes the greeting off what comes first; ours stands in the socket since it came."""
        lacks = zmtp.GREETING_BYTES - len(self._greeting)
        if not lacks:
            return data
        self._greeting += data[:lacks]
        if not self._greeting.startswith(_SIGNATURE):
            raise ProtocolError("the other end does not speak ZeroMQ's protocol")
        if len(data) >= lacks:
            if self._secret is not None:
                zmtp.check_greeting(self._greeting, sealed.MECHANISM)
            else:
                zmtp.check_greeting(self._greeting)
                self._say([_READY])
        return data[lacks:]

    def _shaken(self, data: bytes, secret: bytes) -> bytes:
        """Takes the caller's handshake off what follows the greeting; the rest is sealed."""
        lacks = sealed.HANDSHAKE_BYTES - len(self._handshake)
        if not lacks:
            return data
        self._handshake += data[:lacks]
        if len(data) >= lacks:
            handshake = sealed.called(secret, self._greeting)
            sealed.hear(handshake, self._handshake)
            self._say([sealed.say(handshake)])
            ours, theirs = handshake.split()
            assert self._desk is not None
            self._sealer = sealed.Sealer(ours, self._desk)
            self._reader = self._opener = sealed.SealedReader(
                theirs, zmtp.Reader(FRAME_BYTES_MAX, _room_for), self._desk
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
        """Whether so much waits to be written that nothing more is to be read."""
        return self.held >= AHEAD_BYTES_MAX or self._answers >= PEER_MESSAGES_MAX // 2

    def greet(self) -> None:
        self._say([zmtp.GREETING if self._secret is None else sealed.CALLED])

    def send(self, pieces: Sequence[bytes]) -> bool:
        """Writes what belongs together, or keeps it; whether it did. Of an end the reader hears."""
        if self.waiting:
            if self._answers >= PEER_ANSWERS_MAX:
                return False
            if self.held + sum(map(len, pieces)) > PEER_BYTES_MAX:
                return False
        written: Sequence[sealed.Piece] = pieces
        if self._sealer is not None:  # after this it has its number, and must be written
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

    def _keep(self, pieces: Sequence[sealed.Piece], sent: int) -> None:
        last = len(pieces) - 1
        for place, piece in enumerate(pieces):
            size = len(piece)
            if sent >= size:
                sent -= size
                continue
            self.waiting.append((sealed.kept(piece, sent), place == last))
            self.held += size - sent
            self._answers += place == last
            sent = 0

    def flush(self) -> None:
        """Writes what waits, as far as the kernel takes it. Raises OSError at the end."""
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
        self._socket.close()

    def leave(self) -> None:
        """Closes after a last word: what is not read would make the kernel drop it."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            for _ in range(_LAST_READS):
                if not self._socket.recv(GATHER_BYTES_MAX):
                    break
        except OSError:
            pass  # it has left, or has nothing more to say
        self.close()


def _room_for(size: int) -> bytearray | None:
    """Records are opened into it, and not put together; nobody changes it after that. A frame that
    is longer takes memory only as it comes: else who announces much would be given much."""
    return bytearray(size) if size <= sealed.DESK_BYTES else None
