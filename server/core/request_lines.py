"""Fair shares of a node's time between queues: requests wait in one line per queue. Pure.

Paper 2, section II and III: each queue has a share of the node's time; `weft.credit_buckets` picks
the queue with the most credit; the time that a request takes is deducted. The driver uses the lines
only while a node has more work than one round should do (`server/node/request_scheduler.py`).

A round takes requests one at a time (`take`) until the queues with work have used up a period of
credit: the *reset ends the round*. A round never ends before `ROUND_REQUESTS_MIN` requests,
`ROUND_BYTES_MIN` bytes or one period of handlers' time: one write then serves as many small
requests as without shares, however slow the disk is.

The cost of a request is the processor time of its handler, plus a part of the rest of the round
(the write, the answers) in proportion to the bytes that go in and out. The rest is known only when
the round has ended, so `take` deducts an estimate, and `finish` corrects the estimate. All charges
add up to the length of the round. Time in which the operating system runs another process instead
of a handler is part of the rest: as a charge to the queue of that handler, 100 ms of it would
silence a queue with a share of 1/50 for five seconds.

An answer leaves after the write of its round, so a request of a quiet queue would wait for the work
of the others twice: for the rest of the round of its arrival, and for its own round. A round
therefore *ends early* once a queue has had all its requests served with half of its credit left,
and each other queue whose turn came had one. The write of such a round is an additional one: all
of these writes take at most `EARLY_PART` of the time.

A line must hold what its queue can use in a round, or the queue gets less than its share. The
bounds of a connection are below that: a queue with a large share and small requests runs hundreds
in a period. So a line that runs empty is filled again during the round (`drained`).

The part of each queue with work follows from all claims to shares (`share_claims`).

Invariants:

- The requests of one queue leave in order of arrival.
- A request is in exactly one line, until `take`, `cancel` or `overdue` returns the request.
- A queue's account is in the buckets at most once (`_Line.listed`); a line with requests is listed.
- The credit of a listed account changes only through `_Line.owed`, which `take` deducts first: the
  buckets would otherwise have the account at a wrong level.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Set
from typing import Final, NamedTuple

from weft.credit_buckets import Account, CreditBuckets
from weft.limits import KIB, MIB
from weft.proto import wire

from .held_request import HeldRequest
from .share_claims import ShareClaims

#: The default period over which shares hold, in microseconds. A round of several queues lasts about
#: as long, and a request of a quiet queue waits for about one round.
PERIOD_US: Final = 2_500
#: No reset ends a round before one of these: see the head.
ROUND_REQUESTS_MIN: Final = 64
ROUND_BYTES_MIN: Final = 512 * KIB
#: The ends (the write, the answers) of rounds that end early take at most this part of the time.
EARLY_PART: Final = 0.125
#: Clients take a second of silence for the death of a node, so a request is refused earlier.
HELD_US_MAX: Final = 400_000
_OVERDUE_EVERY_US: Final = 20_000
#: Held requests of one connection, their bytes, and the bytes of all: past one of these bounds the
#: driver stops reading the connection.
PEER_REQUESTS_MAX: Final = 32
PEER_BYTES_MAX: Final = 8 * MIB
HELD_BYTES_MAX: Final = 64 * MIB
#: The weight of the last round in the estimated cost of a byte.
_LEARNING: Final = 0.2
#: Recent charges fall to this part in every interval, so they cover about ten seconds.
_FADING: Final = 0.8
_FADE_US: Final = 2_000_000
#: A queue with recent charges below this is forgotten, once it has no debt.
_FORGOTTEN_US: Final = 1.0


class Charged(NamedTuple):
    """The recent use of a node's time, in microseconds, while queues competed for the time."""

    queue: str
    used_us: int
    #: Of all queues together.
    total_us: int


class _Line:
    """The requests and the account of one queue."""

    __slots__ = (
        "account", "claim", "estimated", "items", "lent_bytes", "listed", "name", "owed", "recent",
        "size",
    )  # fmt: skip

    def __init__(self, name: str, period_us: float) -> None:
        self.name = name
        self.account: Account[_Line] = Account(self, period_us)
        #: The claimed share, per mille; 0 for none.
        self.claim = 0
        self.items: deque[HeldRequest] = deque()
        self.listed = False
        #: A correction of the credit, to be applied when the account is out of the buckets.
        self.owed = 0.0
        # Of the present round: bytes, and their estimated cost.
        self.size = 0
        self.estimated = 0.0
        #: The queue's counter of bytes lent, when the line was last charged for them.
        self.lent_bytes = 0
        #: Charges of about the last ten seconds.
        self.recent = 0.0


