"""Metadata lists: which nodes have messages of a queue ready (paper 4, section 4.2.2).

A queue's list is kept by the primary of the partition of the queue's name. It is soft state: every
node says what it has when a queue of its own rises from nothing, and again once in a while; what is
not said again is forgotten. So a lost word, or a new keeper with an empty list, heals by itself.
A caller who finds no node waits here, and is answered when one has something.

That a node has nothing left may also come from who was there, with what the node itself told him:
up to which of its words that is so (`fallen`). What it says later has a greater number and counts,
so a fall that is heard of late never hides a rise. The number that is known is not raised by that:
a caller who lies is found out by the node's next word.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from weft.proto import wire

#: What was not said again for so long is not believed, in microseconds.
STALE_US: Final = 3_000_000
#: How often a node says again what it has.
AGAIN_US: Final = 1_000_000


class Word(NamedTuple):
    """What one node said of one queue."""

    boot: int
    number: int
    ready: int
    heard: int


class Waiting(NamedTuple):
    to: object
    until: int


class Stock:
    """The lists that this node keeps, and who waits at them."""

    def __init__(self) -> None:
        self._words: dict[str, dict[str, Word]] = {}  # queue -> node -> word
        self._waiting: dict[str, deque[Waiting]] = {}

    def hear(self, node: str, boot: int, number: int, ready: dict[str, int], now: int) -> list[str]:
        """What a node says; the queues of which it has something."""
        risen: list[str] = []
        for queue, count in ready.items():
            known = self._words.setdefault(queue, {})
            before = known.get(node)
            if before is not None and (before.boot, before.number) >= (boot, number):
                continue
            known[node] = Word(boot, number, count, now)
            if count:
                risen.append(queue)
        return risen

    def fallen(self, queue: str, seen: dict[str, tuple[int, int]]) -> None:
        """Nodes that had nothing left, each after its word of (boot, number)."""
        known = self._words.get(queue, {})
        for node, last in seen.items():
            word = known.get(node)
            if word is not None and (word.boot, word.number) <= last:
                known[node] = word._replace(ready=0)

    def nodes(self, queue: str, now: int) -> list[tuple[str, int]]:
        """(node, messages) of those that have some, most first."""
        known = self._words.get(queue)
        if known is None:
            return []
        for node in [n for n, word in known.items() if now - word.heard > STALE_US]:
            del known[node]
        if not known:
            del self._words[queue]
        have = [(node, word.ready) for node, word in known.items() if word.ready]
        return sorted(have, key=lambda each: -each[1])

    def wait(self, queue: str, to: object, until: int) -> None:
        self._waiting.setdefault(queue, deque()).append(Waiting(to, until))

    @property
    def awaited(self) -> bool:
        """Whether anybody waits at any list."""
        return bool(self._waiting)

    def is_awaited(self, queue: str) -> bool:
        return queue in self._waiting

    def wake(self, queue: str, most: int) -> list[object]:
        """Whom to answer, in the order in which they came: not more than there are messages."""
        waiting = self._waiting.get(queue)
        if waiting is None:
            return []
        woken = [waiting.popleft().to for _ in range(min(most, len(waiting)))]
        if not waiting:
            del self._waiting[queue]
        return woken

    def overdue(self, now: int) -> list[object]:
        """Those whose time is over."""
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
        """The caller has gone."""
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
        """Lists that another node keeps now; who waited at them."""
        gone: list[object] = []
        for queue in [queue for queue in self._words if queue not in keeps]:
            del self._words[queue]
        for queue in [queue for queue in self._waiting if queue not in keeps]:
            gone += [each.to for each in self._waiting.pop(queue)]
        return gone


EMPTY: Final = wire.Nodes([])
