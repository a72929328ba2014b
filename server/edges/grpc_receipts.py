"""Receipts as a gRPC client holds them: 20 bytes for one message.

The engine identifies a lease by (partition, lsn, nonce) and settles any part of a lease in one
step, so the receipts of a call are grouped by lease. No node issues a receipt of another length:
such a receipt counts as lost, like any receipt without a lease.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from weft import limits
from weft.errors import TooLarge
from weft.proto import wire

#: (partition, lsn, nonce): the engine's key of a lease.
LeaseKey = tuple[int, int, int]

_shape = struct.Struct(">HQQH")


def lease_key(lent: wire.Lent) -> LeaseKey:
    return lent.partition, lent.lsn, lent.nonce


def pack(lease: LeaseKey, index: int) -> bytes:
    """Encodes the receipt of one message."""
    return _shape.pack(*lease, index)


def unpack(receipt: bytes) -> tuple[LeaseKey, int]:
    partition, lsn, nonce, index = _shape.unpack(receipt)
    return (partition, lsn, nonce), index


@dataclass(frozen=True)
class Grouped:
    """The receipts of one call, by lease, in the order in which the leases first appear."""

    leases: dict[LeaseKey, list[int]] = field(default_factory=dict)
    #: Receipts of the wrong length.
    malformed: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, raw: Sequence[bytes]) -> Grouped:
        if len(raw) > limits.RECEIPTS_MAX:
            raise TooLarge(f"one call takes {limits.RECEIPTS_MAX} receipts, not {len(raw)}")
        grouped = cls()
        # A repeated receipt is settled once and reported once.
        for receipt in dict.fromkeys(raw):
            if len(receipt) != _shape.size:
                grouped.malformed.append(receipt)
                continue
            lease, index = unpack(receipt)
            grouped.leases.setdefault(lease, []).append(index)
        return grouped

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


def ranges(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of consecutive indexes, ascending, as (first, count)."""
    runs: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if runs and index == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs
