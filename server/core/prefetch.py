"""Message stealing: a node takes messages from another node ahead of its clients' pops.

Fabriq's future work (paper 4, section 4.5): an idle server fetches from a loaded one. A plain
client's pop that finds nothing on its own node goes to another node. If clients of this node
consume fast, the node takes more messages than requested, and the next pops find the rest here,
without a hop.

Invariants:

* Stolen messages are leased. They stay on their partition, acks go there, and no other consumer
  gets them meanwhile, so stealing never delivers a message twice.
* The size of a lot follows the rate of consumption: a lot is as many messages as clients of this
  node popped within about the last LOT_US, and so lasts for about that time. A consumer of fewer
  than ten messages a second gets the requested messages and no more.
* Stolen messages are hidden from other consumers for KEEP_US at most, and never for more than a
  quarter of their lease. Then the node returns the messages, uncounted, and the next lot has only
  the requested messages. A stopping node returns all stolen messages.
* If the node crashes, its stolen messages come back when their leases expire, like all messages
  leased through the node; each counts as delivered once. The lot size bounds their number.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

import msgspec

from weft.proto import wire

#: Messages in one lot, at most.
LOT_MAX: Final = 512
#: A lot holds the messages consumed within this time.
LOT_US: Final = 100_000
#: Time constant of the measured rate: older consumption counts for little.
_RATE_US: Final = 200_000
#: Queues with a remembered rate, at most.
_RATES_MAX: Final = 10_000
#: Stolen messages are kept for this long, and never for more than 1/_LEASE_SHARE of the lease.
KEEP_US: Final = 250_000
_LEASE_SHARE: Final = 4
#: Bytes of stolen messages on one node; beyond the limit, a pop takes only requested messages.
BYTES_MAX: Final = 16 << 20

Piece = tuple[wire.Lent, bytes]
#: A queue, and the requested lease in milliseconds.
_Key = tuple[str, int]


class _Kept(NamedTuple):
    node: str
    lent: wire.Lent
    frame: bytes
    #: When the node took the messages, and until when it keeps them.
    since: int
    until: int


class _Rate(NamedTuple):
    """Messages consumed up to a time; older messages decay exponentially."""

    messages: float
    at: int

    def seen(self, now: int) -> float:
        return self.messages * math.exp((self.at - now) / _RATE_US)


class PrefetchedLots:
    def __init__(self) -> None:
        self._kept: dict[_Key, deque[_Kept]] = {}
        self._rates: dict[_Key, _Rate] = {}
        self.bytes = 0
        #: The node is stopping: no more stealing, and all stolen messages are to be returned.
        self.closed = False
        #: Messages taken beyond the request; how many of them were popped; and returned unused.
        self.stolen = 0
        self.used = 0
        self.returned = 0

    def consumed(self, queue: str, lease_ms: int, count: int, now: int) -> None:
        """Counts messages delivered to a client of this node."""
        rate = self._rates.get((queue, lease_ms))
        if rate is None and len(self._rates) >= _RATES_MAX:
            self._rates.clear()
        seen = rate.seen(now) if rate is not None else 0.0
        self._rates[queue, lease_ms] = _Rate(seen + count, now)

    def lot(self, queue: str, lease_ms: int, limit: int, now: int) -> int:
        """The number of messages to take for a pop of `limit` messages."""
        rate = self._rates.get((queue, lease_ms))
        if rate is None or self.closed or self.bytes >= BYTES_MAX:
            return limit
        ahead = int(rate.seen(now) * LOT_US / _RATE_US)
        return max(limit, min(limit + ahead, LOT_MAX))

    def keep(self, queue: str, lease_ms: int, node: str, pieces: list[Piece], now: int) -> None:
        kept = self._kept.setdefault((queue, lease_ms), deque())
        for lent, frame in pieces:
            keep_us = min(KEEP_US, lent.lease_ms * 1000 // _LEASE_SHARE)
            kept.append(_Kept(node, lent, frame, now, now + keep_us))
            self.bytes += len(frame)
            self.stolen += lent.count

    def take(self, queue: str, lease_ms: int, limit: int, now: int) -> list[Piece]:
        """Takes up to `limit` messages, with the remaining time of their leases."""
        kept = self._kept.get((queue, lease_ms))
        pieces: list[Piece] = []
        while kept and limit and kept[0].until > now:
            one = kept.popleft()
            self.bytes -= len(one.frame)
            lent, frame = one.lent, one.frame
            if lent.count > limit:
                (lent, frame), (rest, left) = cut(lent, frame, limit)
                kept.appendleft(one._replace(lent=rest, frame=left))
                self.bytes += len(left)
            left_ms = lent.lease_ms - (now - one.since) // 1000
            pieces.append((msgspec.structs.replace(lent, lease_ms=left_ms), frame))
            limit -= lent.count
            self.used += lent.count
        if kept is not None and not kept:
            del self._kept[queue, lease_ms]
        return pieces

    def overdue(self, now: int) -> dict[tuple[str, str], list[wire.Receipt]]:
        """Removes the messages to be returned; their receipts by node and queue."""
        back: dict[tuple[str, str], list[wire.Receipt]] = {}
        for (queue, lease_ms), kept in list(self._kept.items()):
            while kept and (self.closed or kept[0].until <= now):
                one = kept.popleft()
                self.bytes -= len(one.frame)
                lent = one.lent
                self.returned += lent.count
                self._rates.pop((queue, lease_ms), None)  # consumption has slowed down
                ranges = [(lent.first, lent.count)]
                receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce, ranges)
                back.setdefault((one.node, queue), []).append(receipt)
            if not kept:
                del self._kept[queue, lease_ms]
        return back

    def next_due(self) -> int | None:
        due = min((kept[0].until for kept in self._kept.values()), default=None)
        return 0 if self.closed and due is not None else due


def cut(lent: wire.Lent, frame: bytes, count: int) -> tuple[Piece, Piece]:
    """Splits a range into the first `count` messages and the others."""
    return _part(lent, frame, 0, count), _part(lent, frame, count, lent.count - count)


def _part(lent: wire.Lent, frame: bytes, start: int, count: int) -> Piece:
    columns, stop = wire.decode_payload(frame), start + count
    part = wire.Payload(
        columns.bodies[start:stop],
        columns.headers and columns.headers[start:stop],
        columns.keys and columns.keys[start:stop],
    )
    return msgspec.structs.replace(lent, first=lent.first + start, count=count), wire.encode(part)
