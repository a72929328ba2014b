"""Limits of one HTTP/2 connection. Each one bounds what a hostile client can make a node do."""

from __future__ import annotations

from typing import Final

from .hpack import LIST_BYTES_MAX

#: Streams open at one time. Another one is refused with REFUSED_STREAM, which a client may retry,
#: and counts as a reset: a client was told the number.
STREAMS_MAX: Final = 1024
#: Streams that ended without an answer, in excess of answered ones: reset by the client before the
#: answer ("rapid reset"), or by the node because of an invalid frame ("MadeYouReset"). Each costs
#: the work of a call and frees its place among the open streams. A client that cancels this many
#: calls in a row is not a client.
RESETS_MAX: Final = 400
#: Frames without effect since the last progress (a message or an answer): PING, SETTINGS, PRIORITY,
#: WINDOW_UPDATE, RST_STREAM, empty or tiny DATA, unknown types. Above any burst of a real client
#: that opens 1,024 streams at once with a window update for each.
IDLE_FRAMES_MAX: Final = 4000
#: A DATA frame below this size that does not end its stream counts as one of these frames unless it
#: completes a message: a message sent byte by byte costs a frame's work for each byte.
TINY_BYTES: Final = 64
#: Frames of one header block: 16 KiB fit into one frame, so more than a few have another purpose
#: (a "CONTINUATION flood").
BLOCK_FRAMES_MAX: Final = 16
#: Bytes of one header block: compressed, it is never longer than the list it stands for, but for
#: table updates.
BLOCK_BYTES_MAX: Final = LIST_BYTES_MAX
#: Entries in one SETTINGS frame: the protocol has seven.
SETTINGS_MAX: Final = 32
#: Recently reset streams: the peer's last frames on them may still arrive and are ignored.
REMEMBERED_RESETS_MAX: Final = 256
#: A client may ping this often; two more pings are forgiven, as in other servers of gRPC, and then
#: the connection ends ("too_many_pings"). One more ping is due for each DATA frame sent to the
#: client: Go's client measures the round trip with a ping when data arrives, and a busy client
#: reads what was sent at one time in many pieces. So many such pings are saved up.
PING_INTERVAL_S: Final = 5.0
PING_STRIKES_MAX: Final = 2
DUE_PINGS_MAX: Final = 1024
#: What a client may send on one stream before the node has taken it, and on the whole connection.
#: A stream's window is above the product of 10 Gbit/s and 0.5 ms; the connection's window is
#: renewed as bytes arrive, because a message that is complete on no stream would block all streams.
STREAM_WINDOW: Final = 1 << 20
CONNECTION_WINDOW: Final = 16 << 20
