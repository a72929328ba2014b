"""A reference model of the queue: a dict of messages, each with a state.

No batches, handles, heaps, masks or files. The model is slow and obvious, and gives for every
request the answer that the engine must give. Messages of a queue are delivered in the order of
(priority, push, index in the batch); a returned message keeps its place. The caller passes the time
in.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass, field
from typing import Final

READY: Final = "ready"
DELAYED: Final = "delayed"
LEASED: Final = "leased"


@dataclass
class Thing:
    """One message."""

    body: bytes
    queue: str
    #: Position in the queue: (-priority, number of the push, index).
    order: tuple[int, int, int]
    state: str = READY
    due: int = 0
    #: The lease of the message, and when the lease ends.
    lease: int = 0
    until: int = 0
    deliveries: int = 0
    #: True if the application has the message: then an expired lease counts; and how often one did.
    handed: bool = True
    crashes: int = 0
    origin: str = ""
    reason: str = ""


@dataclass
class ModelQueue:
    lease_ms: int
    max_deliveries: int
    dead_letter: str
    pushes: dict[tuple[int, int], int] = field(default_factory=dict)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)


class Model:
    def __init__(self) -> None:
        self.queues: dict[str, ModelQueue] = {}
        self.things: dict[bytes, Thing] = {}
        self.pushes = 0
        self.leases = 0

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def of(self, queue: str, state: str) -> list[Thing]:
        found = [t for t in self.things.values() if t.queue == queue and t.state == state]
        return sorted(found, key=lambda thing: thing.order)

    def counts(self, queue: str) -> tuple[int, int, int]:
        ready, leased, delayed = (len(self.of(queue, s)) for s in (READY, LEASED, DELAYED))
        return ready, leased, delayed

    def create(
        self, queue: str, lease_ms: int, max_deliveries: int = 0, dead_letter: str = ""
    ) -> None:
        self.queues[queue] = ModelQueue(lease_ms, max_deliveries, dead_letter)
        if dead_letter and dead_letter not in self.queues:
            self.queues[dead_letter] = ModelQueue(30_000, 0, "")

    def push(
        self, now: int, queue: str, name: tuple[int, int], bodies: list[bytes], *,
        delay_us: int = 0, priority: int = 0, key: str | None = None,
    ) -> bool:  # fmt: skip
        """True if the push is new."""
        known = self.queues[queue]
        if name in known.pushes or (key is not None and key in known.keys):
            return False
        known.pushes[name] = len(bodies)
        if key is not None:
            known.keys[key] = name
        self.pushes += 1
        for index, body in enumerate(bodies):
            state = DELAYED if delay_us else READY
            order = -priority, self.pushes, index
            self.things[body] = Thing(body, queue, order, state, now + delay_us)
        return True

    def pop(
        self, now: int, queue: str, limit: int, lease_ms: int = 0, *, prefetch: bool = False
    ) -> list[Thing]:
        taken: list[Thing] = []
        for thing in self.of(queue, READY):
            if thing.crashes:
                limit = min(limit, self._lot_max(thing))
            if len(taken) >= limit:
                break
            taken.append(thing)
        for thing in taken:
            thing.handed = not prefetch
            self.leases += 1
            thing.state, thing.lease = LEASED, self.leases
            thing.until = now + (lease_ms or self.queues[queue].lease_ms) * 1000
        return taken

    def _lot_max(self, thing: Thing) -> int:
        """A message that a worker was lost with is lent together with ever fewer others."""
        most = self.queues[thing.queue].max_deliveries
        left = max(0, most - thing.deliveries - 1)
        return int(8**left) if most else sys.maxsize

    def holds(self, body: bytes, lease: int) -> bool:
        thing = self.things.get(body)
        return thing is not None and thing.state == LEASED and thing.lease == lease

    def ack(self, body: bytes, lease: int) -> bool:
        held = self.holds(body, lease)
        if held:
            del self.things[body]
        return held

    def nack(
        self, now: int, body: bytes, lease: int, *, delay_us: int = 0, reason: str = "",
        counted: bool = True,
    ) -> bool:  # fmt: skip
        held = self.holds(body, lease)
        if held:
            why = f"nacked: {reason}" if reason else "nacked"
            self._back(self.things[body], now + delay_us if delay_us else 0, why, counted)
        return held

    def hand_out(self, body: bytes, lease: int) -> None:
        if self.holds(body, lease):
            self.things[body].handed = True

    def extend(self, now: int, bodies: list[bytes], lease_ms: int) -> None:
        for body in bodies:
            self.things[body].until = now + lease_ms * 1000

    def cancel(self, queue: str, body: bytes) -> int | str:
        """How many messages were removed, or the code of the refusal."""
        thing = self.things.get(body)
        if thing is None or thing.queue != queue:
            return 0
        if thing.state == LEASED:
            return "MESSAGE_LEASED"
        del self.things[body]
        return 1

    def tick(self, now: int) -> None:
        """Apply the expiries and due times up to `now`."""
        for thing in self.things.values():
            if thing.state == LEASED and thing.until <= now:
                thing.crashes += thing.handed
                self._back(thing, 0, "lease expired", thing.handed)
        for thing in self.things.values():
            if thing.state == DELAYED and thing.due <= now:
                thing.state = READY

    def purge(self, queue: str) -> int:
        dead = [body for body, thing in self.things.items() if thing.queue == queue]
        for body in dead:
            del self.things[body]
        return len(dead)

    def delete(self, queue: str) -> int:
        del self.queues[queue]
        return self.purge(queue)

    def redrive(self, queue: str, limit: int) -> int:
        movable = [thing for thing in self.of(queue, READY) if thing.origin in self.queues]
        for thing in movable[: limit or None]:
            thing.queue, thing.origin, thing.reason = thing.origin, "", ""
            thing.deliveries = thing.crashes = 0
        return len(movable[: limit or None])

    def restart(self) -> None:
        """Leases are void, and their deliveries are not counted."""
        for thing in self.things.values():
            if thing.state == LEASED:
                thing.state = READY

    def _back(self, thing: Thing, due: int, why: str, counted: bool) -> None:
        queue = self.queues[thing.queue]
        thing.deliveries += counted
        thing.state, thing.due = (DELAYED, due) if due else (READY, 0)
        if counted and queue.max_deliveries and thing.deliveries >= queue.max_deliveries:
            thing.reason = f"{thing.deliveries} deliveries, the last one {why}"
            thing.origin, thing.queue = thing.queue, queue.dead_letter
            thing.state, thing.deliveries, thing.crashes = READY, 0, 0
