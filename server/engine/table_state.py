"""The hash table of one node in memory: a cache of rows, clocks of partitions, facts of partitions.

The table itself is in the store, so memory does not bound it. The *cache* has recent rows, written
or read: two generations of dicts, so that a lookup costs one dict access and no bookkeeping. When
the young generation has half of the cache's bytes, it becomes the old one, and the old one is
dropped. The engine is the only writer of the partitions that it leads, and drops the cache when it
loses one.

A row expires by its partition's *clock*, which never runs ahead of real time, whatever the clocks
of the nodes say. The clock runs with the primary's own clock, and every `MARK_US` the primary
records it in the log (while the partition has rows that expire). A new primary continues at the
last record. So the time without a primary, and up to `MARK_US` before it, does not count: a row may
live longer after a failover, and never shorter.

Expiry is a removal in the log. A row past its time is removed by the first request that finds it,
in the same round, and the answer waits for the commit: no later primary can return the row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from weft import limits
from weft.persistence import table_layout
from weft.proto import wire

from .table_history import TableHistory
from .timers import Timers

MARK_US: Final = 10_000_000
#: Rows in memory: bytes of keys and values, with an allowance for the objects of each row.
CACHE_BYTES_MAX: Final = 128 * limits.MIB
_ROW_OVERHEAD: Final = 250

_PLAIN, _EXPIRING = b"\1", b"\2"
_plain = struct.Struct(">cQ")
_expiring = struct.Struct(">cQQ")


#: The fields of a `TableRow` as a plain tuple, which the cycle collector does not have to visit.
CachedRow = tuple[int, int, int, bytes]


class TableRow(NamedTuple):
    """A key's value. Version 0: written by a verb of version 0.1.0, which has no versions."""

    partition: int
    version: int
    #: By the partition's clock, in microseconds; 0: never.
    expires: int
    value: bytes


class NamedRecord(msgspec.Struct, array_like=True, frozen=True):
    """The result of a named write on one partition, as stored."""

    #: The version of the write; if not `done`, the version that the write found.
    version: int
    #: The length after an append.
    size: int = 0
    #: Of a `RemoveMany`, one byte per key of the partition: 1 if the key was removed.
    removed: bytes = b""
    done: bool = True
    #: The value that a swap found instead of the old one; None: absent, or too large to keep.
    current: bytes | None = None
    #: Of a commit, the partition of each push.
    places: list[int] = []
    #: The name is that of a commit.
    commit: bool = False


class KeyWatcher(NamedTuple):
    """A waiting watch."""

    number: int
    to: object
    request: wire.WatchKeys
    numbers: list[int]


class TableState:
    def __init__(self, partitions: int) -> None:
        self.starts: Final = [table_layout.rows(number) for number in range(partitions)]
        self.name_starts: Final = [table_layout.names(n)[0] for n in range(partitions)]
        #: Partitions with rows in the form of version 0.1.0.
        self.with_old_rows: set[int] = set()
        #: Names of executed writes by partition, oldest first, with the last time slice of each.
        self.names: dict[int, dict[int, int]] = {}
        #: The partition's clock minus the node's clock.
        self.offsets: dict[int, int] = {}
        #: Partitions with rows that expire, and the time by the partition's clock when a row was
        #: last seen to exist.
        self.expiring: dict[int, int] = {}
        #: The last record of a partition's clock.
        self.marks: dict[int, int] = {}
        self.sweeping = False
        #: Recent changes of watched partitions, and those with changes in this round.
        self.histories: dict[int, TableHistory] = {}
        self.changed: set[int] = set()
        #: Waiting watches by caller, callers by number, and callers by partition.
        self.watchers: dict[object, KeyWatcher] = {}
        self.watcher_names: dict[int, object] = {}
        self.waiting_at: dict[int, dict[object, None]] = {}
        self.watch_timers = Timers()
        self._young: dict[str, CachedRow] = {}
        self._old: dict[str, CachedRow] = {}
        self._bytes = 0

    def note(self, partition: int, version: int, key: str, value: bytes | None) -> None:
        """Records a change for watchers, if there are any."""
        history = self.histories.get(partition)
        if history is not None:
            history.add(version, key, value)
            self.changed.add(partition)

    # --- the cache ------------------------------------------------------------------------

    def cached_many(self, keys: Sequence[str]) -> list[CachedRow | None]:
        """The cached rows of a batch; built-in functions alone, if all rows are young."""
        rows = list(map(self._young.get, keys))
        if None not in rows or not self._old:
            return rows
        promoted: dict[str, CachedRow] = {}
        for position, row in enumerate(rows):
            if row is None and (row := self._old.get(keys[position])) is not None:
                rows[position] = promoted[keys[position]] = row
        sizes = sum(len(key) + len(row[3]) for key, row in promoted.items())
        self._young.update(promoted)
        self.grow(sizes + _ROW_OVERHEAD * len(promoted))
        return rows

    def cached(self, key: str) -> TableRow | None:
        found = self._young.get(key)
        if found is not None:
            return TableRow(*found)
        found = self._old.get(key)
        if found is None:
            return None
        row = TableRow(*found)
        self.cache(key, row)
        return row

    def cache(self, key: str, row: TableRow) -> None:
        self._young[key] = tuple(row)  # type: ignore[assignment]
        self.grow(_ROW_OVERHEAD + len(key) + len(row.value))

    def cache_many(self, keys: Sequence[str], rows: Iterable[CachedRow], size: int) -> None:
        """Caches rows with `size` bytes of keys and values."""
        self._young.update(zip(keys, rows, strict=True))
        self.grow(size + _ROW_OVERHEAD * len(keys))

    def grow(self, size: int) -> None:
        self._bytes += size
        if self._bytes > CACHE_BYTES_MAX // 2:
            self._young, self._old, self._bytes = {}, self._young, 0

    def uncache(self, key: str) -> None:
        self._young.pop(key, None)
        self._old.pop(key, None)

    def forget(self, partitions: set[int]) -> None:
        """Drops everything known of partitions that this node no longer leads."""
        self._young, self._old, self._bytes = {}, {}, 0
        self.with_old_rows -= partitions
        for known in (self.names, self.offsets, self.expiring, self.marks):
            for number in partitions:
                known.pop(number, None)


def head_of(version: int, expires: int) -> bytes:
    """The stored bytes before the value."""
    if expires:
        return _expiring.pack(_EXPIRING, version, expires)
    return _plain.pack(_PLAIN, version)


def row_of(partition: int, data: bytes | memoryview) -> TableRow:
    """The row of its stored bytes."""
    data = bytes(data)
    if data[:1] == _PLAIN:
        return TableRow(partition, _plain.unpack_from(data)[1], 0, data[_plain.size :])
    _, version, expires = _expiring.unpack_from(data)
    return TableRow(partition, version, expires, data[_expiring.size :])
