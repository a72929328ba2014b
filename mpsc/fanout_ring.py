"""One ring from the gateway to each receiver: the path of a queue's messages to ranks.

    receiver's segment: Last | State | Data[ring words]
    gateway's segment:  for each receiver: Done | Closed

The gateway writes a message as its length (one word) and its body, padded to whole words, into the
receiver's Data, and then moves Last, which counts words for ever. So a receiver reads only its own
memory to get a message, and each message costs the receiver one remote store: Done, the number of
messages handled, in order of arrival.

Words belong to the receiver from the moment when Last covers them until Done covers their message:
the gateway remembers the words taken by each message and reuses them afterwards. Two orders make
the ring safe, each a ``flush`` below:

- the data is complete at the receiver before Last is written,
- the data has been read before Done gives its words back.

Last, State and Closed have one writer each, and so has Done. There is no loop but over the two
pieces of a ring and no wait: both ends are wait-free. A receiver that dies leaves Done unchanged,
so the gateway knows exactly which messages another rank must get.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final

from weft.errors import TooLarge

from .spsc import pieces
from .window import WORD_BYTES, Window, words_of

LAST: Final = 0
STATE: Final = 1
DATA: Final = 2
#: The receiver's State: more may come; no more comes; the gateway failed.
COMING, OVER, FAILED = 0, 1, 2
_LENGTH: Final = struct.Struct("=q")


def segment_bytes(receivers: int, ring_bytes: int, at_gateway: bool) -> int:
    words = 2 * receivers if at_gateway else DATA + words_of(ring_bytes)
    return words * WORD_BYTES


class FanWriter:
    """The gateway's end of one receiver's ring."""

    def __init__(self, window: Window, rank: int, number: int, ring_bytes: int) -> None:
        self._window = window
        self.rank = rank
        self._done_word = 2 * number
        self._words = words_of(ring_bytes)
        self._last = 0
        self._freed = 0
        self._done = 0
        self._sizes: deque[int] = deque()

    @property
    def body_bytes_max(self) -> int:
        """The largest message that the ring can hold: one word is the length."""
        return (self._words - 1) * WORD_BYTES

    def offer(self, bodies: Sequence[bytes]) -> int:
        """Hands over the leading messages that fit; returns their number."""
        cells = []
        free = self._words - (self._last - self._freed)
        for body in bodies:
            words = 1 + words_of(len(body))
            if words > self._words:
                raise TooLarge(
                    f"a message of {len(body)} bytes does not fit into a receiver's ring of "
                    f"{self._words * WORD_BYTES}: open the gateway with a larger ring_bytes"
                )
            if words > free:
                break
            free -= words
            self._sizes.append(words)
            cells.append(_LENGTH.pack(len(body)) + body.ljust((words - 1) * WORD_BYTES, b"\0"))
        if cells:
            self._write(b"".join(cells))
        return len(cells)

    def done(self) -> int:
        """The number of messages handled by the receiver since the last call."""
        done = self._window.load(self._window.rank, self._done_word)
        fresh = done - self._done
        self._done = done
        for _ in range(fresh):
            self._freed += self._sizes.popleft()
        return fresh

    def closed(self) -> bool:
        """True if the receiver takes no more; call ``done`` after this for its final count."""
        return self._window.load(self._window.rank, self._done_word + 1) != 0

    def end(self, state: int) -> None:
        """Tells the receiver that no more messages come."""
        self._window.store(self.rank, STATE, state)

    def _write(self, data: bytes) -> None:
        window, at = self._window, 0
        for place, words in pieces(self._last, len(data) // WORD_BYTES, self._words):
            end = at + words * WORD_BYTES
            window.put(self.rank, DATA + place, data[at:end])
            at = end
        window.flush(self.rank)
        self._last += len(data) // WORD_BYTES
        window.store(self.rank, LAST, self._last)


class FanReader:
    """A receiver's end."""

    def __init__(self, window: Window, gateway: int, number: int, ring_bytes: int) -> None:
        self._window = window
        self._gateway = gateway
        self._done_word = 2 * number
        self._words = words_of(ring_bytes)
        self._read = 0
        self._done = 0

    def take(self) -> list[bytes]:
        """All messages that have come since the last call."""
        window, me = self._window, self._window.rank
        last = window.load(me, LAST)
        if last == self._read:
            return []
        raws = [
            window.get(me, DATA + place, words * WORD_BYTES)
            for place, words in pieces(self._read, last - self._read, self._words)
        ]
        window.flush(me)
        self._read = last
        return _bodies(b"".join(raws))

    def done(self, count: int) -> None:
        """Reports the next ``count`` messages, in order of arrival, as handled."""
        self._done += count
        self._window.store(self._gateway, self._done_word, self._done)

    def state(self) -> int:
        return self._window.load(self._window.rank, STATE)

    def close(self) -> None:
        self._window.store(self._gateway, self._done_word + 1, 1)


def _bodies(raw: bytes) -> list[bytes]:
    bodies, at = [], 0
    while at < len(raw):
        size = _LENGTH.unpack_from(raw, at)[0]
        at += WORD_BYTES
        bodies.append(raw[at : at + size])
        at += words_of(size) * WORD_BYTES
    return bodies
