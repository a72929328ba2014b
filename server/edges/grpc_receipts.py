"""Receipts as a gRPC client holds them: 20 bytes for one message, 22 bytes for a lot.

The engine identifies a lease by (partition, lsn, nonce) and settles any part of a lease in one
step, so the receipts of a call are grouped by lease. No node issues a receipt of another length:
such a receipt counts as lost, like any receipt without a lease.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

from weft import limits
from weft.errors import InvalidArgument, TooLarge
from weft.proto import weft_pb2 as pb
from weft.proto import wire

from .proto_fields import INDEX_BYTES

#: (partition, lsn, nonce): the engine's key of a lease.
LeaseKey = tuple[int, int, int]

_lease = struct.Struct(">HQQ")
_lease_of = itemgetter(slice(0, _lease.size))
#: The index in the receipt of a message.
_index = struct.Struct(f">{_lease.size}xH")
#: A message: its lease, and its index in the batch.
_shape = struct.Struct(">HQQH")
#: A lot: its lease, the index of its first message in the batch, and the number of its messages.
_lot_shape = struct.Struct(">HQQHH")


def lease_key(lent: wire.Lent) -> LeaseKey:
    return lent.partition, lent.lsn, lent.nonce


def pack(lease: LeaseKey, index: int) -> bytes:
    """Encodes the receipt of one message."""
    return _shape.pack(*lease, index)


def unpack(receipt: bytes) -> tuple[LeaseKey, int]:
    partition, lsn, nonce, index = _shape.unpack(receipt)
    return (partition, lsn, nonce), index


def of_message(receipt: bytes) -> wire.Receipt | None:
    """The engine's receipt for the receipt of one message; None for one of another length."""
    if len(receipt) != _shape.size:
        return None
    partition, lsn, nonce, index = _shape.unpack(receipt)
    return wire.Receipt(partition, lsn, nonce, [(index, 1)])


def pack_lot(lease: LeaseKey, first: int, count: int) -> bytes:
    """Encodes the receipt of a lot."""
    return _lot_shape.pack(*lease, first, count)


class NamedLot(NamedTuple):
    """A part of a lot that a call names."""

    receipt: bytes
    lease: LeaseKey
    #: The index, in the batch, of the lot's first message.
    first: int
    #: The indexes, in the batch, of the messages named.
    indexes: Sequence[int]


