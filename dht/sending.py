"""A partition's state on its way to a learner that lacks more than the log still has.

It goes in pieces, one at a time: the next one is cut off only when the learner has the last one
durably, so that a slow learner costs no memory. A piece that is lost is sent again as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weft.persistence import layout
from weft.persistence.overlay import Overlay

from .log import Log
from .messages import Install, Row
from .meta import Meta, decode_meta

#: Bytes in one piece, about.
PIECE_BYTES: Final = 1 << 20


class Sending:
    """The state as it was at `at`, and the piece that is under way."""

    def __init__(self, at: tuple[int, int], count: int, rows: Iterator[Row]) -> None:
        self.at = at
        #: Which one of its primary's: the pieces of another one are cut elsewhere.
        self.count = count
        self._rows = rows
        self.number = -1
        self.piece: list[Row] = []
        self.size = 0
        self.last = False
        self.advance()

    @staticmethod
    def begin(
        overlay: Overlay, number: int, catalogue: int, log: Log, count: int
    ) -> Sending | None:
        """A partition's state as it is in the store, which is what was applied when it was written;
        None when that is older than the log: the next write mends that."""
        data = overlay.stored(layout.replica(number))
        meta = decode_meta(data) if data is not None else Meta()
        if not log.base <= meta.applied <= log.end:
            return None
        rows = _rows(overlay, layout.state_ranges(number, catalogue))
        return Sending((meta.applied, log.epoch_at(meta.applied)), count, rows)

    def advance(self) -> None:
        """The next piece; the last one may be empty."""
        self.number += 1
        self.piece = []
        self.size = 0
        for key, value in self._rows:
            self.piece.append((key, value))
            self.size += len(key) + len(value)
            if self.size >= PIECE_BYTES:
                return
        self.last = True

    def message(self, partition: int, epoch: int, since: int) -> Install:
        return Install(
            partition, epoch, self.at, self.number, self.piece, self.last, since, self.count
        )


def _rows(overlay: Overlay, ranges: list[tuple[bytes, bytes]]) -> Iterator[Row]:
    """A payload without a head belongs to an entry that is not applied, and comes with it. If that
    is never committed, nobody would delete what had been sent of it."""
    for start, stop in ranges:
        for key, record in overlay.stored_rows(start, stop):
            if key[:1] == layout.BODY and overlay.stored(layout.HEAD + key[1:]) is None:
                continue
            yield key, record
