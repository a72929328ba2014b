"""Values of the hash table as the client returns them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KvEntry:
    """A key with its value. Every write of the key raises the version, across failovers too.

    Version 0: a client of version 0.1.0 wrote the value, and no condition on a version holds.
    """

    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Swap:
    """The result of a compare-and-swap; true if the value was swapped."""

    swapped: bool
    #: The value before; None if the key was absent.
    current: bytes | None
    #: The key's version after the call; 0 if the key is absent then.
    version: int = 0

    def __bool__(self) -> bool:
        return self.swapped


@dataclass(frozen=True, slots=True)
class KvPage:
    """A page of a scan: iterate over its entries. If there is `more`, scan on `after` this key."""

    entries: list[KvEntry]
    after: str
    more: bool

    def __iter__(self) -> Iterator[KvEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(frozen=True, slots=True)
class KvChange:
    """A change of a watched key. A value of None: the key was removed, or has expired.

    With `resync`, and no key: changes may be missing, because a node failed or the watch was too
    slow. Read the keys again, with `scan` or `lookup`; later changes follow.
    """

    key: str
    value: bytes | None
    version: int
    resync: bool = False
