"""A server's HTTP/2 connection (RFC 9113) without a socket: bytes in, streams with news out.

`receive` takes what was read and returns the streams on which something happened: a new stream,
more DATA (`chunks`), the end of the request (`ended`), or the end of the stream (`closed`). The
methods of `Http2Output` answer; the frames to write gather in `output`. After a fault of the peer
`closing` is set: `output` ends with a GOAWAY, all streams are closed, and the connection is to be
closed once that is written.

Every limit on a hostile peer is in `http2_limits`. A frame costs at most one pass over its bytes;
frames without effect are counted, and progress (a complete message, an answer) clears the count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from weft.errors import ProtocolError

from . import http2_frames as h2
from .hpack import LIST_BYTES_MAX, HpackDecoder
from .hpack_table import HeaderField
from .http2_control import Http2Control
from .http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    HEADERS,
    NUMBER_MAX,
    PREFACE,
    PROTOCOL_ERROR,
    ConnectionFault,
    StreamFault,
    frame_header,
    uint32,
)
from .http2_limits import (
    BLOCK_BYTES_MAX,
    BLOCK_FRAMES_MAX,
    CONNECTION_WINDOW,
    STREAM_WINDOW,
    STREAMS_MAX,
    TINY_BYTES,
)
from .http2_stream import Http2Stream, RequestHead, are_valid_values, is_valid

#: A HEADERS frame with none of the other flags needs no further look at its flags.
_BLOCK_FLAGS: Final = END_HEADERS | h2.PADDED | h2.HAS_PRIORITY
#: Length and type of the largest allowed frame, as one number.
_WORD_MAX: Final = FRAME_BYTES_MAX << 8 | 0xFF
#: Distinct heads that a connection remembers, and the longest remembered block.
_HEADS_MAX: Final = 256
_HEAD_BYTES_MAX: Final = 1024

GREETING: Final = h2.settings(
    {
        h2.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
        h2.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        h2.MAX_HEADER_LIST_SIZE: LIST_BYTES_MAX,
    }
) + h2.window_update(0, CONNECTION_WINDOW - h2.WINDOW_DEFAULT)


class _Block:
    """A header block that continues in the next frame."""

    def __init__(self, number: int, flags: int, first: bytes, self_dependent: bool) -> None:
        self.number = number
        self.flags = flags
        self.pieces = [first]
        self.size = len(first)
        self.self_dependent = self_dependent


class Http2Connection(Http2Control):
    def __init__(
        self,
        varying: frozenset[bytes] = frozenset(),
        repeated: Iterable[HeaderField] = (),
        repeated_names: Iterable[bytes] = (),
    ) -> None:
        """`varying`: see `HpackDecoder`; `repeated`, `repeated_names`: see `HpackEncoder`."""
        super().__init__(repeated, repeated_names)
        self.output.append(GREETING)
        #: The peer broke the protocol: close after `output` is written.
        self.closing = False
        #: The fault, for the log.
        self.fault = ""
        self._rest = b""
        self._prefaced = False
        self._decoder = HpackDecoder(varying)
        self._heads: dict[tuple[HeaderField, ...], RequestHead] = {}
        self._block: _Block | None = None
        self._window = CONNECTION_WINDOW
        self._handlers = (
            self._on_data, self._on_headers, self._on_priority, self._on_reset, self._on_settings,
            self._on_push, self._on_ping, self._on_goaway, self._on_window, self._on_continuation,
        )  # fmt: skip

    @property
    def lacks(self) -> int:
        """Bytes of a frame whose beginning has arrived, or 0."""
        return len(self._rest)

    def receive(self, data: bytes) -> list[Http2Stream]:
        """Takes bytes from the peer; returns the streams with news, each once."""
        if self.closing:
            return []
        if self._rest:
            data = self._rest + data
            self._rest = b""
        try:
            place = 0 if self._prefaced else self._take_preface(data)
            if self._prefaced:
                self._take_frames(data, place)
        except ConnectionFault as fault:
            self._fail(fault)
        except ProtocolError as error:  # of the header decoder
            self._fail(ConnectionFault(h2.COMPRESSION_ERROR, error.message))
        news, self._news = self._news, []
        for stream in news:
            stream.noted = False
        return news

    def grant(self, stream: Http2Stream) -> None:
        """The owner has taken the stream's data: renews the window once half of it is used."""
        if stream.window <= STREAM_WINDOW >> 1 and not stream.ended and not stream.closed:
            self.output.append(h2.window_update(stream.number, STREAM_WINDOW - stream.window))
            stream.window = STREAM_WINDOW

    def note_progress(self) -> None:
        """The peer has sent a complete message: its frames were not in vain."""
        self._idle_frames = 0

    def ping(self) -> None:
        """Asks for a sign of life; the answer is not reported, but is input like any other."""
        self.output.append(h2.frame(h2.PING, 0, 0, bytes(8)))

    def announce_end(self) -> None:
        """Tells the client to open new streams elsewhere; streams under way go on."""
        self.output.append(h2.goaway(NUMBER_MAX, h2.NO_ERROR, "the node is stopping"))

    def end(self, code: int = h2.NO_ERROR, why: str = "") -> None:
        """Ends the connection: the last stream that was handled, and why."""
        self.output.append(h2.goaway(self._last, code, why))
        self.closing = True

    # --- frames ---------------------------------------------------------------------------

    def _take_preface(self, data: bytes) -> int:
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ConnectionFault(PROTOCOL_ERROR, "the client does not speak HTTP/2")
        if len(data) < len(PREFACE):
            self._rest = data
            return 0
        self._prefaced = True
        return len(PREFACE)

    def _take_frames(self, data: bytes, place: int) -> None:
        end = len(data)
        unpack = frame_header.unpack_from
        while end - place >= HEADER_BYTES:
            word, flags, number = unpack(data, place)
            if word > _WORD_MAX:
                raise ConnectionFault(h2.FRAME_SIZE_ERROR, "a frame above 16 KiB")
            start = place + HEADER_BYTES
            stop = start + (word >> 8)
            if stop > end:
                break
            place = stop
            number &= NUMBER_MAX
            kind = word & 0xFF
            payload = data[start:stop]
            try:
                if (
                    kind == HEADERS
                    and flags & _BLOCK_FLAGS == END_HEADERS
                    and self._block is None
                    and number > self._last
                ):
                    self._open(number, payload, flags)
                elif kind == DATA and self._block is None:
                    self._on_data(payload, flags, number)
                else:
                    self._dispatch(kind, payload, flags, number)
            except StreamFault as fault:
                self._reset_faulty(fault)
        if place < end:
            self._rest = data[place:]

    def _dispatch(self, kind: int, payload: bytes, flags: int, number: int) -> None:
        if self._block is not None and kind != h2.CONTINUATION:
            raise ConnectionFault(PROTOCOL_ERROR, "a header block is not continued")
        if not self.welcome and kind != h2.SETTINGS:
            raise ConnectionFault(PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind < len(self._handlers):
            self._handlers[kind](payload, flags, number)
        else:
            self._count_idle()

    def _fail(self, fault: ConnectionFault) -> None:
        self.fault = str(fault)
        self.end(fault.code, self.fault)
        for stream in list(self.streams.values()):
            self._discard(stream)
            self._note(stream)

    def _reset_faulty(self, fault: StreamFault) -> None:
        stream = self.streams.get(fault.number)
        if stream is not None:
            self._discard(stream)
            self._note(stream)
        self._count_reset()
        self._send_reset(fault.number, fault.code)

    # --- HEADERS and DATA -----------------------------------------------------------------

    def _open(self, number: int, block: bytes, flags: int) -> None:
        """Opens a stream with a complete header block."""
        if not number & 1 or not self.welcome:
            raise ConnectionFault(PROTOCOL_ERROR, "HEADERS on a stream that no client can open")
        fields, varying = self._decoder.decode(block)
        self._last = number
        head = self._heads.get(fields)
        if head is None:
            head = self._new_head(fields, len(block))
        if head.malformed or (varying and not are_valid_values(varying)):
            raise StreamFault(number, PROTOCOL_ERROR)
        if len(self.streams) >= STREAMS_MAX:
            raise StreamFault(number, h2.REFUSED_STREAM)
        stream = Http2Stream(number, head, varying, self._peer_window)
        self.streams[number] = stream
        self._news.append(stream)
        if flags & END_STREAM:
            self._end(stream)

    def _new_head(self, fields: tuple[HeaderField, ...], block_bytes: int) -> RequestHead:
        head = RequestHead(fields)
        if block_bytes <= _HEAD_BYTES_MAX:
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            self._heads[fields] = head
        return head

    def _on_headers(self, payload: bytes, flags: int, number: int) -> None:
        if not number & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "HEADERS on a stream that no client can open")
        block = h2.unpadded(payload, flags)
        self_dependent = False
        if flags & h2.HAS_PRIORITY:
            if len(block) < 5:
                raise ConnectionFault(h2.FRAME_SIZE_ERROR, "HEADERS without its priority")
            self_dependent = uint32.unpack_from(block)[0] & NUMBER_MAX == number
            block = block[5:]
        if flags & END_HEADERS:
            self._on_block(number, block, flags, self_dependent=self_dependent)
        else:
            self._block = _Block(number, flags, block, self_dependent)

    def _on_continuation(self, payload: bytes, flags: int, number: int) -> None:
        block = self._block
        if block is None or block.number != number:
            raise ConnectionFault(PROTOCOL_ERROR, "CONTINUATION without its header block")
        block.pieces.append(payload)
        block.size += len(payload)
        if block.size > BLOCK_BYTES_MAX or len(block.pieces) > BLOCK_FRAMES_MAX:
            raise ConnectionFault(h2.ENHANCE_YOUR_CALM, "a header block is too long")
        if flags & END_HEADERS:
            self._block = None
            whole = b"".join(block.pieces)
            self._on_block(number, whole, block.flags, self_dependent=block.self_dependent)

    def _on_block(self, number: int, block: bytes, flags: int, *, self_dependent: bool) -> None:
        if number > self._last:
            if self_dependent:
                self._decoder.decode(block)
                self._last = number
                raise StreamFault(number, PROTOCOL_ERROR)
            self._open(number, block, flags)
            return
        # In any case: the table must follow the peer's.
        fields, varying = self._decoder.decode(block)
        stream = self.streams.get(number)
        if stream is None:
            if number not in self._reset_lately:
                raise ConnectionFault(h2.STREAM_CLOSED, "HEADERS on a closed stream")
            self._count_idle()
            return
        if stream.ended:
            raise StreamFault(number, h2.STREAM_CLOSED)
        if not flags & END_STREAM or not all(is_valid(*field) for field in (*fields, *varying)):
            raise StreamFault(number, PROTOCOL_ERROR)
        self._end(stream)

    def _on_data(self, payload: bytes, flags: int, number: int) -> None:
        size = len(payload)
        stream = self.streams.get(number)
        self._window -= size
        if self._window < CONNECTION_WINDOW >> 1:
            self._renew_window()
        if flags & h2.PADDED:
            payload = h2.unpadded(payload, flags)
        if stream is None:
            self._on_stray_data(number)
            return
        if stream.ended:
            raise StreamFault(number, h2.STREAM_CLOSED)
        stream.window -= size
        if stream.window < 0:
            raise StreamFault(number, h2.FLOW_CONTROL_ERROR)
        if payload:
            stream.chunks.append(payload)
            stream.body_bytes += len(payload)
        if not stream.noted:
            stream.noted = True
            self._news.append(stream)
        if flags & END_STREAM:
            self._end(stream)
        elif len(payload) < TINY_BYTES:
            self._count_idle()

    def _on_stray_data(self, number: int) -> None:
        """DATA on a stream that is not open."""
        if not self.welcome or number > self._last or not number & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "DATA on a stream that was not opened")
        self._count_idle()
        if number not in self._reset_lately:
            raise StreamFault(number, h2.STREAM_CLOSED)

    def _renew_window(self) -> None:
        if self._window < 0:
            raise ConnectionFault(h2.FLOW_CONTROL_ERROR, "more DATA than the window allows")
        self.output.append(h2.window_update(0, CONNECTION_WINDOW - self._window))
        self._window = CONNECTION_WINDOW

    def _end(self, stream: Http2Stream) -> None:
        """The request is complete."""
        length = stream.head.content_length
        if length is not None and length != stream.body_bytes:
            raise StreamFault(stream.number, PROTOCOL_ERROR)
        stream.ended = True
        if not stream.noted:
            stream.noted = True
            self._news.append(stream)
