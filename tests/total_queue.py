"""A checker in the style of Jepsen's total-queue: every pushed message is delivered, and how often.

A test records its actions and observations in a `History`: pushes attempted and acknowledged,
messages delivered, acks attempted, confirmed or refused, and everything that allows a second
delivery (a nack, a lease that ends, a restart). `check` reads the whole history and gives a
`Verdict`:

- *lost*: acknowledged, and never delivered.
- *vanished*: delivered, never possibly acked, and not there when the queue was drained.
- *unexpected*: delivered, and never pushed.
- *redelivered*: delivered again after its ack was confirmed.
- *duplicated*: delivered again while the lease before it was still valid.
- *doubled*: delivered under two ids, so one push was stored twice.

The history must end with a drain: pop and ack until the queue is empty. A message is identified by
its name, any text that is unique in the test (its body, say). An indeterminate push or ack (a
crash, a timeout) is an attempt without a confirmation: both outcomes are right.

Times are seconds of one clock that all writers share (the default, `time.monotonic`, is the same in
all processes of a Linux machine). A delivery is observed later than the lease begins; where the
difference matters (real processes, prefetching consumers) give `began`, the time at which the pop
was sent: then only certain violations are reported. Histories of several processes are saved and
joined by `load`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

#: Examples of each violation in a report.
EXAMPLES_MAX: Final = 5


class Kind(StrEnum):
    """The kind of an event. Values are short, because histories of processes are files."""

    ATTEMPTED = "push"
    ACKNOWLEDGED = "pushed"
    DELIVERED = "delivered"
    ACK_ATTEMPTED = "ack"
    ACK_CONFIRMED = "acked"
    ACK_REFUSED = "refused"
    NACKED = "nack"
    EXTENDED = "extended"
    RESTARTED = "restarted"


class Event(msgspec.Struct, frozen=True, array_like=True):
    at: float
    kind: Kind
    name: str = ""
    #: The message id of the delivery; "" if the test does not check ids.
    id: str = ""
    #: The earliest possible beginning of this delivery's lease.
    began: float | None = None
    #: The duration of the lease, from its delivery or its extension; None for "until released".
    lease_s: float | None = None

    @property
    def since(self) -> float:
        return self.at if self.began is None else self.began


class History:
    """The actions and observations of a test, in order.

    Threads may share one: a call is one append.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.events: list[Event] = []

    def attempted(self, *names: str) -> None:
        """Pushes that are about to be sent, or resent."""
        self._note(Kind.ATTEMPTED, names)

    def acknowledged(self, *names: str) -> None:
        """Pushes that the node has acknowledged."""
        self._note(Kind.ACKNOWLEDGED, names)

    def delivered(
        self,
        name: str,
        *,
        id: str = "",
        began: float | None = None,
        lease_s: float | None = None,
    ) -> None:
        """A message that a consumer has received."""
        self.events.append(Event(self._clock(), Kind.DELIVERED, name, id, began, lease_s))

    def ack_attempted(self, *names: str) -> None:
        self._note(Kind.ACK_ATTEMPTED, names)

    def ack_confirmed(self, *names: str) -> None:
        self._note(Kind.ACK_CONFIRMED, names)

    def ack_refused(self, *names: str) -> None:
        """The node has answered that this lease is lost: the ack did nothing."""
        self._note(Kind.ACK_REFUSED, names)

    def nacked(self, *names: str) -> None:
        """Call before the nack is sent: from then on the message may be delivered again."""
        self._note(Kind.NACKED, names)

    def extended(self, name: str, lease_s: float) -> None:
        """A confirmed extension: the lease lasts this long from now."""
        self.events.append(Event(self._clock(), Kind.EXTENDED, name, lease_s=lease_s))

    def restarted(self) -> None:
        """Call before the node is stopped or killed: all leases are void from here."""
        self._note(Kind.RESTARTED, [""])

    def _note(self, kind: Kind, names: Iterable[str]) -> None:
        at = self._clock()
        self.events.extend(Event(at, kind, name) for name in names)

    def save(self, path: Path) -> None:
        path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in self.events))

    @classmethod
    def load(cls, *paths: Path) -> History:
        """The histories of several writers as one, in the order of time."""
        joined = cls()
        decoder = msgspec.json.Decoder(Event)
        for path in paths:
            joined.events.extend(decoder.decode_lines(path.read_bytes()))
        joined.events.sort(key=lambda event: event.at)
        return joined


