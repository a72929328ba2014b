"""A round's changes over a store: read through, written all at once.

Everything that a round changes is collected here and taken out at its end, to be written
atomically. Reads see the round's own changes first. Values are sealed on their way in and checked
on their way out.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import layout
from .store import Change, Reader


class Overlay:
    def __init__(self, store: Reader) -> None:
        self._store = store
        self._changes: dict[bytes, bytes | None] = {}

    @property
    def path(self) -> str:
        return self._store.path

    def read(self, key: bytes) -> memoryview | None:
        changes = self._changes
        record = changes[key] if key in changes else self._store.get(key)
        return None if record is None else layout.unseal(key, record, self._store.path)

    def put(self, key: bytes, data: bytes) -> None:
        self._changes[key] = layout.seal(key, data)

    def delete(self, key: bytes) -> None:
        self._changes[key] = None

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, memoryview]]:
        """What is stored, without this round's changes."""
        for key, record in self._store.scan(start, stop):
            yield key, layout.unseal(key, record, self._store.path)

    def take(self) -> list[Change]:
        """The round's changes, to be written; the next round starts empty."""
        changes = list(self._changes.items())
        self._changes = {}
        return changes
