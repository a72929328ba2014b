"""The dedup window: the recent batches and dedup keys of a queue on one partition.

A push is named by (producer, batch), chosen by the client before sending, or by a dedup key. A
second push with the same name within the window is a duplicate and gets the first answer. Entries
are grouped by expiry time, in slices of 30 seconds: a whole slice is discarded at once, in memory
and on disk. Time is the stamp of the push, never the clock at lookup time, so a restart and another
replica agree. The ids alone determine the location of the first push, so an entry needs no further
data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from weft.limits import DEDUP_IDS_MAX
from weft.persistence import layout

if TYPE_CHECKING:
    from weft.persistence.overlay import Overlay

    from .head import Head
    from .queue import QueueState

SLICE_US: Final = 30 * 1_000_000
#: A lookup searches every group, so a long window gets coarser groups, not more groups.
_GROUPS_MAX: Final = 16


class First(NamedTuple):
    """The first push under a dedup key."""

    producer: int
    batch: int
    messages: int
    #: The index of the first message, in a copy of a multicast.
    first: int = 0


class DedupEntry(NamedTuple):
    """A push in the dedup window, until its time slice expires."""

    partition: int
    expires: int
    producer: int
    batch: int
    key: str | None = None
    messages: int = 0
    #: Of a key: the index of the first message.
    first: int = 0


class _Group:
    __slots__ = ("ids", "keys", "size")

    def __init__(self) -> None:
        self.ids: dict[int, set[int]] = {}  # producer -> batches
        self.keys: dict[str, First] = {}
        self.size = 0


def expiry_slice(stamp: int, window_ms: int) -> int:
    """The time slice after which a push with this stamp may be discarded."""
    return (stamp + window_ms * 1000) // SLICE_US


class DedupWindow:
    def __init__(self, window_ms: int, ids_max: int = DEDUP_IDS_MAX) -> None:
        self._ids_max = ids_max
        #: A full group is followed by a new group: even in a busy span the oldest entries go first.
        self._group_ids_max = max(1, ids_max // _GROUPS_MAX)
        #: Groups by their span of expiry slices; within one span in order of arrival.
        self._groups: dict[int, list[_Group]] = {}
        self._size = 0
        self._span = 1  # slices in a group
        self.resize(window_ms)

    def __len__(self) -> int:
        return self._size

    def resize(self, window_ms: int) -> None:
        """Changes the window of future pushes. Existing entries keep their expiry."""
        old = self._groups
        self.window_ms = window_ms
        span = max(1, window_ms * 1000 // SLICE_US // _GROUPS_MAX)
        if old:
            last_slice = (max(old) + 1) * self._span - 1
            in_order = [group for number in sorted(old) for group in old[number]]
            self._groups = {last_slice // span: _packed(in_order, self._group_ids_max)}
        self._span = span

    def add(
        self, stamp: int, producer: int, batch: int, key: str | None, count: int, first: int = 0
    ) -> None:
        if not self.window_ms:
            return
        expires = (stamp + self.window_ms * 1000) // SLICE_US  # `expiry_slice`, without a call
        # A push adds one entry: the usual case of `restore`, without its calls.
        number, groups = expires // self._span, self._groups
        if (
            number in groups
            and (group := groups[number][-1]).size < self._group_ids_max
            and self._size < self._ids_max
            and producer in group.ids
        ):
            group.size += 1
            self._size += 1
            group.ids[producer].add(batch)
        else:
            self.restore(expires, producer, batch)
        if key is not None:
            self.restore_key(expires, key, First(producer, batch, count, first))

    def restore(self, expires: int, producer: int, batch: int) -> None:
        ids = self._room(expires).ids
        if producer in ids:
            ids[producer].add(batch)
        else:
            ids[producer] = {batch}

    def restore_many(self, expires: int, producer: int, batches: list[int]) -> None:
        """Adds many batches found by a restart, without a Python-level step for each."""
        most = self._group_ids_max
        for start in range(0, len(batches), most):
            some = batches[start : start + most]
            self._room(expires, len(some)).ids.setdefault(producer, set()).update(some)

    def restore_key(self, expires: int, key: str, first: First) -> None:
        self._room(expires).keys[key] = first

    def has(self, producer: int, batch: int) -> bool:
        known = self._groups
        for number in known:
            for group in known[number]:
                ids = group.ids
                if producer in ids and batch in ids[producer]:
                    return True
        return False

    def first(self, key: str) -> First | None:
        for groups in self._groups.values():
            for group in groups:
                if (found := group.keys.get(key)) is not None:
                    return found
        return None

    def expire(self, now: int) -> None:
        """Discards every group after the end of its last slice."""
        current = now // SLICE_US
        for number in [n for n in self._groups if (n + 1) * self._span <= current]:
            self._size -= sum(group.size for group in self._groups.pop(number))

    def _room(self, expires: int, count: int = 1) -> _Group:
        """The group for `count` more entries, counted here; discards the oldest over the limit."""
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


class DedupWindows(dict[int, DedupWindow]):
    """The windows of one queue by partition, each loaded and discarded with its partition."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms

    def of(self, partition: int, partitions: int) -> DedupWindow:
        """The window of one of so many partitions."""
        found = self.get(partition)
        if found is None:
            # Twice a partition's equal share of the queue's limit, because hashing is uneven.
            share = max(1, 2 * DEDUP_IDS_MAX // partitions)
            found = self[partition] = DedupWindow(self._window_ms, share)
        return found

    def resize(self, window_ms: int) -> None:
        """Changes the window of future pushes on all partitions."""
        self._window_ms = window_ms
        for window in self.values():
            if window.window_ms != window_ms:
                window.resize(window_ms)


def _packed(groups: list[_Group], most: int) -> list[_Group]:
    """Packs the entries into few groups, so lookups do not get slower with every resize."""
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


def write_record(
    overlay: Overlay, now: int, queue: QueueState, partition: int, dead: Head, number: int
) -> None:
    """Records a removed batch until the dedup window of its destination of this number ends."""
    window_ms = queue.settings.dedup_window_ms
    expires = expiry_slice(dead.stamp, window_ms)
    if not window_ms or expires < expiry_slice(now, 0):
        return
    created = queue.created
    overlay.put(layout.dedup(partition, expires, created, dead.producer, dead.batch), b"")
    if dead.dedup_key is not None:
        first = First(dead.producer, dead.batch, dead.bodies, number * dead.bodies)
        overlay.put(
            layout.dedup_key(partition, expires, created, dead.dedup_key),
            # Without an index, a node of an older version can read the record.
            msgspec.msgpack.encode(first if first.first else first[:3]),
        )
