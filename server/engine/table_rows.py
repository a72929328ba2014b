"""Rows of the hash table in the store: read, write, remove, and load for a new primary.

A row is stored in one of two forms. A verb of version 0.1.0 stores the bare value under the key, as
a node of that version does, so that such a node can lead the partition in turn. Every other verb
stores version, time of expiry and value under a longer key, and removes the bare value. If a key
has both, a node of version 0.1.0 wrote the bare value later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from typing import Final

from weft.persistence import table_layout

from . import purged, table_names
from .state import EngineState
from .table_state import MARK_US, TableRow, head_of, row_of

#: Prefixes of a partition's own rows among the old rows (``purged``, ``backup``): no client's keys.
RESTORED: Final = "\0restored/"
OWN: Final = (purged.PREFIX, RESTORED)


def clock(state: EngineState, partition: int) -> int:
    """The time of a partition's clock."""
    return state.now + state.table.offsets.get(partition, 0)


def find(state: EngineState, partition: int, key: str) -> TableRow | None:
    """The present row of a key; removes a row that has expired."""
    table = state.table
    row = table.cached(key)
    if row is None:
        row = _load(state, partition, key)
        if row is None:
            return None
        if not key.startswith(OWN):
            table.cache(key, row)
    if row.expires and row.expires <= clock(state, partition):
        remove(state, partition, key, row)
        return None
    return row


def _load(state: EngineState, partition: int, key: str) -> TableRow | None:
    if partition in state.table.with_old_rows or key.startswith(OWN):
        data = state.overlay.read(table_layout.key(partition, key))
        if data is not None:
            return TableRow(partition, 0, 0, bytes(data))
    data = state.overlay.read(state.table.starts[partition] + key.encode())
    return None if data is None else row_of(partition, data)


def put(state: EngineState, partition: int, key: str, value: bytes, expires: int = 0) -> int:
    """Writes a row; returns its version."""
    table, raw = state.table, key.encode()
    version = state.next_lsn(partition)
    state.overlay.put(table.starts[partition] + raw, head_of(version, expires) + value)
    if partition in table.with_old_rows:
        state.overlay.delete(table_layout.key(partition, key))
    table.cache(key, TableRow(partition, version, expires, value))
    table.note(partition, version, key, value)
    if expires:
        will_expire(state, {partition: expires}, [partition], [raw])
    return version


def put_bare(state: EngineState, partition: int, key: str, value: bytes) -> None:
    """Writes a row in the form of version 0.1.0."""
    state.table.with_old_rows.add(partition)
    state.overlay.put(table_layout.key(partition, key), value)
    state.table.cache(key, TableRow(partition, 0, 0, value))
    if partition in state.table.histories:
        state.table.note(partition, state.next_lsn(partition), key, value)


def remove(state: EngineState, partition: int, key: str, row: TableRow) -> int:
    """Removes a row; returns the version of the removal."""
    version = state.next_lsn(partition)
    if row.version:
        state.overlay.delete(state.table.starts[partition] + key.encode())
    if partition in state.table.with_old_rows:
        state.overlay.delete(table_layout.key(partition, key))
    state.table.uncache(key)
    state.table.note(partition, version, key, None)
    return version


def will_expire(
    state: EngineState,
    expiries: Mapping[int, int],
    partitions: Sequence[int],
    keys: Sequence[bytes],
) -> None:
    """Indexes rows that expire, at one time per partition; starts the records of the clocks."""
    state.overlay.put_records(table_layout.expiry_records(expiries, partitions, keys))
    for partition in expiries:
        state.table.expiring[partition] = clock(state, partition)
        if partition not in state.table.marks:
            mark(state, partition)


def mark(state: EngineState, partition: int) -> None:
    """Records the partition's clock."""
    now = state.table.marks[partition] = clock(state, partition)
    state.overlay.put(table_layout.clock(partition), now.to_bytes(8, "big"))


def mark_all(state: EngineState) -> None:
    """Records the clocks of partitions with rows that expire, if the last record is old."""
    for partition in state.table.expiring:
        if clock(state, partition) - state.table.marks.get(partition, 0) >= MARK_US:
            mark(state, partition)


def rows(
    state: EngineState, partition: int, after: str = "", prefix: str = ""
) -> Iterator[tuple[str, TableRow]]:
    """The rows of clients in the order of their keys, expired ones included.

    Uncommitted rows are included: the store may lack rows whose writes were answered, and the
    caller's answer waits for the commit.
    """
    begin, stop = _bounds(after, prefix)
    merged = _new_rows(state, partition, begin, stop)
    if partition in state.table.with_old_rows:
        merged = merge(_old_rows(state, partition, begin, stop), merged, key=itemgetter(0))
    last = ""
    for key, row in merged:
        if key != last:  # else the row of the older form, which came first, is the later one
            yield key, row
        last = key


def _bounds(after: str, prefix: str) -> tuple[bytes, bytes]:
    """The first key, and the end, of the keys with a prefix after a key."""
    raw = prefix.encode()
    begin = max(raw, after.encode() + b"\0") if after else raw
    return begin, raw + b"\xff" if raw else b"\xff"


def _new_rows(
    state: EngineState, partition: int, begin: bytes, stop: bytes
) -> Iterator[tuple[str, TableRow]]:
    start = state.table.starts[partition]
    for key, data in state.overlay.scan_present(start + begin, start + stop):
        yield key[len(start) :].decode(), row_of(partition, data)


def _old_rows(
    state: EngineState, partition: int, begin: bytes, stop: bytes
) -> Iterator[tuple[str, TableRow]]:
    start = table_layout.key(partition, "")
    for key, data in state.overlay.scan_present(start + begin, start + stop):
        name = key[len(start) :].decode()
        if not name.startswith(OWN):
            yield name, TableRow(partition, 0, 0, data)


def load(state: EngineState, partition: int) -> None:
    """Reads the facts of a newly led partition; no rows."""
    table = state.table
    if _has_old_rows(state, partition):
        table.with_old_rows.add(partition)
    recorded = state.overlay.read(table_layout.clock(partition))
    if recorded is not None:
        table.offsets[partition] = int.from_bytes(recorded, "big") - state.now
    if any(True for _ in state.overlay.scan(*table_layout.expiries(partition))):
        table.expiring[partition] = clock(state, partition)
    table_names.load(state, partition)


def _has_old_rows(state: EngineState, partition: int) -> bool:
    """Skips a partition's own rows by their ranges: there may be many."""
    start, stop = table_layout.old_rows(partition)
    for prefix in sorted(OWN):
        own = table_layout.key(partition, prefix)
        if any(True for _ in state.overlay.scan(start, own)):
            return True
        start = own[:-1] + bytes([own[-1] + 1])
    return any(True for _ in state.overlay.scan(start, stop))