class RequestLines:
    def __init__(
        self,
        share_of: Callable[[str], int],
        lent_bytes: Callable[[str], int],
        period_us: int = PERIOD_US,
    ) -> None:
        """`share_of`: the share that a queue claims, per mille; 0 if it claims none.
        `lent_bytes`: the bytes that pops of a queue have got so far."""
        self._period_us = period_us
        self._share_of = share_of
        self._lent_bytes = lent_bytes
        self._lines: dict[str, _Line] = {}
        #: Lines with requests, and their claims.
        self._active: dict[str, _Line] = {}
        self._claims = ShareClaims()
        #: Lines that have got requests since the last round.
        self._new: list[_Line] = []
        self._buckets: CreditBuckets[_Line] = CreditBuckets(period_us)
        self._running: _Line | None = None
        #: Requests, and their bytes, in all lines; and by connection.
        self.waiting = 0
        self.held_bytes = 0
        self._peers: Counter[int] = Counter()
        self._peer_bytes: Counter[int] = Counter()
        #: Lines with requests taken in this round.
        self._served: dict[str, _Line] = {}
        self._taken = self._taken_bytes = 0
        self._spent = 0.0
        #: True once this round has served a quiet queue, and once the round has ended for that.
        self._quiet = self._early = False
        #: The time that rounds may still spend on early ends; negative after a long one.
        self._early_us = 0.0
        #: Microseconds of the rest of a round for one byte: an estimate.
        self._byte_us = 0.0
        self._fade_at = self._overdue_at = 0
        #: Requests refused because they waited too long.
        self.refused = 0

    # --- waiting --------------------------------------------------------------------------

    def add(self, item: HeldRequest) -> None:
        name: str = item.request.queue  # type: ignore[attr-defined]
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line(name, self._period_us)
            line.account.generation = self._buckets.generation
        if not line.items:
            self._activate(line)
        line.items.append(item)
        size = item.size
        self.waiting += 1
        self.held_bytes += size
        self._peers[item.peer] += 1
        self._peer_bytes[item.peer] += size

    def is_crowded(self, peer: int) -> bool:
        """True if the connection has so many held requests that its next one must wait outside."""
        held = self._peers.get(peer, 0)
        return held > 0 and (
            held >= PEER_REQUESTS_MAX
            or self._peer_bytes[peer] >= PEER_BYTES_MAX
            or self.held_bytes >= HELD_BYTES_MAX
        )

    def has_room(self, peer: int) -> bool:
        """True if a connection that was crowded may be read again."""
        return (
            2 * self._peers.get(peer, 0) <= PEER_REQUESTS_MAX
            and 2 * self._peer_bytes.get(peer, 0) <= PEER_BYTES_MAX
            and (2 * self.held_bytes <= HELD_BYTES_MAX or not self._peers.get(peer, 0))
        )

    @property
    def peers(self) -> Set[int]:
        """The connections with held requests."""
        return self._peers.keys()

    def cancel(self, to: object, kind: type[wire.AnyRequest] | None = None) -> HeldRequest | None:
        """Removes and returns the request of a caller, or only one of a `kind`; None if no line
        has it."""
        for line in self._active.values():
            for item in line.items:
                if item.to == to and (kind is None or type(item.request) is kind):
                    line.items.remove(item)
                    self._left(line, item)
                    return item
        return None

    def overdue(self, now: int) -> list[HeldRequest]:
        """Removes and returns the requests that have waited too long."""
        found: list[HeldRequest] = []
        if now < self._overdue_at:
            return found
        self._overdue_at = now + _OVERDUE_EVERY_US
        for line in list(self._active.values()):
            while line.items and now - line.items[0].since >= HELD_US_MAX:
                found.append(line.items.popleft())
                self._left(line, found[-1])
        self.refused += len(found)
        return found

    # --- a round --------------------------------------------------------------------------

    def begin(self) -> None:
        """Starts a round, or lets requests that were added during the round take part in it."""
        for line in self._new:
            if line.items and not line.listed:
                account = line.account
                account.quantum = self._period_us * self._claims.part(line.claim)
                account.credit = min(account.credit, account.quantum)
                if line.name not in self._served:
                    line.lent_bytes = self._lent_bytes(line.name)
                line.listed = True
                self._buckets.put(account)
        self._new.clear()

    def take(self, *, all_of_them: bool = False) -> HeldRequest | None:
        """The next request of the round; None ends the round. `all_of_them`: until no line has any
        request, because the node is stopping."""
        generation = self._buckets.generation
        while True:
            account = self._buckets.take()
            if account is None:
                return None
            line = account.owner
            if not line.items:
                line.listed = False
                self._pay(line)
                continue
            account.quantum = self._period_us * self._claims.part(line.claim)
            if line.owed or account.credit > account.quantum:
                self._pay(line)
                self._buckets.put(account)
            elif not all_of_them and (
                self._ends_early(line)
                or (generation != self._buckets.generation and self._is_over())
            ):
                self._buckets.put_back(account)
                return None
            else:
                return self._take_from(line)

    @property
    def drained(self) -> bool:
        """True if the request taken last was the last of its line: its queue gets no more of this
        round, unless more requests are added before `charge`."""
        return self._running is not None and not self._running.items

    def room(self, peer: int) -> int:
        """The number of requests of a connection that may be added before it is crowded."""
        return 0 if self.is_crowded(peer) else PEER_REQUESTS_MAX - self._peers.get(peer, 0)

    def charge(self, handler_us: float) -> None:
        """Deducts the cost of the request taken last, and lists the queue again."""
        line, self._running = self._running, None
        assert line is not None, "a charge follows a take"
        self._spent += handler_us
        line.recent += handler_us
        account = line.account
        account.charge(handler_us)
        if line.items:
            account.quantum = self._period_us * self._claims.part(line.claim)
            self._buckets.put(account)
        else:
            line.listed = False
            self._quiet |= self._early_us > 0 and 2 * account.credit >= account.quantum

    def finish(self, rest_us: float, end_us: float = 0.0) -> None:
        """Ends a round: deducts the rest of the round's time from the queues that it served.
        `end_us`: the part of the rest after the last handler, which an additional round repeats."""
        sizes = {}
        for name, line in self._served.items():
            lent_bytes = self._lent_bytes(name)
            sizes[name] = line.size + max(0, lent_bytes - line.lent_bytes)
            line.lent_bytes = lent_bytes
        total = sum(sizes.values())
        for name, line in self._served.items():
            cost = rest_us * sizes[name] / total
            line.owed += cost - line.estimated
            line.recent += cost
            line.size, line.estimated = 0, 0.0
            if not line.listed:
                self._pay(line)
        self._early_us += EARLY_PART * (self._spent + rest_us) - self._early * end_us
        self._early_us = min(self._early_us, self._period_us)
        if total and not self._early:
            self._byte_us += _LEARNING * (rest_us / total - self._byte_us)
        self._served.clear()
        self._taken = self._taken_bytes = 0
        self._spent = 0.0
        self._quiet = self._early = False

    def rest(self, idle_us: float) -> None:
        """No request has waited for some time: the periods of that time have passed, too."""
        assert not self.waiting
        self._buckets.generation += int(idle_us / self._period_us)

    def charges(self, now: int) -> list[Charged]:
        """The recent charges of all queues; forgets idle queues. Called about once a second."""
        if now >= self._fade_at:
            self._fade_at = now + _FADE_US
            for line in self._lines.values():
                line.recent *= _FADING
            for line in self._active.values():
                self._claims.remove(line.claim)
                line.claim = self._share_of(line.name)
                self._claims.add(line.claim)
        total = int(sum(line.recent for line in self._lines.values()))
        found = [Charged(name, int(line.recent), total) for name, line in self._lines.items()]
        for name in [each for each, line in self._lines.items() if self._is_forgettable(line)]:
            del self._lines[name]
        return found

    def _is_forgettable(self, line: _Line) -> bool:
        return not line.items and not line.listed and line.recent < _FORGOTTEN_US

    def _take_from(self, line: _Line) -> HeldRequest:
        item = line.items.popleft()
        self._left(line, item)
        size = item.size
        estimate = self._byte_us * size
        line.account.charge(estimate)
        line.size += size
        line.estimated += estimate
        self._served[line.name] = line
        self._taken += 1
        self._taken_bytes += size
        self._running = line
        return item

    def _activate(self, line: _Line) -> None:
        line.claim = self._share_of(line.name)
        self._active[line.name] = line
        self._claims.add(line.claim)
        if not line.listed:
            self._new.append(line)

    def _left(self, line: _Line, item: HeldRequest) -> None:
        """Counts a request out of its line."""
        if not line.items:
            del self._active[line.name]
            self._claims.remove(line.claim)
        size, peer = item.size, item.peer
        self.waiting -= 1
        self.held_bytes -= size
        self._peer_bytes[peer] -= size
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer], self._peer_bytes[peer]

    def _pay(self, line: _Line) -> None:
        """Applies a correction to an account that is not in the buckets."""
        account = line.account
        account.charge(line.owed)
        account.credit = min(account.credit, account.quantum)
        line.owed = 0.0

    def _ends_early(self, line: _Line) -> bool:
        self._early = self._quiet and line.name in self._served
        return self._early

    def _is_over(self) -> bool:
        return (
            self._taken >= ROUND_REQUESTS_MIN
            or self._taken_bytes >= ROUND_BYTES_MIN
            or self._spent >= self._period_us
        )
