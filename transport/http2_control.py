"""The frames of an HTTP/2 client that carry no request: settings, windows, pings, resets.

Each frame is counted against the limits of `http2_limits`.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import http2_frames as h2
from .hpack_table import HeaderField
from .http2_frames import (
    FRAME_BYTES_MAX,
    NUMBER_MAX,
    PROTOCOL_ERROR,
    ConnectionFault,
    StreamFault,
    uint32,
)
from .http2_limits import (
    DUE_PINGS_MAX,
    IDLE_FRAMES_MAX,
    PING_INTERVAL_S,
    PING_STRIKES_MAX,
    RESETS_MAX,
    SETTINGS_MAX,
)
from .http2_output import Http2Output


class Http2Control(Http2Output):
    """The control frames of `Http2Connection`."""

    def __init__(
        self, repeated: Iterable[HeaderField] = (), repeated_names: Iterable[bytes] = ()
    ) -> None:
        super().__init__(repeated, repeated_names)
        #: The client's preface and first SETTINGS have arrived.
        self.welcome = False
        #: The time in seconds, set by the owner before `receive`; pings are measured with it.
        self.now = 0.0
        self._pinged = -PING_INTERVAL_S
        #: The last stream that the client has opened.
        self._last = 0

    def _count_idle(self) -> None:
        self._idle_frames += 1
        if self._idle_frames > IDLE_FRAMES_MAX:
            raise ConnectionFault(h2.ENHANCE_YOUR_CALM, "too many frames without effect")

    def _count_reset(self) -> None:
        self._resets += 1
        if self._resets > RESETS_MAX:
            raise ConnectionFault(h2.ENHANCE_YOUR_CALM, "too many streams without an answer")

    def _on_settings(self, payload: bytes, flags: int, number: int) -> None:
        if number:
            raise ConnectionFault(PROTOCOL_ERROR, "SETTINGS on a stream")
        if len(payload) % h2.setting.size or (flags & h2.ACK and payload):
            raise ConnectionFault(h2.FRAME_SIZE_ERROR, "SETTINGS of a wrong length")
        if len(payload) > SETTINGS_MAX * h2.setting.size:
            raise ConnectionFault(h2.ENHANCE_YOUR_CALM, "too many settings")
        self._count_idle()
        if flags & h2.ACK:
            return
        self.welcome = True
        for key, value in h2.setting.iter_unpack(payload):
            self._apply(key, value)
        self.output.append(h2.SETTINGS_ACK)
        if self._blocked:
            self._pump_all()

    def _apply(self, key: int, value: int) -> None:
        if key == h2.HEADER_TABLE_SIZE:
            self._encoder.limit(value)
        elif key == h2.ENABLE_PUSH:
            if value > 1:
                raise ConnectionFault(PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        elif key == h2.INITIAL_WINDOW_SIZE:
            if value > NUMBER_MAX:
                raise ConnectionFault(h2.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
            more, self._peer_window = value - self._peer_window, value
            for stream in self.streams.values():
                stream.send_window += more
                if stream.send_window > NUMBER_MAX:
                    raise ConnectionFault(h2.FLOW_CONTROL_ERROR, "a stream's window is too large")
        elif key == h2.MAX_FRAME_SIZE and not FRAME_BYTES_MAX <= value <= h2.FRAME_SIZE_LIMIT:
            raise ConnectionFault(PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")

    def _on_window(self, payload: bytes, flags: int, number: int) -> None:
        if len(payload) != uint32.size:
            raise ConnectionFault(h2.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong length")
        more = uint32.unpack(payload)[0] & NUMBER_MAX
        self._count_idle()
        if not number:
            self._send_window += more
            if not more:
                raise ConnectionFault(PROTOCOL_ERROR, "WINDOW_UPDATE without a size")
            if self._send_window > NUMBER_MAX:
                raise ConnectionFault(h2.FLOW_CONTROL_ERROR, "the window is too large")
            self._pump_all()
            return
        stream = self.streams.get(number)
        if stream is None:
            self._check_was_open(number, "WINDOW_UPDATE")
            return
        stream.send_window += more
        if not more:
            raise StreamFault(number, PROTOCOL_ERROR)
        if stream.send_window > NUMBER_MAX:
            raise StreamFault(number, h2.FLOW_CONTROL_ERROR)
        if stream.queue is not None:
            self._pump(stream)
            if stream.queue is None and not stream.closed:  # the owner may have more
                self._note(stream)

    def _on_ping(self, payload: bytes, flags: int, number: int) -> None:
        if number:
            raise ConnectionFault(PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise ConnectionFault(h2.FRAME_SIZE_ERROR, "PING of a wrong length")
        self._count_idle()
        if flags & h2.ACK:
            return
        if self._due_pings:
            self._due_pings = min(self._due_pings, DUE_PINGS_MAX) - 1
        elif self.now - self._pinged < PING_INTERVAL_S:
            self._ping_strikes += 1
            if self._ping_strikes > PING_STRIKES_MAX:
                raise ConnectionFault(h2.ENHANCE_YOUR_CALM, "too_many_pings")
        self._pinged = self.now
        self.output.append(h2.frame(h2.PING, h2.ACK, 0, payload))

    def _on_reset(self, payload: bytes, flags: int, number: int) -> None:
        if len(payload) != uint32.size:
            raise ConnectionFault(h2.FRAME_SIZE_ERROR, "RST_STREAM of a wrong length")
        self._check_was_open(number, "RST_STREAM")
        self._count_idle()
        stream = self.streams.get(number)
        if stream is not None:
            self._discard(stream)
            self._note(stream)
            self._count_reset()

    def _on_priority(self, payload: bytes, flags: int, number: int) -> None:
        if not number:
            raise ConnectionFault(PROTOCOL_ERROR, "PRIORITY without a stream")
        self._count_idle()
        if len(payload) != 5:
            raise StreamFault(number, h2.FRAME_SIZE_ERROR)
        if uint32.unpack_from(payload)[0] & NUMBER_MAX == number:
            raise StreamFault(number, PROTOCOL_ERROR)

    def _on_goaway(self, payload: bytes, flags: int, number: int) -> None:
        if number:
            raise ConnectionFault(PROTOCOL_ERROR, "GOAWAY on a stream")
        self._count_idle()

    def _on_push(self, payload: bytes, flags: int, number: int) -> None:
        raise ConnectionFault(PROTOCOL_ERROR, "a client cannot push")

    def _check_was_open(self, number: int, kind: str) -> None:
        if not number & 1 or number > self._last:
            raise ConnectionFault(PROTOCOL_ERROR, f"{kind} on a stream that was not opened")
