"""Channels between partitions, as a node holds them in memory; ``outbox`` has their rules."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class ChannelMark(msgspec.Struct, array_like=True, frozen=True):
    """The stored form of a mark."""

    channel: int
    number: int


class OutboxEntry(NamedTuple):
    """A delivery in memory; its effects stay in the store."""

    size: int
    queues: frozenset[int]
    #: The multicasts that it decides.
    tokens: frozenset[int] = frozenset()


class SourceOutbox:
    """The undelivered effects of one source partition."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        #: By destination and number, in order.
        self.deliveries: dict[int, dict[int, OutboxEntry]] = {}
        #: The last number that a destination is known to have taken.
        self.taken: dict[int, int] = {}
        #: Destinations that cannot take deliveries now; pages leave them out.
        self.refusing: set[int] = set()
        self.count = self.bytes = 0

    def enter(self, destination: int, number: int, delivery: OutboxEntry) -> None:
        self.deliveries.setdefault(destination, {})[number] = delivery
        self.count += 1
        self.bytes += delivery.size

    def close(self, destination: int, number: int) -> list[int]:
        """Removes the deliveries up to a number; returns their numbers."""
        waiting = self.deliveries.get(destination, {})
        closed = [each for each in waiting if each <= number]
        for each in closed:
            self.bytes -= waiting.pop(each).size
        self.count -= len(closed)
        if not waiting:
            self.deliveries.pop(destination, None)
        self.taken[destination] = max(number, self.taken.get(destination, 0))
        return closed


class Channels:
    def __init__(self) -> None:
        #: The undelivered effects of commits, by source partition.
        self.outboxes: dict[int, SourceOutbox] = {}
        #: The last deliveries taken, by (partition, source).
        self.marks: dict[tuple[int, int], ChannelMark] = {}
        #: Messages and table writes of commits that found their queue deleted, or had no room.
        self.dropped = 0
        #: This node is its whole cluster, so one write has a round's changes of all partitions.
        self.alone = False
        #: No live member is known to have a version without commits.
        self.peers_know_commits = True
