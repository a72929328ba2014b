"""The sending side of an HTTP/2 connection: frames to write, and flow control.

Frames gather in `output`, and the owner of the socket writes them with one system call. Header
blocks must reach the peer in the order in which they were encoded, so the trailers of a stream with
queued DATA are encoded only when the last DATA leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from .hpack import HpackEncoder
from .hpack_table import HeaderField
from .http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_MAX,
    HEADERS,
    NO_ERROR,
    WINDOW_DEFAULT,
    frame,
    frame_header,
    reset,
)
from .http2_limits import REMEMBERED_RESETS_MAX
from .http2_stream import Http2Stream

_LAST: Final = END_HEADERS | END_STREAM


class Http2Output:
    """The sending half of `Http2Connection`."""

    def __init__(
        self, repeated: Iterable[HeaderField] = (), repeated_names: Iterable[bytes] = ()
    ) -> None:
        """`repeated`, `repeated_names`: fields of many responses (`HpackEncoder`)."""
        #: Frames to write, in order. The owner of the socket takes and clears them.
        self.output: list[bytes | memoryview] = []
        #: Bytes of DATA that wait for the peer's windows.
        self.queued_bytes = 0
        self.streams: dict[int, Http2Stream] = {}
        self._encoder = HpackEncoder(repeated, repeated_names)
        self._send_window = WINDOW_DEFAULT
        self._peer_window = WINDOW_DEFAULT
        #: The streams to report by the current `receive`.
        self._news: list[Http2Stream] = []
        self._blocked: dict[Http2Stream, None] = {}
        self._reset_lately: dict[int, None] = {}
        # Attack counters: see `http2_limits`.
        self._idle_frames = 0
        self._resets = 0
        self._ping_strikes = 0
        #: Pings of the client that its receipt of DATA explains.
        self._due_pings = 0

    # --- responses ------------------------------------------------------------------------

    def respond(
        self,
        stream: Http2Stream,
        head: tuple[HeaderField, ...],
        body: Sequence[bytes],
        trailers: tuple[HeaderField, ...],
        last: HeaderField | None = None,
    ) -> None:
        """Sends a whole response: head, body and trailers.

        `last` is one more field of the trailers, which has another value in each response: with
        it, the rest of the block is found without encoding it again.
        """
        size = sum(map(len, body))
        if size > FRAME_BYTES_MAX or size > self._send_window or size > stream.send_window:
            self.send_head(stream, head)
            self.send_data(stream, body)
            self.send_trailers(stream, trailers if last is None else (*trailers, last))
            return
        pack, number = frame_header.pack, stream.number
        encode, output = self._encoder.encode, self.output
        first, block = encode(head), encode(trailers)
        if last is not None:
            block += self._encoder.last_field(last)
        output += (
            pack(len(first) << 8 | HEADERS, END_HEADERS, number), first,
            pack(size << 8, 0, number), *body,
            pack(len(block) << 8 | HEADERS, _LAST, number), block,
        )  # fmt: skip
        self._send_window -= size
        self._due_pings += 1
        self._finish(stream)

    def send_head(self, stream: Http2Stream, head: tuple[HeaderField, ...]) -> None:
        stream.responded = True
        self._ping_strikes = 0
        self._send_block(stream, head, END_HEADERS)

    def send_data(self, stream: Http2Stream, body: Sequence[bytes]) -> None:
        """Sends a piece of the body, or queues what the peer's windows do not allow yet."""
        size = sum(map(len, body))
        self._idle_frames = self._ping_strikes = 0
        if stream.queue is None:
            if size <= FRAME_BYTES_MAX and size <= min(self._send_window, stream.send_window):
                self.output.append(frame_header.pack(size << 8 | DATA, 0, stream.number))
                self.output += body
                self._send_window -= size
                stream.send_window -= size
                self._due_pings += 1
                return
            stream.queue = deque()
        stream.queue += body
        self.queued_bytes += size
        self._pump(stream)

    def send_trailers(self, stream: Http2Stream, trailers: tuple[HeaderField, ...]) -> None:
        """Sends the last fields of a response, after its queued body."""
        if stream.queue is not None:
            stream.trailers = trailers
            return
        self._send_block(stream, trailers, _LAST)
        self._finish(stream)

    def reset(self, stream: Http2Stream, code: int) -> None:
        """Ends a stream at once; queued DATA is discarded."""
        self._discard(stream)
        self._send_reset(stream.number, code)

    # --- flow control ---------------------------------------------------------------------

    def _pump(self, stream: Http2Stream) -> None:
        """Sends as much queued DATA of a stream as both windows allow."""
        queue = stream.queue
        assert queue is not None
        while queue:
            room = min(self._send_window, stream.send_window, FRAME_BYTES_MAX)
            if room <= 0:
                self._blocked[stream] = None
                return
            pieces, size = _taken(queue, room)
            self.output.append(frame_header.pack(size << 8 | DATA, 0, stream.number))
            self.output += pieces
            self._send_window -= size
            stream.send_window -= size
            self.queued_bytes -= size
            self._due_pings += 1
        stream.queue = None
        self._blocked.pop(stream, None)
        if stream.trailers is not None:
            self.send_trailers(stream, stream.trailers)

    def _pump_all(self) -> None:
        for stream in list(self._blocked):
            if self._send_window <= 0:
                return
            self._pump(stream)
            if stream.queue is None and not stream.closed:  # the owner may have more
                self._note(stream)

    def _note(self, stream: Http2Stream) -> None:
        """Reports a stream. A closed one is reported only if its answer did not leave: the owner
        takes back what it answered."""
        if not stream.noted:
            stream.noted = True
            self._news.append(stream)

    # --- the end of a stream --------------------------------------------------------------

    def _send_block(self, stream: Http2Stream, fields: tuple[HeaderField, ...], flags: int) -> None:
        block = self._encoder.encode(fields)
        assert len(block) <= FRAME_BYTES_MAX, "the layer above bounds the fields of a response"
        self.output.append(frame(HEADERS, flags, stream.number, block))

    def _finish(self, stream: Http2Stream) -> None:
        """The last frame of a response is written: progress, for the attack counters."""
        stream.closed = True
        del self.streams[stream.number]
        self._idle_frames = self._ping_strikes = 0
        if self._resets:
            self._resets -= 1
        if not stream.ended:  # the client need not send the rest
            self._send_reset(stream.number, NO_ERROR)

    def _discard(self, stream: Http2Stream) -> None:
        """Closes a stream without an answer."""
        stream.closed = True
        self.streams.pop(stream.number, None)
        if stream.queue is not None:
            self.queued_bytes -= sum(map(len, stream.queue))
            stream.queue = None
            self._blocked.pop(stream, None)

    def _send_reset(self, number: int, code: int) -> None:
        self.output.append(reset(number, code))
        self._reset_lately[number] = None
        if len(self._reset_lately) > REMEMBERED_RESETS_MAX:
            del self._reset_lately[next(iter(self._reset_lately))]


def _taken(queue: deque[bytes | memoryview], room: int) -> tuple[list[bytes | memoryview], int]:
    """Takes up to `room` bytes from the queue; returns the pieces and their size."""
    pieces: list[bytes | memoryview] = []
    size = 0
    while queue and size < room:
        piece = queue[0]
        left = room - size
        if len(piece) <= left:
            queue.popleft()
        else:
            whole = memoryview(piece)
            piece, queue[0] = whole[:left], whole[left:]
        pieces.append(piece)
        size += len(piece)
    return pieces, size
