"""A checker of message groups, fed with the observations of producers and consumers.

The producer numbers the messages of each group from 0 and pushes the next ones only when the
earlier ones are acknowledged. The checker finds:

- *overtaken*: a message was delivered although an older message of its group was neither settled
  nor delivered before it in the same answer;
- *shared*: a group was delivered to a consumer while another delivery of the group was unsettled
  and its lease certainly still ran;
- *redelivered*: a message was delivered after its ack was confirmed.

Times are in seconds of one clock. A lease counts from the moment before its pop was sent, so the
checker never believes in a lease that may have ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

#: A group and a number in the group.
Numbered = tuple[str, int]


def body(group: str, number: int) -> bytes:
    return f"{group}/{number}".encode()


def parse(text: bytes) -> Numbered:
    group, _, number = text.decode().rpartition("/")
    return group, int(number)


@dataclass
class _Lot:
    """The messages of one group in one answer that their consumer has not settled."""

    until: float
    numbers: set[int] = field(default_factory=set)


class GroupOrder:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self.delivered = 0
        self._lots: defaultdict[str, list[_Lot]] = defaultdict(list)
        #: The first number of a group whose ack was never tried, and later acked numbers.
        self._next: defaultdict[str, int] = defaultdict(int)
        self._tried: defaultdict[str, set[int]] = defaultdict(set)
        self._acked: set[Numbered] = set()
        #: Messages whose ack got no answer before the lease was lost: settled, or delivered again.
        self._in_doubt: set[Numbered] = set()

    def deliver(self, now: float, until: float, messages: Sequence[Numbered]) -> None:
        """One answer of a pop, in its order; `until` is the earliest end of the leases."""
        new: dict[str, _Lot] = {}
        for group, number in messages:
            self.delivered += 1
            for lot in self._lots[group]:
                if lot.numbers and lot.until > now:
                    self._report(f"shared: {group}/{number}, while {sorted(lot.numbers)} is leased")
            if (group, number) in self._acked:
                self._report(f"redelivered: {group}/{number} after its ack")
            mine = new.setdefault(group, _Lot(until))
            older = set(range(self._next[group], number)) - self._tried[group] - mine.numbers
            if older:
                self._report(f"overtaken: {group}/{number} before {sorted(older)[:5]}")
            mine.numbers.add(number)
        for group, lot in new.items():
            self._lots[group] = [each for each in self._lots[group] if each.until > now]
            self._lots[group].append(lot)

    def settle(self, message: Numbered) -> None:
        """The consumer is about to return a message, or gives it up: it works on it no more."""
        group, number = message
        for lot in self._lots[group]:
            lot.numbers.discard(number)

    def try_ack(self, message: Numbered) -> None:
        """The consumer is about to ack a message: from here on, newer messages may follow."""
        group, number = message
        self.settle(message)
        if number < self._next[group]:
            return
        tried = self._tried[group]
        tried.add(number)
        while self._next[group] in tried:
            tried.remove(self._next[group])
            self._next[group] += 1

    def confirm_ack(self, message: Numbered) -> None:
        self._acked.add(message)

    def doubt_ack(self, message: Numbered) -> None:
        self._in_doubt.add(message)

    @property
    def acked(self) -> int:
        """Messages whose ack was confirmed."""
        return len(self._acked)

    @property
    def settled(self) -> int:
        """Messages whose ack was confirmed, or may have been executed by a node that failed."""
        return len(self._acked | self._in_doubt)

    def _report(self, text: str) -> None:
        self.violations.append(text)
