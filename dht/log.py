"""A partition's log: entries numbered without a gap, each with the epoch that made it.

Two logs that have the same (lsn, epoch) somewhere are equal up to there, because an epoch has one
primary and that numbers each entry once. So a log's *lineage*, the first lsn of each epoch in it,
is enough to find how far two logs agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weft.errors import StoreDamaged
from weft.persistence import layout
from weft.persistence.overlay import Overlay

from .messages import Entry, Lineage


class Record(msgspec.Struct, array_like=True, frozen=True):
    """An entry as it is stored."""

    epoch: int
    data: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class Log:
    def __init__(self, partition: int, overlay: Overlay) -> None:
        self._partition = partition
        self._overlay = overlay
        self.lineage: Lineage = []
        self.end = 0

    def recover(self) -> None:
        """Reads it back, and sees that nothing is missing in between."""
        for key, data in self._overlay.scan(*layout.log_range(self._partition)):
            lsn = layout.unpack_log(key)
            if lsn != self.end + 1:
                raise StoreDamaged(
                    f"{self._overlay.path} has lost entries {self.end + 1} to {lsn - 1} of "
                    f"partition {self._partition}"
                )
            self._note(lsn, _decode(data).epoch)

    @property
    def last(self) -> tuple[int, int]:
        """(epoch, lsn) of the last entry: the greater, the more the log holds."""
        return (self.lineage[-1][0] if self.lineage else 0, self.end)

    def epoch_at(self, lsn: int) -> int:
        """The epoch of an entry; 0 before the first."""
        assert 0 <= lsn <= self.end
        for epoch, first in reversed(self.lineage):
            if lsn >= first:
                return epoch
        return 0

    def has(self, lsn: int, epoch: int) -> bool:
        return lsn <= self.end and self.epoch_at(lsn) == epoch

    def append(self, epoch: int, data: bytes) -> int:
        lsn = self.end + 1
        self._overlay.put(layout.log(self._partition, lsn), _encode(Record(epoch, data)))
        self._note(lsn, epoch)
        return lsn

    def take(self, entries: Sequence[Entry]) -> None:
        """Entries of the primary's log. What is here already stays; what contradicts is cut off."""
        for lsn, epoch, data in entries:
            if lsn <= self.end:
                if self.epoch_at(lsn) == epoch:
                    continue
                self.cut(lsn)
            assert lsn == self.end + 1, "entries follow each other"
            self.append(epoch, data)

    def cut(self, first: int) -> None:
        """Drops the entries from `first` on: they were never acknowledged."""
        for lsn in range(first, self.end + 1):
            self._overlay.delete(layout.log(self._partition, lsn))
        self.end = first - 1
        while self.lineage and self.lineage[-1][1] > self.end:
            self.lineage.pop()

    def entries(self, first: int, limit: int) -> list[Entry]:
        return [
            (lsn, *self._read(lsn)) for lsn in range(first, min(self.end, first + limit - 1) + 1)
        ]

    def _read(self, lsn: int) -> tuple[int, bytes]:
        data = self._overlay.read(layout.log(self._partition, lsn))
        if data is None:
            raise StoreDamaged(
                f"{self._overlay.path} has lost entry {lsn} of partition {self._partition}"
            )
        record = _decode(data)
        return record.epoch, record.data

    def _note(self, lsn: int, epoch: int) -> None:
        assert not self.lineage or epoch >= self.lineage[-1][0], "epochs only grow"
        if not self.lineage or self.lineage[-1][0] != epoch:
            self.lineage.append((epoch, lsn))
        self.end = lsn


def agree(left: Lineage, left_end: int, right: Lineage, right_end: int) -> int:
    """The last lsn up to which two logs are equal."""
    common = 0
    for number, (ours, theirs) in enumerate(zip(left, right, strict=False)):
        if tuple(ours) != tuple(theirs):
            break
        common = min(_stop(left, left_end, number), _stop(right, right_end, number))
        if _stop(left, left_end, number) != _stop(right, right_end, number):
            break
    return common


def _stop(lineage: Lineage, end: int, number: int) -> int:
    """The last lsn of an epoch."""
    return lineage[number + 1][1] - 1 if number + 1 < len(lineage) else end
