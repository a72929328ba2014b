"""The part of a stochastic queue on one node: a bounded buffer, its producers, its measured rate.

Paper 1, section 2: a producer puts objects into its buffer and blocks while the buffer is full; a
consumer probes producers and blocks at the last one. Here each node stands for the producers that
push to it, and its buffer counts the ready messages of the queue on this node.

Invariants:

- A push is admitted if the buffer has room for the whole batch. A batch larger than the bound is
  admitted into an empty buffer, or it could never be stored.
- Room is given in order: a push without a reservation is refused while producers wait.
- A reservation holds the room of one batch, of so many messages at most, for `ROOM_KEPT_US`; a
  producer that does not come by then has given the room up. A reservation is in memory: after a
  crash the producer waits again.

Departures from the paper: nacked, expired and due messages return to the buffer even if the buffer
is full, since they are stored already; so the buffer may hold more than the bound for a while. A
message leaves the buffer when a consumer gets a lease, not when the message is acked.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from weft.errors import QueueFull
from weft.proto import wire
from weft.proto.settings import Settings

#: How long room is kept for a producer that was told of it, in microseconds.
ROOM_KEPT_US: Final = 1_000_000
#: Time constant of the measured production rate, in microseconds: older pushes count for little.
RATE_US: Final = 2_000_000

#: The name of a batch: producer and batch number.
Name = tuple[int, int]


class RoomWait(NamedTuple):
    """A producer that waits for room."""

    name: Name
    messages: int
    since: int
    until: int


class KeptRoom(NamedTuple):
    messages: int
    until: int


class NodeBuffer:
    __slots__ = (
        "_rate", "_rated_at", "blocked_pops", "blocked_us", "empty_probes", "full", "probes",
        "reserved", "room_wait_us", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        #: Waiting producers by caller, in order of arrival; and room kept for batches.
        self.waiting: dict[object, RoomWait] = {}
        self.reserved: dict[Name, KeptRoom] = {}
        self._rate = 0.0
        self._rated_at = 0
        # Counters since the node started:
        self.probes = self.empty_probes = self.blocked_pops = self.blocked_us = 0
        self.full = self.room_wait_us = 0

    # --- producers ------------------------------------------------------------------------

    def admit(self, queue: str, settings: Settings, ready: int, request: wire.Push) -> None:
        """Admits a batch, or raises QueueFull."""
        if self.reserved:
            kept = self.reserved.get((request.producer, request.batch))
            if kept is not None and request.count <= kept.messages:
                del self.reserved[request.producer, request.batch]
                return
        if self.waiting or not self.has_room(settings, ready, request.count):
            self.full += 1
            raise QueueFull(
                f"the buffer of {queue} on this node has {ready} ready messages and keeps room for "
                f"{self.kept} more, of at most {settings.buffers}, with {len(self.waiting)} "
                "producers in line: wait for room, or push to another node"
            )

    @property
    def kept(self) -> int:
        """The messages that room is kept for."""
        return sum(each.messages for each in self.reserved.values())

    def has_room(self, settings: Settings, ready: int, count: int) -> bool:
        used = ready + self.kept
        return not used or used + count <= settings.buffers

    def expire(self, now: int) -> None:
        """Gives up room that was kept for too long."""
        for name in [name for name, each in self.reserved.items() if each.until <= now]:
            del self.reserved[name]

    def next_due(self) -> int | None:
        times = [each.until for each in self.reserved.values()]
        times += [each.until for each in self.waiting.values()]
        return min(times, default=None)

    def produced(self, count: int, now: int) -> None:
        """Counts pushed messages for the measured rate."""
        self._rate = self.decayed(now) + count
        self._rated_at = now

    def rate(self, now: int) -> float:
        """Messages pushed to this node per second."""
        return self.decayed(now) * 1_000_000 / RATE_US

    def decayed(self, now: int) -> float:
        return self._rate * math.exp((self._rated_at - now) / RATE_US)

    # --- consumers ------------------------------------------------------------------------

    def probed(self, *, found: bool, waits: bool) -> None:
        self.probes += 1
        self.empty_probes += not found
        self.blocked_pops += waits and not found

    def report(self, settings: Settings, now: int) -> wire.ProbeReport:
        return wire.ProbeReport(round(self.rate(now), 3), settings.max_hops, settings.access)
