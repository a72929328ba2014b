"""Uncommitted state: the store including a primary's own proposals, committed or not.

A primary works ahead of the commit: a pop may lend a batch with an uncommitted push, and the answer
waits for the commit. So reads must include the primary's own proposals, although proposals reach
the store only when committed. If the node stops leading a partition, the partition's uncommitted
proposals never happened as far as the node knows, and are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.persistence import layout
from weft.persistence.store import StoreReader

from .log import Changes


class UncommittedState:
    """A `StoreReader`. Scans do not see uncommitted changes: a scan is for a settled state."""

    def __init__(self, store: StoreReader, catalogue: int) -> None:
        self._store = store
        self._catalogue = catalogue
        #: partition -> key -> (lsn of the newest proposal that changes the key, value)
        self._changes: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}

    @property
    def path(self) -> str:
        return self._store.path

    def get(self, key: bytes) -> bytes | None:
        if self._changes:
            changes = self._changes.get(layout.partition_of(key, self._catalogue))
            if changes is not None and (found := changes.get(key)) is not None:
                return found[1]
        return self._store.get(key)

    def get_parted(self, key: bytes, at: int) -> tuple[bytes, bytes] | None:
        if not self._changes:
            return self._store.get_parted(key, at)
        value = self.get(key)
        return None if value is None else (value[:at], value[at:])

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan(start, stop)

    def uncommitted(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """The proposals that change keys of a range within one partition."""
        changes = self._changes.get(layout.partition_of(start, self._catalogue), {})
        for key, (_, value) in changes.items():
            if start <= key < stop:
                yield key, value

    def add(self, partition: int, lsn: int, changes: Changes) -> None:
        pending = self._changes.setdefault(partition, {})
        for key, value in changes.puts:
            pending[key] = lsn, value
        for key in changes.deletes:
            pending[key] = lsn, None

    def settle(self, partition: int, lsn: int, changes: Changes) -> None:
        """Drops a proposal's changes: the round's write puts the proposal into the store."""
        pending = self._changes.get(partition)
        if pending is None:
            return
        for key in (*(key for key, _ in changes.puts), *changes.deletes):
            found = pending.get(key)
            if found is not None and found[0] == lsn:
                del pending[key]
        if not pending:
            del self._changes[partition]

    def drop(self, partition: int) -> None:
        self._changes.pop(partition, None)
