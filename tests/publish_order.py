"""A checker of multicasts and topics, fed with the observations of publishers and consumers.

Every message has a body of its own, and the publisher names the queues that must get it. The
checker finds:

- *lost*: a confirmed message is missing in one of its queues;
- *partial*: a message whose push got no answer is in some of its queues only;
- *misrouted*: a message is in a queue that its publisher did not name;
- *doubled*: a message is in a queue under two ids;
- *redelivered*: a message was delivered after its ack was confirmed;
- *order*: an ordered queue, or a group, first delivered a message after a later one of the same
  publisher, which pushes the next message only when the one before is confirmed;
- *cycles*: two queues first delivered two messages of one group in different orders, or the first
  deliveries of conflicting multicasts to several ordered queues have a cycle.

A multicast to ordered queues on several partitions is confirmed before its last queue lists it. So
the publisher's next message may come before it, unless both go to the same queues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise


@dataclass(frozen=True)
class Published:
    """One message: `number` counts the messages of its publisher."""

    publisher: str
    number: int
    queues: tuple[str, ...]
    #: The conflict key; None without one.
    group: str | None = None
    #: Several partitions agree about the message.
    agreed: bool = False


class PublishOrder:
    def __init__(self, ordered: Iterable[str], grouped: Iterable[str]) -> None:
        self._ordered = frozenset(ordered)
        self._grouped = tuple(grouped)
        self.violations: defaultdict[str, list[str]] = defaultdict(list)
        self.deliveries = 0
        self._published: dict[str, Published] = {}
        self._confirmed: set[str] = set()
        #: queue -> body -> ids, in the order of the first deliveries.
        self._seen: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)
        self._acked: set[tuple[str, str]] = set()

    @property
    def confirmed(self) -> int:
        return len(self._confirmed)

    def attempt(self, body: str, message: Published) -> None:
        """Before the push."""
        assert body not in self._published, f"the body {body} is not of one message"
        self._published[body] = message

    def confirm(self, body: str) -> None:
        self._confirmed.add(body)

    def deliver(self, queue: str, body: str, message_id: str) -> None:
        self.deliveries += 1
        ids = self._seen[queue].setdefault(body, set())
        ids.add(message_id)
        if len(ids) == 2:
            self._report("doubled", f"{body} in {queue} as {', '.join(sorted(ids))}")
        if (queue, body) in self._acked:
            self._report("redelivered", f"{body} in {queue} after its ack")

    def confirm_ack(self, queue: str, body: str) -> None:
        self._acked.add((queue, body))

    def finish(self) -> dict[str, list[str]]:
        """When all queues are empty: returns all violations, by name."""
        for body, message in self._published.items():
            self._check_places(body, message)
        for queue in self._ordered:
            self._check_order(queue, [*self._seen[queue]])
        self._check_agreed()
        groups = {each.group for each in self._published.values()} - {None}
        for group in groups:
            by_queue = {
                queue: [body for body in self._seen[queue] if self._group_of(body) == group]
                for queue in self._grouped
            }
            for queue, bodies in by_queue.items():
                self._check_order(queue, bodies)
            for one, other in combinations(by_queue, 2):
                self._check_same(f"{one}, {other}", by_queue[one], by_queue[other])
        return dict(self.violations)

    def _check_places(self, body: str, message: Published) -> None:
        wanted = set(message.queues)
        found = {queue for queue, bodies in self._seen.items() if body in bodies}
        missing = ", ".join(sorted(wanted - found))
        if missing and body in self._confirmed:
            self._report("lost", f"{body} is not in {missing}")
        elif missing and found:
            self._report("partial", f"{body} is in {', '.join(sorted(found))}, not in {missing}")
        if extra := found - wanted:
            self._report("misrouted", f"{body} is in {', '.join(sorted(extra))}")

    def _check_order(self, queue: str, bodies: Sequence[str]) -> None:
        """A push in doubt may have been executed late, after the next one: it has no place."""
        by_publisher: defaultdict[str, list[int]] = defaultdict(list)
        for body in bodies:
            message = self._published[body]
            if body in self._confirmed and not message.agreed:
                by_publisher[message.publisher].append(message.number)
        for publisher, numbers in by_publisher.items():
            for before, after in pairwise(numbers):
                if after < before:
                    self._report("order", f"{publisher}/{after} after {before} in {queue}")

    def _check_agreed(self) -> None:
        """Multicasts conflict if their keys are equal, or one has no key."""
        after: dict[str, set[str]] = {}
        for queue in (*self._ordered, *self._grouped):
            without_key = ""
            last: dict[str, str] = {}  # by key, since the last message without a key
            for body in self._seen[queue]:
                message = self._published.get(body)
                if message is None or not message.agreed:
                    continue
                before = {without_key} if without_key else set()
                if message.group is None:
                    before |= set(last.values())
                    without_key, last = body, {}
                else:
                    if message.group in last:
                        before.add(last[message.group])
                    last[message.group] = body
                after.setdefault(body, set()).update(before)
        try:
            TopologicalSorter(after).prepare()
        except CycleError as error:
            self._report("cycles", f"first deliveries: {' < '.join(error.args[1])}")

    def _check_same(self, queues: str, one: Sequence[str], other: Sequence[str]) -> None:
        both = set(one) & set(other)
        first = [body for body in one if body in both]
        second = [body for body in other if body in both]
        for left, right in zip(first, second, strict=True):
            if left != right:
                self._report("cycles", f"{left} and {right} in different orders in {queues}")
                return

    def _group_of(self, body: str) -> str | None:
        message = self._published.get(body)
        return message.group if message is not None else None

    def _report(self, what: str, text: str) -> None:
        self.violations[what].append(text)
