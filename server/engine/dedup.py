"""The dedup window: which batches and dedup keys of a queue were pushed lately.

A push is named by (producer, batch), chosen by the client before it sends, or by a dedup key. The
same name again within the window is the same push and gets the first answer. Entries are grouped
by the time they expire, in slices of 30 seconds: a whole slice is forgotten at once, in memory and
on disk. Time is the stamp of the push, never the clock at the moment of looking, so that a restart
(and later a replica) agrees. The ids themselves say where the first push went, so an entry holds
nothing else.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from weft.limits import DEDUP_IDS_MAX

SLICE_US: Final = 30 * 1_000_000
#: A look-up goes through every group, so a long window gets coarser groups, not more.
_GROUPS_MAX: Final = 16


class First(NamedTuple):
    """The first push under a dedup key."""

    producer: int
    batch: int
    messages: int


class _Group:
    __slots__ = ("ids", "keys", "size")

    def __init__(self) -> None:
        self.ids: dict[int, set[int]] = {}  # producer -> batches
        self.keys: dict[str, First] = {}
        self.size = 0


def expiry_slice(stamp: int, window_ms: int) -> int:
    """The slice at whose end a push of this stamp may be forgotten."""
    return (stamp + window_ms * 1000) // SLICE_US


class DedupWindow:
    def __init__(self, window_ms: int) -> None:
        self._groups: dict[int, _Group] = {}
        self._size = 0
        self._span = 1  # slices in a group
        self.resize(window_ms)

    def __len__(self) -> int:
        return self._size

    def resize(self, window_ms: int) -> None:
        """For pushes from now on. What is remembered keeps the expiry that it was given."""
        old = self._groups
        self.window_ms = window_ms
        span = max(1, window_ms * 1000 // SLICE_US // _GROUPS_MAX)
        if old:
            last_slice = (max(old) + 1) * self._span - 1
            self._groups = {last_slice // span: _merged(list(old.values()))}
        self._span = span

    def add(self, stamp: int, producer: int, batch: int, key: str | None, count: int) -> None:
        if not self.window_ms:
            return
        self.restore(expiry_slice(stamp, self.window_ms), producer, batch)
        if key is not None:
            self.restore_key(
                expiry_slice(stamp, self.window_ms), key, First(producer, batch, count)
            )

    def restore(self, expires: int, producer: int, batch: int) -> None:
        group = self._group(expires)
        group.ids.setdefault(producer, set()).add(batch)
        group.size += 1
        self._size += 1
        if self._size > DEDUP_IDS_MAX and len(self._groups) > 1:
            self._forget(min(self._groups))

    def restore_key(self, expires: int, key: str, first: First) -> None:
        group = self._group(expires)
        group.keys[key] = first
        group.size += 1
        self._size += 1

    def has(self, producer: int, batch: int) -> bool:
        for group in self._groups.values():
            batches = group.ids.get(producer)
            if batches is not None and batch in batches:
                return True
        return False

    def first(self, key: str) -> First | None:
        for group in self._groups.values():
            if (found := group.keys.get(key)) is not None:
                return found
        return None

    def expire(self, now: int) -> None:
        """Forgets every group whose last slice has ended."""
        current = now // SLICE_US
        for number in [n for n in self._groups if (n + 1) * self._span <= current]:
            self._forget(number)

    def _group(self, expires: int) -> _Group:
        number = expires // self._span
        group = self._groups.get(number)
        if group is None:
            group = self._groups[number] = _Group()
        return group

    def _forget(self, number: int) -> None:
        self._size -= self._groups.pop(number).size


def _merged(groups: list[_Group]) -> _Group:
    merged = _Group()
    for group in groups:
        for producer, batches in group.ids.items():
            merged.ids.setdefault(producer, set()).update(batches)
        merged.keys.update(group.keys)
        merged.size += group.size
    return merged
