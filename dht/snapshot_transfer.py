"""Snapshot transfer: a partition's state, for a learner that lacks entries dropped from the log.

The primary sends the state in pieces, one at a time, and makes the next piece only when the learner
has the last one durably, so that a slow learner costs no memory. A lost piece is resent unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weft.persistence import layout
from weft.persistence.overlay import Overlay

from .log import Log
from .messages import Install, Row
from .replica_record import ReplicaRecord, decode_replica_record

#: Approximate bytes in one piece.
PIECE_BYTES: Final = 1 << 20
#: Instead of a piece's number: the learner lacks the earlier pieces.
BEGIN_AGAIN: Final = -1


class SnapshotTransfer:
    """The state as of `at` (lsn, epoch), and the piece in flight."""

    def __init__(self, at: tuple[int, int], count: int, rows: Iterator[Row]) -> None:
        self.at = at
        #: The primary's number for the transfer: another transfer has other piece boundaries.
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
    ) -> SnapshotTransfer | None:
        """Starts a transfer of the stored state, which has the entries applied up to the last
        write. None if the stored state is older than the log: the next write corrects that."""
        data = overlay.stored(layout.replica(number))
        meta = decode_replica_record(data) if data is not None else ReplicaRecord()
        if not log.base <= meta.applied <= log.end:
            return None
        rows = _rows(overlay, layout.state_ranges(number, catalogue))
        return SnapshotTransfer((meta.applied, log.epoch_at(meta.applied)), count, rows)

    def advance(self) -> None:
        """Makes the next piece; the last piece may be empty."""
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
    """The rows of the snapshot, without payloads that have no head. Such a payload belongs to an
    unapplied entry, and is sent with the entry. If the entry is never committed, no node would
    delete a payload sent earlier."""
    for start, stop in ranges:
        for key, record in overlay.stored_rows(start, stop):
            if key[:1] == layout.BODY and overlay.stored(layout.HEAD + key[1:]) is None:
                continue
            yield key, record
