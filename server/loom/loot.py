"""Message stealing: whole batches taken from a loaded node, for consumers who wait at this one.

Fabriq's future work (paper 4, section 4.5): an idle server fetches from a loaded one. A plain
client's pop that finds nothing here is sent to another node; then this node takes a good deal more
than was asked for, and the next pops find it here, without a hop. What is taken is only lent: it
stays on its partition, acks go there, and nobody else gets it meanwhile, so that no message is ever
doubled by this. What nobody asks for soon is given back, uncounted.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import msgspec

from weft.proto import wire

#: Messages that are taken at once.
LOT: Final = 512
#: Kept for so long, and never for more than this part of the lease.
KEEP_US: Final = 500_000
_LEASE_SHARE: Final = 4
#: Bytes of stolen messages on one node; beyond it, only what was asked for is taken.
BYTES_MAX: Final = 16 << 20

Piece = tuple[wire.Lent, bytes]


class _Kept(NamedTuple):
    node: str
    lent: wire.Lent
    frame: bytes
    #: When it was taken, and until when it is kept.
    since: int
    until: int


class Loot:
    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], deque[_Kept]] = {}  # by queue and lease asked for
        self.bytes = 0
        #: Messages that were taken beyond what was asked for, and those of them that were used.
        self.stolen = 0
        self.used = 0

    @property
    def has_room(self) -> bool:
        return self.bytes < BYTES_MAX

    def keep(self, queue: str, lease_ms: int, node: str, pieces: list[Piece], now: int) -> None:
        kept = self._kept.setdefault((queue, lease_ms), deque())
        for lent, frame in pieces:
            keep_us = min(KEEP_US, lent.lease_ms * 1000 // _LEASE_SHARE)
            kept.append(_Kept(node, lent, frame, now, now + keep_us))
            self.bytes += len(frame)
            self.stolen += lent.count

    def take(self, queue: str, lease_ms: int, limit: int, now: int) -> list[Piece]:
        """Up to `limit` messages, with what is left of their leases."""
        kept = self._kept.get((queue, lease_ms))
        pieces: list[Piece] = []
        while kept and limit:
            one = kept.popleft()
            self.bytes -= len(one.frame)
            if one.until <= now:
                kept.appendleft(one)
                self.bytes += len(one.frame)
                break
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

    def overdue(self, now: int) -> list[tuple[str, str, wire.Receipt]]:
        """(node, queue, receipt) of what is to be given back."""
        back: list[tuple[str, str, wire.Receipt]] = []
        for (queue, lease_ms), kept in list(self._kept.items()):
            while kept and kept[0].until <= now:
                one = kept.popleft()
                self.bytes -= len(one.frame)
                lent = one.lent
                ranges = [(lent.first, lent.count)]
                receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce, ranges)
                back.append((one.node, queue, receipt))
            if not kept:
                del self._kept[queue, lease_ms]
        return back

    def next_due(self) -> int | None:
        return min((kept[0].until for kept in self._kept.values()), default=None)


def cut(lent: wire.Lent, frame: bytes, count: int) -> tuple[Piece, Piece]:
    """The first `count` messages of a range, and the others."""
    return _part(lent, frame, 0, count), _part(lent, frame, count, lent.count - count)


def _part(lent: wire.Lent, frame: bytes, start: int, count: int) -> Piece:
    columns, stop = wire.decode_payload(frame), start + count
    part = wire.Payload(
        columns.bodies[start:stop],
        columns.headers and columns.headers[start:stop],
        columns.keys and columns.keys[start:stop],
    )
    return msgspec.structs.replace(lent, first=lent.first + start, count=count), wire.encode(part)
