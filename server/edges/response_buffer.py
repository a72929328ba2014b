"""Responses of one ZMTP connection: several at once, and those that the kernel has not taken yet.

The buffer has limits, past which the connection refuses a response. While a mebibyte is buffered
the connection reads nothing, so TCP applies backpressure to a caller with requests in flight and
responses unread.
"""

from __future__ import annotations

import socket
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final

from weft.limits import MIB
from weft.proto import wire
from weft.transport import noise_transport
from weft.transport.zmtp import BUFFERS_MAX, GATHER_BYTES_MAX

from .edge import PEER_ANSWERS_MAX, PEER_BYTES_MAX, PEER_MESSAGES_MAX
from .edge_connection import EdgeConnection

#: While so many bytes wait to be written, nothing more is read. A response loaded when its turn
#: comes is still in the processor's cache when sent, and reuses the memory of the previous
#: response.
AHEAD_BYTES_MAX: Final = MIB
#: `leave` reads and discards input at most this many times; a peer that sends more is cut off.
_LAST_READS: Final = 16

#: The pieces of a response, and the messages that the response leases.
Response = tuple[list[bytes], list[wire.Lent]]


class ResponseBuffer(EdgeConnection):
    __slots__ = ("_answers", "_kept", "_lent", "_sealer", "_socket", "held", "waiting")

    def __init__(self, made: socket.socket, number: int, where: str, since: float) -> None:
        super().__init__(made.fileno(), number, where, since)
        made.setblocking(False)
        self._socket = made
        #: Encrypts what is written; None: the bytes leave in plain.
        self._sealer: noise_transport.Sealer | None = None
        #: (bytes to write, True for the last piece of a response).
        self.waiting: list[tuple[memoryview, bool]] = []
        self._answers = 0
        self.held = 0
        #: Responses ever buffered; the last `_answers` of them are still unsent.
        self._kept = 0
        #: Messages leased by buffered responses, each with the response's number in `_kept`. The
        #: first entries may belong to responses already sent.
        self._lent: deque[tuple[int, list[wire.Lent]]] = deque()

    @property
    def stalled(self) -> bool:
        if self.paused:
            return True
        return self.held >= AHEAD_BYTES_MAX or self._answers >= PEER_MESSAGES_MAX // 2

    def _is_full(self, pieces: Sequence[bytes]) -> bool:
        """True if one more response would exceed a limit."""
        size = self.held + sum(map(len, pieces))
        return self._answers >= PEER_ANSWERS_MAX or size > PEER_BYTES_MAX

    @abstractmethod
    def send(self, pieces: Sequence[bytes]) -> bool:
        """Writes or buffers the pieces of one response; False if the response was refused."""

    def send_all(self, responses: Sequence[Response]) -> int:
        """As `send` for several responses, with one system call. Returns the number of responses
        that were written or buffered; if some were refused, the connection is to be dropped."""
        flat = [piece for pieces, _ in responses for piece in pieces]
        if self.waiting or self._sealer is not None or len(flat) > BUFFERS_MAX:
            for place, (pieces, lent) in enumerate(responses):
                if not self.send(pieces):
                    return place
                if self.waiting:
                    self.note_lent(lent)
            return len(responses)
        sent = 0
        try:
            sent = self._socket.sendmsg(flat)
        except BlockingIOError:
            pass
        except OSError:
            return 0
        for pieces, lent in responses:
            size = sum(map(len, pieces))
            if sent < size:
                self._keep(pieces, sent)
                self.note_lent(lent)
            sent = max(0, sent - size)
        return len(responses)

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