@dataclass
class Verdict:
    counts: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    redelivered: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)

    def violations(self) -> Iterator[tuple[str, list[str]]]:
        yield "lost", self.lost
        yield "vanished", self.vanished
        yield "unexpected", self.unexpected
        yield "redelivered", self.redelivered
        yield "duplicated", self.duplicated
        yield "doubled", self.doubled

    @property
    def ok(self) -> bool:
        return not any(found for _, found in self.violations())

    def report(self) -> str:
        """The verdict for people: the counts, then each violation with its first examples."""
        lines = ["total queue: " + ("ok" if self.ok else "VIOLATED")]
        lines += [f"  {what:<14}{self.counts[what]:>9}" for what in sorted(self.counts)]
        for what, found in self.violations():
            if found:
                lines.append(f"  {what.upper():<14}{len(found):>9}  first:")
                lines += [f"    {example}" for example in found[:EXAMPLES_MAX]]
        return "\n".join(lines)


class _Message:
    """The state of one message so far."""

    __slots__ = ("acknowledged", "acks_open", "attempted", "confirmed", "deadline", "ids", "last",
                 "released")  # fmt: skip

    def __init__(self) -> None:
        self.attempted = self.acknowledged = False
        #: Acks sent and not refused: each of them may have succeeded.
        self.acks_open = 0
        self.confirmed: float | None = None
        self.last: Event | None = None
        self.deadline: float | None = None
        self.released = False
        self.ids: set[str] = set()


def check(history: History) -> Verdict:
    """Check a whole history, which ends with a drain."""
    events = sorted(history.events, key=lambda event: event.at)
    restarts = [event.at for event in events if event.kind is Kind.RESTARTED]
    messages: dict[str, _Message] = {}
    verdict = Verdict()
    for event in events:
        verdict.counts[event.kind.name.lower()] += 1
        if event.kind is Kind.RESTARTED:
            continue
        message = messages.get(event.name)
        if message is None:
            message = messages[event.name] = _Message()
        if event.kind is Kind.DELIVERED:
            _deliver(verdict, message, event, restarts)
        else:
            _note(message, event)
    _sum_up(verdict, messages)
    return verdict


def _note(message: _Message, event: Event) -> None:
    match event.kind:
        case Kind.ATTEMPTED:
            message.attempted = True
        case Kind.ACKNOWLEDGED:
            message.attempted = message.acknowledged = True
        case Kind.ACK_ATTEMPTED:
            message.acks_open += 1
        case Kind.ACK_CONFIRMED:
            message.acks_open = max(1, message.acks_open)
            if message.confirmed is None:
                message.confirmed = event.at
        case Kind.ACK_REFUSED:
            message.acks_open -= 1
        case Kind.NACKED:
            message.released = True
        case Kind.EXTENDED if event.lease_s is not None:
            message.deadline = event.at + event.lease_s


def _deliver(verdict: Verdict, message: _Message, event: Event, restarts: list[float]) -> None:
    before = message.last
    if message.confirmed is not None:
        if event.began is None or event.began > message.confirmed:
            verdict.redelivered.append(
                f"{event.name}: acked at {message.confirmed:.6f}, delivered at {event.at:.6f}"
            )
    elif before is not None and not _allowed(message, before, event, restarts):
        verdict.duplicated.append(
            f"{event.name}: delivered at {before.at:.6f} and at {event.at:.6f}, "
            "with no nack, expiry or restart between"
        )
    if event.id:
        message.ids.add(event.id)
        if len(message.ids) == 2:
            verdict.doubled.append(f"{event.name}: stored as {' and '.join(sorted(message.ids))}")
    message.last = event
    message.released = False
    message.deadline = None if event.lease_s is None else event.since + event.lease_s


def _allowed(message: _Message, before: Event, event: Event, restarts: list[float]) -> bool:
    """True if an event ended the lease of `before`, so that `event` is a legitimate delivery."""
    if message.released:
        return True
    if message.deadline is not None and event.at >= message.deadline:
        return True
    place = bisect_left(restarts, before.since)
    return place < len(restarts) and restarts[place] <= event.at


def _sum_up(verdict: Verdict, messages: dict[str, _Message]) -> None:
    for name, message in messages.items():
        if message.acknowledged and message.last is None:
            verdict.lost.append(f"{name}: acknowledged, never delivered")
        if message.last is not None and not message.attempted:
            verdict.unexpected.append(f"{name}: delivered at {message.last.at:.6f}, never pushed")
        if message.last is not None and message.acks_open <= 0:
            verdict.vanished.append(
                f"{name}: last delivered at {message.last.at:.6f}, not acked, not there at the end"
            )
        verdict.counts["messages"] += 1
        verdict.counts["recovered"] += message.last is not None and not message.acknowledged
