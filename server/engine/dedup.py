"""The dedup window: which batches and dedup keys of a queue were pushed to a partition lately.

A push is named by (producer, batch), chosen by the client before it sends, or by a dedup key. The
same name again within the window is the same push and gets the first answer. Entries are grouped
by the time they expire, in slices of 30 seconds: a whole slice is forgotten at once, in memory and
on disk. Time is the stamp of the push, never the clock at the moment of looking, so that a restart
and another replica agree. The ids themselves say where the first push went, so an entry holds
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
    def __init__(self, window_ms: int, ids_max: int = DEDUP_IDS_MAX) -> None:
        self._ids_max = ids_max
        #: A group that is full is followed by another: the oldest can go first in a busy span too.
        self._group_ids_max = max(1, ids_max // _GROUPS_MAX)
        #: By the span of slices in which they expire; within one span in order of arrival.
        self._groups: dict[int, list[_Group]] = {}
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
            in_order = [group for number in sorted(old) for group in old[number]]
            self._groups = {last_slice // span: _packed(in_order, self._group_ids_max)}
        self._span = span

    def add(self, stamp: int, producer: int, batch: int, key: str | None, count: int) -> None:
        if not self.window_ms:
            return
        expires = expiry_slice(stamp, self.window_ms)
        self.restore(expires, producer, batch)
        if key is not None:
            self.restore_key(expires, key, First(producer, batch, count))

    def restore(self, expires: int, producer: int, batch: int) -> None:
        ids = self._room(expires).ids
        batches = ids.get(producer)
        if batches is None:
            ids[producer] = {batch}
        else:
            batches.add(batch)

    def restore_many(self, expires: int, producer: int, batches: list[int]) -> None:
        """What a restart has found, without a step for each."""
        most = self._group_ids_max
        for start in range(0, len(batches), most):
            some = batches[start : start + most]
            self._room(expires, len(some)).ids.setdefault(producer, set()).update(some)

    def restore_key(self, expires: int, key: str, first: First) -> None:
        self._room(expires).keys[key] = first

    def has(self, producer: int, batch: int) -> bool:
        for groups in self._groups.values():
            for group in groups:
                batches = group.ids.get(producer)
                if batches is not None and batch in batches:
                    return True
        return False

    def first(self, key: str) -> First | None:
        for groups in self._groups.values():
            for group in groups:
                if (found := group.keys.get(key)) is not None:
                    return found
        return None

    def expire(self, now: int) -> None:
        """Forgets every group whose last slice has ended."""
        current = now // SLICE_US
        for number in [n for n in self._groups if (n + 1) * self._span <= current]:
            self._size -= sum(group.size for group in self._groups.pop(number))

    def _room(self, expires: int, count: int = 1) -> _Group:
        """The group for so many more, which are counted; beyond the limit the oldest go."""
        groups = self._groups.get(expires // self._span)
        if groups is None:
            groups = self._groups[expires // self._span] = [_Group()]
        elif groups[-1].size + count > self._group_ids_max:
            groups.append(_Group())
        group = groups[-1]
        group.size += count
        self._size += count
        while self._size > self._ids_max:
            self._forget_oldest()
        return group

    def _forget_oldest(self) -> None:
        number = min(self._groups)
        groups = self._groups[number]
        self._size -= groups.pop(0).size
        if not groups:
            del self._groups[number]


def _packed(groups: list[_Group], most: int) -> list[_Group]:
    """The same in as few groups as fit: a look-up does not get slower with every resize."""
    packed: list[_Group] = []
    for group in groups:
        if not packed or packed[-1].size + group.size > most:
            packed.append(group)
            continue
        last = packed[-1]
        for producer, batches in group.ids.items():
            last.ids.setdefault(producer, set()).update(batches)
        last.keys.update(group.keys)
        last.size += group.size
    return packed
