"""ZHT's verbs for synchronous callers."""

from __future__ import annotations

from .batch import Body
from .kv import KvCore, Swap
from .link import run


class Kv:
    """ZHT's verbs on the cluster's own hash table."""

    def __init__(self, core: KvCore) -> None:
        self._core = core

    def insert(self, key: str, value: Body, *, timeout_ms: int | None = None) -> None:
        """Sets the key's value, whatever stood there."""
        run(self._core.insert(key, value, timeout_ms=timeout_ms))

    def lookup(self, key: str, *, timeout_ms: int | None = None) -> bytes | None:
        """The key's value; None when there is none."""
        return run(self._core.lookup(key, timeout_ms=timeout_ms))

    def remove(self, key: str, *, timeout_ms: int | None = None) -> bool:
        """Whether there was something to remove."""
        return run(self._core.remove(key, timeout_ms=timeout_ms))

    def append(self, key: str, value: Body, *, timeout_ms: int | None = None) -> int:
        """Adds to the end of the value, without a read; the value's new length."""
        return run(self._core.append(key, value, timeout_ms=timeout_ms))

    def compare_and_swap(
        self, key: str, old: Body | None, new: Body | None, *, timeout_ms: int | None = None
    ) -> Swap:
        """Sets `new` if the value is `old`. None as `old` means absent, as `new` it removes."""
        return run(self._core.compare_and_swap(key, old, new, timeout_ms=timeout_ms))
