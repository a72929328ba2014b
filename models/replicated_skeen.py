"""Skeen's algorithm over replicated logs, as multicasts to ordered queues run it, in virtual time.

`skeen` simulates the paper's processes, which do not fail and remember without a write. Weft's
destinations are replicated partitions, one on each node here. This simulator has the differences,
so that the product can be set beside it under the same transit times:

| step of algorithm 1       | here                                                                |
|---------------------------|---------------------------------------------------------------------|
| m goes to all             | to the coordinator in no time. The coordinator stamps m at once and |
|                           | proposes m to the others: one message for each                      |
| a timestamp is sent       | when committed: an entry to the follower, and the reply             |
| the number is sent to all | the coordinator takes the number at once. The others get it from    |
|                           | the coordinator's outbox, when the decision is committed            |
| m is delivered            | as in algorithm 1, or in the generic variant                        |

The outbox of a coordinator has one round of requests under way: it reads everything that is
decided, waits for the commit, sends one request to each destination, waits for all answers, which
wait for commits as well, and deletes in one more entry what was taken.

A connection keeps the order of messages. Everything that a node sends to another one at one time is
one frame, with one transit time.

The convoy effect is, as in `skeen`, the time from the sequence number at a destination to the
delivery there. Waiting for the outbox is not a part of it: it is there for messages that commute,
too, and `base_ms` has it. At constant transit times and one message at a time, the base is four of
them at the coordinator and seven at every other destination (`lone_ms`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from weft.errors import InvalidArgument

from .skeen import MESSAGES_MAX, MulticastModel, MulticastRun, SkeenSimulation

_Act = Callable[[int], None]

#: Transit times from the multicast to the number, at the coordinator and at another destination.
_COORDINATOR_STEPS = 4
_DESTINATION_STEPS = 7


def simulate_replicated(
    model: MulticastModel,
    messages: int = 2_000,
    *,
    seed: int = 1,
    followers: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> MulticastRun:
    """Multicasts the messages and runs until all are delivered. `followers`: where the second copy
    of each process is; without it, at the next process."""
    if not 1 <= messages <= MESSAGES_MAX:
        raise InvalidArgument(f"messages must be 1 to {MESSAGES_MAX}, not {messages}")
    if model.processes < 2 or model.destinations < 2:
        raise InvalidArgument("replicated processes and destinations must be 2 or more")
    if not model.coordinator:
        raise InvalidArgument("replicated destinations have a coordinator")
    count = model.processes
    ring = [(at + 1) % count for at in range(count)]
    followers = ring if followers is None else followers
    if len(followers) != count or any(
        not 0 <= each < count or each == at for at, each in enumerate(followers)
    ):
        raise InvalidArgument(f"followers are {count} processes, each of another one")
    return _ReplicatedSimulation(model, messages, seed, followers).run(
        progress or (lambda done: None)
    )


def lone_ms(model: MulticastModel) -> float:
    """The mean latency of one message at a time, with constant transit times."""
    steps = _COORDINATOR_STEPS + (model.destinations - 1) * _DESTINATION_STEPS
    return steps * model.delay_ms / model.destinations


class Connections:
    """The connections between nodes: each keeps the order, and has one frame for each time."""

    def __init__(self, transit_us: Callable[[], int]) -> None:
        self._transit_us = transit_us
        #: (sender, receiver) -> when the last frame was sent, and when it arrives.
        self._last: dict[tuple[int, int], tuple[int, int]] = {}

    def arrival(self, now: int, sender: int, receiver: int) -> int:
        """When a message of now arrives."""
        sent, arrives = self._last.get((sender, receiver), (-1, 0))
        if sent != now:
            arrives = max(arrives, now + self._transit_us())
            self._last[sender, receiver] = now, arrives
        return arrives


class _ReplicatedLog:
    """The log of a process, and what waits for commits."""

    def __init__(self) -> None:
        self.end = self.committed = 0
        self.waiting: deque[tuple[int, _Act]] = deque()


class _Outbox:
    """Decided messages of a coordinator, for the other destinations."""

    def __init__(self) -> None:
        self.busy = False
        #: Destination -> (message, number), not sent yet.
        self.decided: dict[int, list[tuple[int, int]]] = {}
        #: Destinations that have not answered.
        self.unanswered = 0


class _ReplicatedSimulation(SkeenSimulation):
    def __init__(
        self, model: MulticastModel, messages: int, seed: int, followers: Sequence[int]
    ) -> None:
        super().__init__(model, messages, seed)
        self._followers = followers
        self._logs = [_ReplicatedLog() for _ in range(model.processes)]
        self._outboxes = [_Outbox() for _ in range(model.processes)]
        self._connections = Connections(self._transit_us)
        self._due: list[tuple[int, int, _Act]] = []

    def run(self, progress: Callable[[int], None]) -> MulticastRun:
        every = max(1, len(self.messages) // 100)
        for number, message in enumerate(self.messages):
            while self._due and self._due[0][0] <= message.sent:
                self._step()
            self._multicast(message.sent, number)
            if not number % every:
                progress(number)
        while self._due:
            self._step()
        progress(len(self.messages))
        return self._result()

    def _step(self) -> None:
        now, _, act = heapq.heappop(self._due)
        act(now)

    def _transit_us(self) -> int:
        if self.model.delays == "constant":
            return self.delay_us
        return round(self.random.expovariate(1.0) * self.delay_us)

    def _transmit(self, now: int, sender: int, receiver: int, act: _Act) -> None:
        self.serial += 1
        arrives = self._connections.arrival(now, sender, receiver)
        heapq.heappush(self._due, (arrives, self.serial, act))

    # --- the replicated log -------------------------------------------------------------------

    def _append(self, now: int, at: int) -> None:
        """An entry to the follower, which replies."""
        log, follower = self._logs[at], self._followers[at]
        log.end += 1
        end = log.end

        def reply(then: int) -> None:
            self._transmit(then, follower, at, lambda later: self._commit(later, at, end))

        self._transmit(now, at, follower, reply)

    def _commit(self, now: int, at: int, end: int) -> None:
        log = self._logs[at]
        log.committed = max(log.committed, end)
        while log.waiting and log.waiting[0][0] <= log.committed:
            log.waiting.popleft()[1](now)

    def _when_committed(self, now: int, at: int, act: _Act) -> None:
        """Acts when everything in the log is committed."""
        log = self._logs[at]
        if log.committed >= log.end:
            act(now)
        else:
            log.waiting.append((log.end, act))

    # --- propose and decide -------------------------------------------------------------------

    def _multicast(self, now: int, message: int) -> None:
        coordinator, *others = self.messages[message].destinations
        self._propose(message, coordinator, now)
        for other in others:
            self._transmit(now, coordinator, other, partial(self._propose, message, other))

    def _propose(self, message: int, at: int, now: int) -> None:
        stamp = self._stamp(now, message, at)
        self._append(now, at)
        coordinator = self.messages[message].destinations[0]

        def proposed(then: int) -> None:
            self._collect(then, message, coordinator, stamp)

        def committed(then: int) -> None:
            if at == coordinator:
                proposed(then)
            else:
                self._transmit(then, at, coordinator, proposed)

        self._when_committed(now, at, committed)

    def _collect(self, now: int, message: int, at: int, stamp: int) -> None:
        stamps = self.collected.setdefault((message, at), [])
        stamps.append(stamp)
        others = self.messages[message].destinations[1:]
        if len(stamps) <= len(others):
            return
        number = max(self.collected.pop((message, at)))
        self._assign_number(now, message, at, number)
        self._append(now, at)
        outbox = self._outboxes[at]
        for other in others:
            outbox.decided.setdefault(other, []).append((message, number))
        if not outbox.busy:
            self._read(now, at)

    # --- the outbox ---------------------------------------------------------------------------

    def _read(self, now: int, at: int) -> None:
        outbox = self._outboxes[at]
        outbox.busy = True
        page, outbox.decided = outbox.decided, {}
        outbox.unanswered = len(page)

        def committed(then: int) -> None:
            for other, decided in page.items():
                self._transmit(then, at, other, partial(self._take, at, other, decided))

        self._when_committed(now, at, committed)

    def _take(self, source: int, at: int, decided: list[tuple[int, int]], now: int) -> None:
        for message, number in decided:
            self._assign_number(now, message, at, number)
        self._append(now, at)

        def committed(then: int) -> None:
            self._transmit(then, at, source, partial(self._taken, source))

        self._when_committed(now, at, committed)

    def _taken(self, at: int, now: int) -> None:
        outbox = self._outboxes[at]
        outbox.unanswered -= 1
        if outbox.unanswered:
            return
        self._append(now, at)
        outbox.busy = False
        if outbox.decided:
            self._read(now, at)
