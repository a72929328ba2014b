"""Receipts as a gRPC client holds them: 20 bytes for one message.

The engine knows a lease by (partition, lsn, nonce) and settles any part of it in one step, so the
receipts of a call are grouped by lease on the way in. A receipt of another length was not made by
a node: it counts as lost, like any other that names no lease.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from weft import limits
from weft.errors import TooLarge
from weft.proto import wire

#: (partition, lsn, nonce): what the engine knows a lease by.
LeaseKey = tuple[int, int, int]

_shape = struct.Struct(">HQQH")


def pack(lease: LeaseKey, index: int) -> bytes:
    """The receipt of one message."""
    return _shape.pack(*lease, index)


def unpack(receipt: bytes) -> tuple[LeaseKey, int]:
    partition, lsn, nonce, index = _shape.unpack(receipt)
    return (partition, lsn, nonce), index


@dataclass(frozen=True)
class Grouped:
    """The receipts of one call, by lease, in the order in which the leases first appear."""

    leases: dict[LeaseKey, list[int]] = field(default_factory=dict)
    #: Of another length than a receipt has.
    malformed: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, raw: Sequence[bytes]) -> Grouped:
        if len(raw) > limits.RECEIPTS_MAX:
            raise TooLarge(f"one call takes {limits.RECEIPTS_MAX} receipts, not {len(raw)}")
        grouped = cls()
        # A repeated receipt is the same receipt: it is settled once and reported once.
        for receipt in dict.fromkeys(raw):
            if len(receipt) != _shape.size:
                grouped.malformed.append(receipt)
                continue
            lease, index = unpack(receipt)
            grouped.leases.setdefault(lease, []).append(index)
        return grouped

    def count(self) -> int:
        """Distinct messages that the receipts name."""
        return sum(map(len, self.leases.values()))

    def receipts(self) -> list[wire.Receipt]:
        """One for each lease, as the engine takes them."""
        return [wire.Receipt(*lease, ranges(indexes)) for lease, indexes in self.leases.items()]

    def messages(self, positions: Iterable[int]) -> list[tuple[LeaseKey, int]]:
        """Lease and index of each message under these positions of `receipts()`."""
        leases = list(self.leases.items())
        return [
            (lease, index)
            for lease, indexes in (leases[position] for position in positions)
            for index in indexes
        ]


def ranges(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of consecutive indexes, ascending, as (first, count)."""
    runs: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if runs and index == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs
