"""Metadata lists: the nodes with ready messages of a queue (paper 4, section 4.2.2).

The owner of a queue's list is the primary of the partition of the queue's name. A list is soft
state: every node announces its messages when one of its queues goes from empty to ready, and again
once in a while; an announcement that is not repeated expires. So a lost announcement, or a new
owner with an empty list, heals by itself. A caller that finds no node waits at the list, and is
answered when a node has messages.

A consumer may also report a node as empty, with the number of the node's last announcement, which
the node gave to the consumer (`fallen`). A later announcement has a greater number and counts, so a
late report never hides new messages. A report does not raise the known number: the node's next
announcement corrects a false report.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from weft.proto import wire

#: An announcement that is not repeated for this long expires, in microseconds.
STALE_US: Final = 3_000_000
#: The interval of repeated announcements, in microseconds.
AGAIN_US: Final = 1_000_000


class ListedNode(NamedTuple):
    """One node's announcement for one queue."""

    boot: int
    number: int
    ready: int
    received_at: int


class Waiting(NamedTuple):
    to: object
    until: int
    #: The waiting pop, if the caller is another node.
    pop: wire.Pop | None = None


class OwnedLists:
    """The lists owned by this node, and the callers that wait at them."""

    def __init__(self) -> None:
        self._announced: dict[str, dict[str, ListedNode]] = {}  # queue -> node -> announcement
        self._waiting: dict[str, deque[Waiting]] = {}

    def record(
        self, node: str, boot: int, number: int, ready: dict[str, int], now: int
    ) -> list[str]:
        """Takes a node's announcement; returns the queues with messages on the node."""
        became_ready: list[str] = []
        for queue, count in ready.items():
            known = self._announced.setdefault(queue, {})
            before = known.get(node)
            if before is not None and (before.boot, before.number) >= (boot, number):
                continue
            known[node] = ListedNode(boot, number, count, now)
            if count:
                became_ready.append(queue)
        return became_ready

    def mark_empty(self, queue: str, seen: dict[str, tuple[int, int]]) -> None:
        """Marks nodes as empty, each up to its announcement of (boot, number)."""
        known = self._announced.get(queue, {})
        for node, last in seen.items():
            one = known.get(node)
            if one is not None and (one.boot, one.number) <= last:
                known[node] = one._replace(ready=0)

    def subtract(self, queue: str, node: str, count: int) -> None:
        """Subtracts messages of a node that are on their way to consumers that waited here."""
        one = self._announced.get(queue, {}).get(node)
        if one is not None:
            self._announced[queue][node] = one._replace(ready=max(0, one.ready - count))

    def nodes(self, queue: str, now: int) -> list[tuple[str, int]]:
        """(node, messages) of the nodes with messages, most first."""
        known = self._announced.get(queue)
        if known is None:
            return []
        for node in [n for n, one in known.items() if now - one.received_at > STALE_US]:
            del known[node]
        if not known:
            del self._announced[queue]
        have = [(node, one.ready) for node, one in known.items() if one.ready]
        return sorted(have, key=lambda each: -each[1])

    def wait(self, queue: str, to: object, until: int, pop: wire.Pop | None = None) -> None:
        self._waiting.setdefault(queue, deque()).append(Waiting(to, until, pop))

    @property
    def awaited(self) -> bool:
        """True if any caller waits at any list."""
        return bool(self._waiting)

    def is_awaited(self, queue: str) -> bool:
        return queue in self._waiting

    def wake(self, queue: str, most: int) -> list[Waiting]:
        """Takes the callers to answer, in order of arrival: at most `most`, one per message."""
        waiting = self._waiting.get(queue)
        if waiting is None:
            return []
        woken = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        if not waiting:
            del self._waiting[queue]
        return woken

    def overdue(self, now: int) -> list[object]:
        """Takes the callers with an expired wait."""
        late: list[object] = []
        for queue in list(self._waiting):
            waiting = self._waiting[queue]
            late += [each.to for each in waiting if each.until <= now]
            kept = deque(each for each in waiting if each.until > now)
            if kept:
                self._waiting[queue] = kept
            else:
                del self._waiting[queue]
        return late

    def cancel(self, to: object) -> bool:
        """Removes the wait of a caller that has gone."""
        for queue, waiting in list(self._waiting.items()):
            for each in waiting:
                if each.to == to:
                    waiting.remove(each)
                    if not waiting:
                        del self._waiting[queue]
                    return True
        return False

    def next_due(self) -> int | None:
        return min((each.until for w in self._waiting.values() for each in w), default=None)

    def forget(self, keeps: set[str]) -> list[object]:
        """Discards lists that other nodes own now; returns the callers that waited at them."""
        gone: list[object] = []
        for queue in [queue for queue in self._announced if queue not in keeps]:
            del self._announced[queue]
        for queue in [queue for queue in self._waiting if queue not in keeps]:
            gone += [each.to for each in self._waiting.pop(queue)]
        return gone


EMPTY: Final = wire.Nodes([])
