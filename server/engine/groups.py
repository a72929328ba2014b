"""The MessageId queue of a grouped queue: messages of one group are lent in order.

A grouped queue orders messages by key: each batch has one group, and the hash of the group's name
is the batch's partition. So all messages of a group are on one node, and a node orders its groups
alone. Groups are independent of each other, so a grouped queue uses the whole cluster.

A group is *blocked* while a lease has messages of the group, or while messages of the group wait
for the end of a nack's delay. Nothing of a blocked group is lent. A new message therefore never
overtakes an older message that a consumer holds or has returned.

| event                                | leases and delays of the group | group               |
|--------------------------------------|--------------------------------|---------------------|
| a pop lends the first range of a lot | 0 -> 1                         | becomes blocked     |
| the same pop lends more of the group | n -> n + 1                     | blocked             |
| a lease ends, or a delay is over     | n -> n - 1                     | open at 0           |
| a push                               | n                              | unchanged           |

Invariants:

- An entry is in its group's heap, or in the list of delayed entries, never in both.
- `takeable` is the number of ready messages in open groups. Pops, metadata lists and `Popped.left`
  use this number: with the number of all ready messages, consumers would poll a node whose groups
  are all blocked.
- Every open group with entries has its first entry in `_heads`. Other items of `_heads` are stale
  and skipped.
- A group without entries, leases and delays is forgotten: memory follows the waiting messages.

Leases of grouped queues are always recorded in the partition's log (``lease_records``), and
recovery blocks the group of each restored lease before the next pop.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from .message_id_queue import WHOLE, Handle, IdEntry, MessageIdQueue

#: Groups in the answer to a prefetching pop. A prefetched message waits in a consumer's buffer, and
#: its whole group waits with it while other consumers may be idle.
PREFETCHED_GROUPS_MAX: Final = 8
#: Stale items tolerated in the heap of heads, beside one per group.
_SLACK: Final = 256


class GroupEntry(NamedTuple):
    """A waiting entry of a group, and its messages."""

    handle: int
    first: int
    messages: int


#: The group and the number of messages of an entry.
Describe = Callable[[IdEntry], tuple[str, int]]


class Group:
    """The waiting messages of one group."""

    __slots__ = ("blocks", "entries", "messages", "name", "partition")

    def __init__(self, name: str, partition: int) -> None:
        self.name = name
        self.partition = partition
        self.entries: list[GroupEntry] = []  # a heap: the oldest first
        self.messages = 0
        #: Leases and delayed entries of the group.
        self.blocks = 0


class GroupQueue(MessageIdQueue):
    def __init__(self, describe: Describe) -> None:
        super().__init__()
        self._describe = describe
        self._groups: dict[str, Group] = {}
        self._heads: list[tuple[GroupEntry, str]] = []
        self.takeable = 0

    # --- entries --------------------------------------------------------------------------

    def add_fresh(self, priority: int, batch_handle: int) -> None:
        self.add_returned(priority, IdEntry(batch_handle, WHOLE))

    def add_all_fresh(self, priority: int, handles: list[int]) -> None:
        for each in handles:
            self.add_fresh(priority, each)

    def add_returned(self, priority: int, entry: IdEntry) -> None:
        name, messages = self._describe(entry)
        group = self._group(name, entry.handle)
        added = GroupEntry(*entry, messages)
        heapq.heappush(group.entries, added)
        group.messages += messages
        if not group.blocks:
            self.takeable += messages
            if group.entries[0] is added:
                self._list_head(group)

    def add_delayed(self, due: int, priority: int, entry: IdEntry) -> None:
        super().add_delayed(due, priority, entry)
        name, _ = self._describe(entry)
        self._block(self._group(name, entry.handle))

    def take(self) -> IdEntry | None:
        return GroupLot(self).take()

    def peek(self, limit: int) -> Iterator[IdEntry]:
        """The oldest entries, those of blocked groups too. Takes time linear in the entries."""
        everything = chain.from_iterable(group.entries for group in self._groups.values())
        return (IdEntry(each[0], each[1]) for each in heapq.nsmallest(limit, everything))

    def oldest(self) -> int:
        heads = (group.entries[0].handle for group in self._groups.values() if group.entries)
        return Handle.stamp(min(heads, default=0))

    def take_older(self, stamp: int) -> IdEntry | None:
        """Removes and returns an entry of an open group, older than `stamp`. The messages of a
        blocked group stay until the group is open."""
        group = self.first_open()
        if group is None or Handle.stamp(group.entries[0].handle) >= stamp:
            return None
        return self.take_from(group)

    def take_due(self, now: int) -> tuple[int, IdEntry] | None:
        found = super().take_due(now)
        if found is not None:
            self._unblock(self._groups[self._describe(found[1])[0]])
        return found

    def drop(self, partitions: set[int]) -> list[tuple[IdEntry, bool]]:
        """As in the base class; the leases of the groups on these partitions are gone, too."""
        dropped = super().drop(partitions)
        for group in [each for each in self._groups.values() if each.partition in partitions]:
            dropped += [(IdEntry(each[0], each[1]), False) for each in group.entries]
            if not group.blocks:
                self.takeable -= group.messages
            del self._groups[group.name]
        return dropped

    def remove(self, batch_handle: int, first: int) -> bool | None:
        # An entry has the group of its batch, whichever of the batch's parts it lists.
        name, _ = self._describe(IdEntry(batch_handle, first))
        group = self._groups.get(name)
        if super().remove(batch_handle, first) is not None:
            assert group is not None, "a delayed entry blocks its group"
            self._unblock(group)
            return True
        for number, each in enumerate(group.entries if group is not None else ()):
            if each.handle == batch_handle and max(0, each.first) == first:
                assert group is not None
                del group.entries[number]
                heapq.heapify(group.entries)
                self._taken(group, each.messages)
                return False
        return None

    def handles(self) -> Iterator[int]:
        yield from super().handles()
        for group in self._groups.values():
            yield from (each.handle for each in group.entries)

    def entries(self) -> Iterator[IdEntry]:
        """The ready entries, unordered."""
        for group in self._groups.values():
            yield from (IdEntry(each[0], each[1]) for each in group.entries)

    def drain(self) -> Iterator[IdEntry]:
        while self._groups:
            _, group = self._groups.popitem()
            if not group.blocks:
                self.takeable -= group.messages
            yield from (IdEntry(each[0], each[1]) for each in group.entries)
        yield from super().drain()

    # --- leases ---------------------------------------------------------------------------

    def lend(self, name: str, batch_handle: int) -> None:
        """Blocks a group: a lease has messages of the group."""
        self._block(self._group(name, batch_handle))

    def settle(self, name: str) -> bool:
        """Ends a block of `lend`; True if the group is open now and has messages."""
        group = self._groups.get(name)
        return group is not None and self._unblock(group)  # None: the queue was purged

    # --- lots -----------------------------------------------------------------------------

    def first_open(self) -> Group | None:
        """The open group with the oldest message."""
        heads = self._heads
        while heads:
            head, name = heads[0]
            group = self._groups.get(name)
            if group is not None and not group.blocks and group.entries[:1] == [head]:
                return group
            heapq.heappop(heads)
        return None

    def take_from(self, group: Group) -> IdEntry:
        """Removes and returns the first entry of a group."""
        entry = heapq.heappop(group.entries)
        self._taken(group, entry.messages)
        return IdEntry(entry.handle, entry.first)

    # --- bookkeeping ----------------------------------------------------------------------

    def _group(self, name: str, batch_handle: int) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name, Handle.partition(batch_handle))
        return group

    def _block(self, group: Group) -> None:
        if not group.blocks:
            self.takeable -= group.messages
        group.blocks += 1

    def _unblock(self, group: Group) -> bool:
        group.blocks -= 1
        assert group.blocks >= 0, f"{group.name!r} has fewer than no leases"
        if group.blocks:
            return False
        self.takeable += group.messages
        if not group.entries:
            self._groups.pop(group.name, None)
            return False
        self._list_head(group)
        return True

    def _taken(self, group: Group, messages: int) -> None:
        group.messages -= messages
        if group.blocks:
            return
        self.takeable -= messages
        if group.entries:
            self._list_head(group)
        else:
            self._groups.pop(group.name, None)

    def _list_head(self, group: Group) -> None:
        heads = self._heads
        heapq.heappush(heads, (group.entries[0], group.name))
        if len(heads) > 2 * len(self._groups) + _SLACK:
            heads[:] = [
                (each.entries[0], each.name)
                for each in self._groups.values()
                if each.entries and not each.blocks
            ]
            heapq.heapify(heads)


class GroupLot:
    """The messages of one pop: runs of one group after the other, the oldest group first.

    A lot continues a group although its own leases block the group; no other pop does.
    """

    __slots__ = ("_group", "_groups_left", "_queue")

    def __init__(self, queue: GroupQueue, groups_max: int = 0) -> None:
        self._queue = queue
        self._group: Group | None = None
        self._groups_left = groups_max or -1

    def take(self) -> IdEntry | None:
        group = self._group
        if group is None or not group.entries:
            if not self._groups_left:
                return None
            self._groups_left -= 1
            group = self._group = self._queue.first_open()
            if group is None:
                return None
        return self._queue.take_from(group)
