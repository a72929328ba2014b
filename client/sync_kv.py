"""The operations of ZHT for synchronous callers."""

from __future__ import annotations

from .kv_core import KvCore, Swap
from .producer.batch import Body
from .transport.link import run


class Kv:
    """The operations of ZHT on the cluster's hash table."""

    def __init__(self, core: KvCore) -> None:
        self._core = core

    def insert(self, key: str, value: Body, *, timeout_ms: int | None = None) -> None:
        """Sets the value of the key and replaces any old value."""
        run(self._core.insert(key, value, timeout_ms=timeout_ms))

    def lookup(self, key: str, *, timeout_ms: int | None = None) -> bytes | None:
        """Returns the value of the key; None if the key is absent."""
        return run(self._core.lookup(key, timeout_ms=timeout_ms))

    def remove(self, key: str, *, timeout_ms: int | None = None) -> bool:
        """Removes the key; returns True if the key existed."""
        return run(self._core.remove(key, timeout_ms=timeout_ms))

    def append(self, key: str, value: Body, *, timeout_ms: int | None = None) -> int:
        """Appends to the value without a read; returns the new length in bytes."""
        return run(self._core.append(key, value, timeout_ms=timeout_ms))

    def compare_and_swap(
        self, key: str, old: Body | None, new: Body | None, *, timeout_ms: int | None = None
    ) -> Swap:
        """Sets `new` if the value is `old`. `old` None means absent, `new` None removes the key."""
        return run(self._core.compare_and_swap(key, old, new, timeout_ms=timeout_ms))
