"""The Store: the only interface between Weft and a disk.

A store is an ordered map of byte strings. All changes go through ``write``, which is atomic: after
a crash either all changes of a write exist or none. With ``sync=True`` the write is on disk when
``write`` returns, and so is every earlier write. Reads see every completed write. A key is never
empty. A store that raised ``StorageError`` from a write is *failed*: every later call is refused,
because LevelDB may lose acknowledged writes once a disk was full, and the process must end.

One thread writes; other threads may read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

#: One change: a key with a new value, or with None to delete the key.
Change = tuple[bytes, bytes | None]


class StoreReader(Protocol):
    """A store as the pure core sees the store: read-only."""

    @property
    def path(self) -> str:
        """The store's location, for messages to people."""
        ...

    def get(self, key: bytes) -> bytes | None: ...

    def get_parted(self, key: bytes, at: int) -> tuple[bytes, bytes] | None:
        """As ``get``, in two parts: the first ``at`` bytes, and the rest. The rest of a large value
        is read without the extra copy that ``get`` and a slice would make. The caller must detect
        damage, by a checksum inside the value. ``get`` reports the damaged file."""
        ...

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from ``start`` (inclusive) to ``stop`` (exclusive), in order, as one snapshot."""
        ...


class Store(StoreReader, Protocol):
    def write(self, changes: list[Change], *, sync: bool) -> None:
        """Apply all ``changes`` or none, in order; a later change of the same key wins."""
        ...

    def compact(self, start: bytes, stop: bytes) -> None:
        """Free the space of deleted values in this range. Slow; other calls proceed."""
        ...

    def shed(self) -> None:
        """Free the space kept for later writes. Takes no time."""
        ...

    def size_bytes(self) -> int:
        """Approximate bytes on disk."""
        ...

    def close(self) -> None: ...
