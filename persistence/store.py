"""The Store: the one seam between Weft and a disk.

A store is an ordered map of byte strings. Everything that changes goes through ``write``, which
is atomic: after a crash either all of it is there or none. With ``sync=True`` it is on disk when
``write`` returns, and so is every earlier write. Reads see every completed write. A key is never
empty. A store that raised ``StorageError`` from a write is *failed*: it refuses everything after
that, because LevelDB may lose acknowledged writes once a disk was full, and the process must end.

One thread writes; reads may come from others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

#: One change: a key with its new value, or with None to delete it.
Change = tuple[bytes, bytes | None]


class Reader(Protocol):
    """A store as the pure core sees it: to be read, never written."""

    @property
    def path(self) -> str:
        """Where it lives, for messages to people."""
        ...

    def get(self, key: bytes) -> bytes | None: ...

    def get_parted(self, key: bytes, at: int) -> tuple[bytes, bytes] | None:
        """As ``get``, in two: the first ``at`` bytes, and the rest. Of a large value the rest is
        read into its place, where ``get`` and a slice would copy it once more; and it is the
        caller who finds out whether it is damaged, by a checksum in it. ``get`` says where."""
        ...

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from ``start`` (inclusive) to ``stop`` (exclusive), in order, as one snapshot."""
        ...


class Store(Reader, Protocol):
    def write(self, changes: list[Change], *, sync: bool) -> None:
        """All of ``changes`` or none, in order; a later change of the same key wins."""
        ...

    def compact(self, start: bytes, stop: bytes) -> None:
        """Give back the space of what was deleted in this range. Slow; other calls go on."""
        ...

    def shed(self) -> None:
        """Give back the space that is kept for later writes. Takes no time."""
        ...

    def size_bytes(self) -> int:
        """Bytes on disk, about."""
        ...

    def close(self) -> None: ...
