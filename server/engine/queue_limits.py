"""Rate limit and concurrency limit of a queue, as this node's part of a limit on the cluster.

`rate_limit` bounds the messages per second that pops get, and `max_in_flight` the messages leased
at once. No node knows what the others have lent, so each node has a part in proportion to the
partitions that it leads:

- The parts of a rate are fractions. A node saves at most a tenth of a second of its part, but one
  message at least: in any second pops get at most 1.1 times the limit, and one message per node.
- The parts of `max_in_flight` are whole messages and add up to the limit exactly: with the nodes in
  the order of the view, a node that leads partitions a to b of P (counted, not numbered) has
  floor(b L / P) - floor(a L / P). Rounded up, a limit of 1 would become 3 on three nodes.
- If this leaves nothing for a node with partitions, its messages would never be delivered. So the
  nodes then take turns: every `TURN_US` the division starts at another partition. The parts add up
  to the limit in each turn, but messages leased in the turn before may still be in flight. A queue
  with so small a limit is refused when it is created (`core/catalogue_operations`); turns are only
  for a cluster that has changed since.

An ordered queue is on one partition, and its primary has the whole limit. Recovered leases of
ordered and grouped queues, and of queues with `keep_leases`, count. Leases of other queues end with
a crash of their node and do not count afterwards. Kept leases move with their partitions: a node
may then have more than its part while the others use theirs, so the limit may be exceeded until
these leases end. Subscriptions and stages are not limited: they reserve messages, they do not pop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .queue import QueueState
    from .state import EngineState

#: The length of a turn, in microseconds: longer than most messages take.
TURN_US: Final = 10_000_000
#: A node saves this part of a second of its rate.
SAVED_S: Final = 0.1
#: A queue becomes ready again for this part of a second of its rate at once, and for one message at
#: least: otherwise a fast queue would be woken for each message.
WOKEN_S: Final = 0.01
_SECOND_US: Final = 1_000_000


class ClusterPart:
    """The part of this node in the cluster, by the number of partitions led."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._partitions = state.partitions
        #: The partitions led by each node of the view, in one order on all nodes, and the place of
        #: this node. Without other nodes this node leads all.
        self._leads = [state.partitions]
        self._place = 0

    @property
    def now(self) -> int:
        return self._state.now

    def divide(self, leads: list[int], place: int) -> None:
        """The view has changed: `leads` by node, and this node's place in the list."""
        self._leads, self._place = leads, place
        for queue in self._state.queues.values():
            if queue.limits is not None:
                self._state.ready_queues[queue.id] = queue  # the part may be larger

    def fraction(self) -> float:
        return self._leads[self._place] / self._partitions

    def whole(self, limit: int, turn: int = 0) -> int:
        """This node's part of a limit in whole messages."""
        return self._whole(self._place, limit, turn)

    def takes_turns(self, limit: int) -> bool:
        """True if some node with partitions would have no part of a limit."""
        return any(
            led and not self._whole(place, limit, 0) for place, led in enumerate(self._leads)
        )

    def _whole(self, place: int, limit: int, turn: int) -> int:
        first = sum(self._leads[:place]) + turn % self._partitions
        last = first + self._leads[place]
        return last * limit // self._partitions - first * limit // self._partitions


class QueueLimits:
    def __init__(self, part: ClusterPart) -> None:
        self._part = part
        #: Messages that the rate admits now, as of `_filled_at`.
        self._saved = 1.0
        self._filled_at = part.now

    def allowance(self, queue: QueueState) -> int:
        """The messages that pops may get now."""
        settings = queue.settings
        most = 1 << 62
        if settings.max_in_flight:
            most = self._in_flight_max(queue) - queue.leased
        if settings.rate_limit and most > 0:
            most = min(most, int(self._fill(queue)))
        return max(0, most)

    def take(self, queue: QueueState, messages: int) -> None:
        """Counts messages that a pop gets."""
        if queue.settings.rate_limit:
            self._fill(queue)
            self._saved -= messages

    def next_us(self, queue: QueueState) -> int | None:
        """The time at which pops may get more without an event; None: only after an ack, or now."""
        settings, now = queue.settings, self._part.now
        due = None
        if settings.rate_limit and (rate := self._rate(queue)) > 0:
            wanted = max(1.0, rate * WOKEN_S) - self._fill(queue)
            if wanted > 0:
                due = now + int(wanted / rate * _SECOND_US) + 1
        if settings.max_in_flight and self._takes_turns(queue):
            turn = (now // TURN_US + 1) * TURN_US
            due = turn if due is None else min(due, turn)
        return due

    def _rate(self, queue: QueueState) -> float:
        fraction = 1.0 if queue.settings.ordered else self._part.fraction()
        return queue.settings.rate_limit * fraction

    def _fill(self, queue: QueueState) -> float:
        rate, now = self._rate(queue), self._part.now
        saved = self._saved + rate * (now - self._filled_at) / _SECOND_US
        self._saved, self._filled_at = min(saved, max(1.0, rate * SAVED_S)), now
        return self._saved if rate else 0.0

    def _takes_turns(self, queue: QueueState) -> bool:
        ordered = queue.settings.ordered
        return not ordered and self._part.takes_turns(queue.settings.max_in_flight)

    def _in_flight_max(self, queue: QueueState) -> int:
        limit = queue.settings.max_in_flight
        if queue.settings.ordered:
            return limit
        turn = self._part.now // TURN_US if self._part.takes_turns(limit) else 0
        return self._part.whole(limit, turn)
