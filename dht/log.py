"""A partition's log: entries numbered without a gap, each with the epoch of its primary.

An entry holds the changes of one round to a partition's state: keys with new values, and deleted
keys. Payloads (``bodies``) are large and never change, so the log does not write payloads twice: an
entry names its payloads, which are in the store under their own keys from the append on. The heads
that make the payloads count are written when the entry is *applied*, after the commit.

Two logs with the same (lsn, epoch) at some position are equal up to there, because an epoch has one
primary, which numbers each entry once. So a log's *lineage*, the first lsn of each epoch in the
log, is enough to find how far two logs agree. Applied entries are dropped from the front; the last
dropped entry is the *base*, and the lineage begins with the base.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from weft.errors import StoreDamaged
from weft.persistence import layout
from weft.persistence.overlay import Overlay

from .messages import Entry, Lineage

_EPOCH_BYTES: Final = 8
#: Approximate bytes of entries in one message: a single entry may be larger.
SHIP_BYTES_MAX: Final = 4 << 20


class Changes(msgspec.Struct, array_like=True, frozen=True):
    """The changes of an entry. Values are sealed records, in the form of the store."""

    puts: list[tuple[bytes, bytes]]
    deletes: list[bytes]
    #: Keys of the entry's payloads.
    bodies: list[bytes]


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Changes).decode


class Log:
    def __init__(self, partition: int, overlay: Overlay) -> None:
        self._partition = partition
        self._overlay = overlay
        self.lineage: Lineage = [(0, 0)]
        self.end = 0
        #: Entries not applied yet, kept in memory to apply and send without reading the disk.
        self._fresh: dict[int, Entry] = {}

    @property
    def base(self) -> int:
        return self.lineage[0][1]

    def recover(self, base: int, base_epoch: int) -> None:
        """Reads the log from the store. Raises StoreDamaged if an entry in between is missing."""
        self.lineage, self.end = [(base_epoch, base)], base
        for key, data in self._overlay.scan(*layout.log_range(self._partition, base)):
            lsn = layout.unpack_log(key)
            if lsn != self.end + 1:
                raise StoreDamaged(
                    f"{self._overlay.path} has lost entries {self.end + 1} to {lsn - 1} of "
                    f"partition {self._partition}"
                )
            self._note(lsn, int.from_bytes(data[:_EPOCH_BYTES], "big"))

    @property
    def last(self) -> tuple[int, int]:
        return last_of(self.lineage, self.end)

    def epoch_at(self, lsn: int) -> int:
        """The epoch of an entry; known from the base on."""
        assert self.base <= lsn <= self.end
        for epoch, first in reversed(self.lineage):
            if lsn >= first:
                return epoch
        raise AssertionError("the lineage begins with the base")

    def has(self, lsn: int, epoch: int) -> bool:
        """True if this log equals, up to `lsn`, any log with the entry (lsn, epoch)."""
        return self.base <= lsn <= self.end and self.epoch_at(lsn) == epoch

    def append(self, epoch: int, data: bytes, bodies: list[tuple[bytes, bytes | None]]) -> int:
        lsn = self.end + 1
        record = epoch.to_bytes(_EPOCH_BYTES, "big") + data
        self._overlay.put(layout.log(self._partition, lsn), record)
        for key, value in bodies:
            if value is not None:
                self._overlay.put_record(key, value)
        self._fresh[lsn] = (lsn, epoch, data, bodies)
        self._note(lsn, epoch)
        return lsn

    def take(self, entries: Sequence[Entry]) -> None:
        """Adds the primary's entries. Equal entries stay; conflicting entries are cut off."""
        for lsn, epoch, data, bodies in entries:
            if lsn <= self.end:
                if lsn <= self.base or self.epoch_at(lsn) == epoch:
                    continue
                self.cut(lsn)
            assert lsn == self.end + 1, "entries follow each other"
            self.append(epoch, data, bodies)

    def cut(self, first: int) -> None:
        """Drops the entries from `first` on, which were never acknowledged."""
        assert first > self.base, "what is applied was acknowledged"
        for lsn in range(first, self.end + 1):
            for body in self.changes(lsn).bodies:
                self._overlay.delete(body)
            self._overlay.delete(layout.log(self._partition, lsn))
            self._fresh.pop(lsn, None)
        self.end = first - 1
        while self.lineage[-1][1] > self.end:
            self.lineage.pop()

    def applied(self, lsn: int) -> None:
        """Frees an applied entry's copy in memory."""
        self._fresh.pop(lsn, None)

    def trim(self, last: int) -> None:
        """Drops entries up to `last` from the front; all of these are applied."""
        if last <= self.base:
            return
        epoch = self.epoch_at(last)
        for lsn in range(self.base + 1, last + 1):
            self._overlay.delete(layout.log(self._partition, lsn))
        kept = [each for each in self.lineage if each[1] > last]
        self.lineage = [(epoch, last), *kept]

    def restart(self, lsn: int, epoch: int) -> None:
        """Empties the log, which continues after `lsn`; the state as of `lsn` is in the store."""
        for key, _ in self._overlay.scan(*layout.log_range(self._partition, 0)):
            self._overlay.delete(key)
        for fresh in self._fresh:
            self._overlay.delete(layout.log(self._partition, fresh))
        self._fresh.clear()
        self.lineage, self.end = [(epoch, lsn)], lsn

    def changes(self, lsn: int) -> Changes:
        fresh = self._fresh.get(lsn)
        return decode(fresh[2] if fresh is not None else self._read(lsn)[1])

    def entries(self, first: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        size = 0
        for lsn in range(first, min(self.end, first + limit - 1) + 1):
            entry = self._fresh.get(lsn)
            if entry is None:
                epoch, data = self._read(lsn)
                bodies = [(key, self._overlay.read_record(key)) for key in decode(data).bodies]
                entry = (lsn, epoch, data, bodies)
            size += len(entry[2]) + sum(len(value) for _, value in entry[3] if value is not None)
            if found and size > SHIP_BYTES_MAX:
                break
            found.append(entry)
        return found

    def _read(self, lsn: int) -> tuple[int, bytes]:
        record = self._overlay.read(layout.log(self._partition, lsn))
        if record is None:
            raise StoreDamaged(
                f"{self._overlay.path} has lost entry {lsn} of partition {self._partition}"
            )
        return int.from_bytes(record[:_EPOCH_BYTES], "big"), bytes(record[_EPOCH_BYTES:])

    def _note(self, lsn: int, epoch: int) -> None:
        assert epoch >= self.lineage[-1][0], "epochs only grow"
        if self.lineage[-1][0] != epoch:
            self.lineage.append((epoch, lsn))
        self.end = lsn


def last_of(lineage: Lineage, end: int) -> tuple[int, int]:
    """(epoch, lsn) of a log's last entry: the greater pair is the more advanced log."""
    return (lineage[-1][0] if lineage else 0, end)


def agree(left: Lineage, left_end: int, right: Lineage, right_end: int) -> int | None:
    """The last lsn up to which two logs are equal; None if one log begins after the other's end.

    The newest epoch in both logs decides: one primary numbered all entries of an epoch.
    """
    first = {epoch: number for number, (epoch, _) in enumerate(left)}
    for number in range(len(right) - 1, -1, -1):
        epoch, begin = right[number]
        ours = first.get(epoch)
        if ours is not None:
            common = min(_stop(left, left_end, ours), _stop(right, right_end, number))
            return common if common >= max(left[ours][1], begin) else None
    return None


def _stop(lineage: Lineage, end: int, number: int) -> int:
    """The last lsn of an epoch."""
    return lineage[number + 1][1] - 1 if number + 1 < len(lineage) else end
