"""Keys of the hash table that share a prefix and a partition.

A writer that wants its keys on a certain partition, for example beside a batch of messages, appends
a salt to each key until the key's hash is that partition. A reader knows the prefix and the
partition, but not the salts, so it scans or watches the prefix on the one partition: one hop, one
node, however many keys the group has.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, Final

import xxhash

from weft import limits
from weft.dht import placement
from weft.errors import Unavailable, WeftError
from weft.proto import wire

from .kv_entry import KvChange, KvEntry
from .routing.session import ClientSession, attempt, pause_s
from .transport.link import Asked

if TYPE_CHECKING:
    pass

#: Separates the name of a key from its salt. A name must not contain it.
SALT: Final = "~"
#: One long poll; the caller repeats the poll.
_WAIT_MS_MAX: Final = 20_000
_NOW: Final = -1
#: Enough for nearly every key of a cluster of 256 partitions.
_SALTS: Final = [b"%x" % number for number in range(2048)]


class KeyGroup:
    """The operations are coroutines; a synchronous caller steps them with `blocking_link.run`."""

    def __init__(self, session: ClientSession, prefix: str, partition: int) -> None:
        self.prefix = prefix
        self.partition = partition
        self._session = session

    def key(self, name: str) -> str:
        """Returns a key of the group for this name: always the same one."""
        return salted(self.prefix + name + SALT, self.partition, self._session.router.partitions)

    async def scan(self, timeout_ms: int | None = None) -> list[KvEntry]:
        """Returns all keys of the group with their values."""
        found: list[KvEntry] = []
        after, more = "", True
        while more:
            request = wire.ScanKeys([self.partition], self.prefix, after, limits.TABLE_SCAN_MAX)
            deadline = self._session.deadline(timeout_ms)
            page = await self._ask(request, wire.KeyPage, deadline)
            found += map(KvEntry, page.keys, page.values, page.versions)
            after, more = page.after, page.more
        return found

    async def position(self) -> int:
        """Returns the position of the latest change: the start for `changes`."""
        request = wire.WatchKeys([self.partition], self.prefix, [_NOW])
        answer = await self._ask(request, wire.KeyChanges, self._session.deadline(None))
        return int(answer.positions[0])

    async def begin(self) -> tuple[int, list[KvEntry]]:
        """Returns the position and all keys, usually by one exchange with the node.

        No change is missing: it is among the keys, or comes after the position. If the node was
        asked again in between, a change may be missing: a reader that waits long scans again.
        """
        router = self._session.router
        asked: list[Asked] = [
            (wire.WatchKeys([self.partition], self.prefix, [_NOW]), ()),
            (wire.ScanKeys([self.partition], self.prefix, "", limits.TABLE_SCAN_MAX), ()),
        ]
        deadline = self._session.deadline(None)
        try:
            link = router.table[self.partition] or router.link(self.partition)
            until = router.until(asked[0][0], deadline, 0)
            first, second = await link.call_all(asked, until)
        except Unavailable:
            return await self.position(), await self.scan()
        if isinstance(first, tuple) and isinstance(second, tuple):
            changes, page = first[0], second[0]
            if (
                isinstance(changes, wire.KeyChanges)
                and isinstance(page, wire.KeyPage)
                and not page.more
            ):
                found = list(map(KvEntry, page.keys, page.values, page.versions))
                return changes.positions[0], found
        position = await self.position()
        return position, await self.scan()

    async def changes(self, after: int, wait_ms: int) -> tuple[int, list[KvChange]]:
        """Waits up to `wait_ms` milliseconds for changes after a position.

        Returns the next position with the changes. A change with `resync` means that changes may be
        missing: scan again.
        """
        wait_ms = max(0, min(wait_ms, _WAIT_MS_MAX))
        request = wire.WatchKeys([self.partition], self.prefix, [after], wait_ms)
        answer = await self._ask(request, wire.KeyChanges, self._session.deadline(None, wait_ms))
        found = [KvChange("", None, 0, resync=True)] if answer.lost else []
        found += map(KvChange, answer.keys, answer.values, answer.versions)
        return answer.positions[0], found

    async def _ask(self, request: wire.AnyRequest, expected: type[Any], deadline: float) -> Any:
        """Asks the partition's primary; reads and watches may always be repeated."""
        router = self._session.router
        tries = 0
        while True:
            seen, link = router.view, router.link(self.partition)
            end = await attempt(router, link, request, expected, deadline)
            if not isinstance(end, WeftError):
                return end[0]
            pause = pause_s(tries)
            if not end.retriable or time.monotonic() + pause >= deadline:
                raise end
            tries += 1
            await router.again(link, end, seen, pause, deadline)


def salted(start: str, partition: int, partitions: int) -> str:
    """Returns the first key `start` + number whose hash is the partition: about as many tries as
    the cluster has partitions."""
    head, hashed = start.encode(), xxhash.xxh3_64_intdigest
    for salt in _SALTS:  # `placement.of_text`, without a call for each try
        if hashed(head + salt) % partitions == partition:
            return start + salt.decode()
    return next(
        key
        for number in itertools.count(len(_SALTS))
        if placement.of_text(key := f"{start}{number:x}", partitions) == partition
    )
