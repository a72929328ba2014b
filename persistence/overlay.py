"""A round's changes over a store: reads fall through to the store, writes are collected.

The overlay collects all changes of a round; at the end of the round the node takes the changes and
writes them atomically. Reads see the round's own changes first. The overlay seals values on the way
in and verifies the checksums on the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from operator import itemgetter
from typing import Protocol, runtime_checkable

from weft.errors import StoreDamaged

from . import layout
from .store import Change, StoreReader


@runtime_checkable
class Uncommitted(Protocol):
    """A reader whose `get` finds changes that a scan of the store does not see yet."""

    def uncommitted(self, start: bytes, stop: bytes) -> Iterable[tuple[bytes, bytes | None]]: ...


class Overlay:
    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._changes: dict[bytes, bytes | None] = {}

    @property
    def path(self) -> str:
        return self._store.path

    def read(self, key: bytes) -> memoryview | None:
        changes = self._changes
        record = changes[key] if key in changes else self._store.get(key)
        return None if record is None else layout.unseal(key, record, self._store.path)

    def read_bytes(self, key: bytes) -> bytes | None:
        """As `read`, for large values kept as bytes: the value is not copied."""
        if key in self._changes:
            data = self.read(key)
            return None if data is None else bytes(data)
        parts = self._store.get_parted(key, layout.SEAL_BYTES)
        if parts is None:
            return None
        try:
            return layout.unseal_parted(key, *parts, self._store.path)
        except StoreDamaged:
            record = self._store.get(key)  # names the damaged file, or finds the value's new place
            return None if record is None else bytes(layout.unseal(key, record, self._store.path))

    def put(self, key: bytes, data: bytes) -> None:
        self._changes[key] = layout.seal(key, data)

    def read_record(self, key: bytes) -> bytes | None:
        """The record as stored, with its checksum: verified, otherwise damage would spread."""
        if key in self._changes:
            return self._changes[key]
        record = self._store.get(key)
        if record is not None:
            layout.unseal(key, record, self._store.path)
        return record

    def put_record(self, key: bytes, record: bytes) -> None:
        """Put a value that is already sealed."""
        self._changes[key] = record

    def put_records(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        self._changes.update(records)

    def delete(self, key: bytes) -> None:
        self._changes[key] = None

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Stored rows, without this round's changes."""
        return layout.unseal_rows(self._store.scan(start, stop), self._store.path)

    def scan_present(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows that `read` finds: also those of this round and of uncommitted entries."""
        rows, store = self._store.scan(start, stop), self._store
        newer = dict(store.uncommitted(start, stop)) if isinstance(store, Uncommitted) else {}
        if self._changes:
            newer |= {key: each for key, each in self._changes.items() if start <= key < stop}
        if newer:
            rows = _replaced(rows, newer)
        return layout.unseal_rows(rows, store.path)

    @property
    def dirty(self) -> bool:
        return bool(self._changes)

    def stored(self, key: bytes) -> memoryview | None:
        """The value as of the beginning of the round."""
        record = self._store.get(key)
        return None if record is None else layout.unseal(key, record, self._store.path)

    def stored_rows(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and sealed values as of the first row taken; each value is verified."""
        for key, record in self._store.scan(start, stop):
            layout.unseal(key, record, self._store.path)
            yield key, record

    def drop_all(self, ranges: list[tuple[bytes, bytes]]) -> None:
        """Delete all keys in some ranges, including this round's own changes."""
        for start, stop in ranges:
            for key, _ in self._store.scan(start, stop):
                self._changes[key] = None
            for key in [key for key in self._changes if start <= key < stop]:
                self._changes[key] = None

    def take(self) -> list[Change]:
        """The round's changes, to be written; the next round starts empty."""
        changes = list(self._changes.items())
        self._changes = {}
        return changes


def _replaced(
    rows: Iterator[tuple[bytes, bytes]], newer: dict[bytes, bytes | None]
) -> Iterator[tuple[bytes, bytes]]:
    """The rows with newer values in place of theirs, and without the deleted ones."""
    kept = (row for row in rows if row[0] not in newer)
    added = sorted((key, value) for key, value in newer.items() if value is not None)
    return merge(kept, added, key=itemgetter(0))