@dataclass(slots=True)
class Grouped:
    """The receipts of one call, by lease, in the order in which the leases first appear."""

    leases: dict[LeaseKey, Sequence[int]] = field(default_factory=dict)
    #: Receipts of the wrong length.
    malformed: list[bytes] = field(default_factory=list)
    lots: list[NamedLot] = field(default_factory=list)
    malformed_lots: list[pb.LotPart] = field(default_factory=list)

    @classmethod
    def of(cls, raw: Sequence[bytes], parts: Sequence[pb.LotPart] = ()) -> Grouped:
        """Groups receipts of messages, and parts of lots."""
        grouped = cls()
        if len(raw) == 1 and not parts and len(raw[0]) == _shape.size:
            lease, index = unpack(raw[0])
            grouped.leases[lease] = [index]
            return grouped
        grouped._check(len(raw))
        raw = list(raw)  # each pass over protobuf's own list makes all bytes again
        if raw and not parts and (run := _run_of_one_lease(raw)) is not None:
            grouped.leases[run[0]] = run[1]
            return grouped
        # A repeated receipt is settled once and reported once.
        if any(len(receipt) != _shape.size for receipt in raw):
            wrong = [receipt for receipt in raw if len(receipt) != _shape.size]
            grouped.malformed.extend(dict.fromkeys(wrong))
            raw = [receipt for receipt in raw if len(receipt) == _shape.size]
        named: dict[LeaseKey, list[Sequence[int]]] = {}
        for lease, receipts in groupby(raw, _lease_of):
            indexes = [index for (index,) in _index.iter_unpack(b"".join(receipts))]
            named.setdefault(_lease.unpack(lease), []).append(indexes)
        if parts:
            grouped._add_lots(parts, len(raw), named)
        for key, found in named.items():
            grouped.leases[key] = _distinct(found)
        return grouped

    def _check(self, count: int) -> None:
        if count > limits.RECEIPTS_MAX:
            raise TooLarge(f"one call accepts at most {limits.RECEIPTS_MAX} receipts, not {count}")

    def _add_lots(
        self,
        parts: Sequence[pb.LotPart],
        count: int,
        named: dict[LeaseKey, list[Sequence[int]]],
    ) -> None:
        """Adds the messages of parts of lots to those `named`, which are `count` already."""
        for part in parts:
            if len(part.receipt) != _lot_shape.size or part.receipt.endswith(b"\0\0"):
                self.malformed_lots.append(part)  # of another length, or without messages
                continue
            *lease, first, size = _lot_shape.unpack(part.receipt)
            spans = [(each.first, each.count) for each in part.ranges] or [(0, size)]
            count += sum(span[1] for span in spans)
            self._check(max(count, len(parts)))
            beyond = [span for span in spans if span[0] + span[1] > size]
            if beyond:
                raise InvalidArgument(
                    f"messages {beyond[0][0]} to {sum(beyond[0]) - 1} are beyond a lot of {size} "
                    "messages: count from 0, within the lot"
                )
            indexes: Sequence[int] = range(first + spans[0][0], first + sum(spans[0]))
            if len(spans) > 1:
                indexes = [i for at, n in spans for i in range(first + at, first + at + n)]
            lot = NamedLot(part.receipt, (lease[0], lease[1], lease[2]), first, indexes)
            self.lots.append(lot)
            named.setdefault(lot.lease, []).append(indexes)

    def count(self) -> int:
        """The number of distinct messages named by the receipts."""
        return sum(map(len, self.leases.values()))

    def receipts(self) -> list[wire.Receipt]:
        """One engine receipt per lease."""
        return [wire.Receipt(*lease, ranges(indexes)) for lease, indexes in self.leases.items()]

    def messages(self, positions: Iterable[int]) -> list[tuple[LeaseKey, int]]:
        """The lease and index of each message under the given positions of `receipts()`."""
        leases = list(self.leases.items())
        return [
            (lease, index)
            for lease, indexes in (leases[position] for position in positions)
            for index in indexes
        ]

    def parts(self, messages: Iterable[tuple[LeaseKey, int]]) -> list[pb.LotPart]:
        """Those of the messages that lots name, as parts of these lots."""
        wanted = set(messages)
        found: list[pb.LotPart] = []
        for lot in self.lots:
            runs = ranges({index for index in lot.indexes if (lot.lease, index) in wanted})
            if runs:
                spans = [pb.LotRange(first=at - lot.first, count=n) for at, n in runs]
                found.append(pb.LotPart(receipt=lot.receipt, ranges=spans))
        return found


def _run_of_one_lease(raw: Sequence[bytes]) -> tuple[LeaseKey, range] | None:
    """The messages of receipts that name consecutive messages of one lease in their order: the ack
    of a whole pop, mostly. Otherwise None."""
    if set(map(len, raw)) != {_shape.size}:
        return None
    packed = raw[0][: _lease.size]
    (first,) = _index.unpack(raw[0])
    expected = packed.join([b"", *INDEX_BYTES[first : first + len(raw)]])
    if b"".join(raw) != expected:
        return None
    return unpack(raw[0])[0], range(first, first + len(raw))


def _distinct(found: list[Sequence[int]]) -> Sequence[int]:
    """All indexes, each once. Called once per lease, so that the cost stays linear however the
    receipts of several leases alternate in a call."""
    if len(found) == 1 and isinstance(found[0], range):
        return found[0]
    return list(dict.fromkeys(chain.from_iterable(found)))


def ranges(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of consecutive indexes, ascending, as (first, count). No index appears twice."""
    if isinstance(indexes, list) and len(indexes) == 1:
        return [(indexes[0], 1)]
    if isinstance(indexes, range):
        return [(indexes.start, len(indexes))] if indexes else []
    ascending = sorted(indexes)
    if ascending and ascending[-1] - ascending[0] + 1 == len(ascending):
        return [(ascending[0], len(ascending))]
    runs: list[tuple[int, int]] = []
    for index in ascending:
        if runs and index == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs
