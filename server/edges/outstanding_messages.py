"""Messages that a stream has sent and that are not settled: the base of its flow control.

The node cannot see which messages the application has received, so a message counts as delivered
once sent, and as outstanding until it is settled. A message stops being outstanding when any call
of the server settles the message, or when its lease expires: another consumer gets the message
then, and counting the message further would block the stream for good. The stream does not see an
ack over ZeroMQ; such a message leaves when its lease expires.

The messages of a lease are the bits of one number, by their indexes in the batch: a whole lease
costs as much as one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Protocol

from weft.proto import wire

from .grpc_receipts import LeaseKey, lease_key, ranges


class StreamClock(Protocol):
    """The part of a `StreamCall` that flow control needs."""

    def now(self) -> float: ...
    def wake(self) -> None: ...


@dataclass
class _Loan:
    """The outstanding messages of one lease, and the lease's expiry (the call's time, seconds)."""

    messages: int
    until: float
    #: The messages that the application has got, if the client buffers others.
    handed: int


class OutstandingMessages:
    """The outstanding messages of one stream."""

    def __init__(self, holders: LeaseHolders, call: StreamClock, *, handed: bool = True) -> None:
        """`handed`: the application gets a message with its delivery, without a report of its
        own."""
        self.count = 0
        self._holders = holders
        self._call = call
        self._handed = handed
        self._out: dict[LeaseKey, _Loan] = {}

    def add(self, lent: Iterable[wire.Lent]) -> None:
        now = self._call.now()
        for one in lent:
            bits = ((1 << one.count) - 1) << one.first
            handed = bits if self._handed else 0
            self._out[lease_key(one)] = _Loan(bits, now + one.lease_ms / 1000, handed)
            self._holders.hold(lease_key(one), self)
            self.count += one.count

    def holds(self, lease: LeaseKey, indexes: Sequence[int]) -> bool:
        """True if all these messages of a lease are outstanding."""
        loan = self._out.get(lease)
        return loan is not None and not _bits(indexes) & ~loan.messages

    def settle(self, lease: LeaseKey, indexes: Sequence[int]) -> None:
        self._remove(lease, _bits(indexes))

    def extend(self, lease: LeaseKey, indexes: Sequence[int], request: wire.Extend) -> None:
        """Extending one message extends the lease that the message shares with others."""
        loan = self._out[lease]
        loan.until = self._call.now() + request.lease_ms / 1000
        if request.handed:
            loan.handed |= _bits(indexes)

    def expire(self) -> None:
        """Removes the messages of expired leases."""
        now = self._call.now()
        for lease in [lease for lease, loan in self._out.items() if loan.until <= now]:
            self._remove(lease, self._out[lease].messages)

    def first_expiry(self) -> float | None:
        return min((loan.until for loan in self._out.values()), default=None)

    def remove(self, receipts: Iterable[wire.Receipt]) -> None:
        """Removes messages that go back because they were not sent."""
        for receipt in receipts:
            lease = receipt.partition, receipt.lsn, receipt.nonce
            if (loan := self._out.get(lease)) is not None:
                bits = _range_bits(receipt.ranges) if receipt.ranges else loan.messages
                self._remove(lease, bits)

    def receipts(self, *, handed: bool) -> list[wire.Receipt]:
        """The outstanding messages that the application has got, or those that it has not."""
        found = []
        for lease, loan in self._out.items():
            bits = loan.messages & (loan.handed if handed else ~loan.handed)
            if bits:
                indexes = [index for index in range(bits.bit_length()) if bits >> index & 1]
                found.append(wire.Receipt(*lease, ranges(indexes)))
        return found

    def close(self) -> None:
        for lease in self._out:
            self._holders.release(lease)
        self._out.clear()
        self.count = 0

    def _remove(self, lease: LeaseKey, bits: int) -> None:
        loan = self._out[lease]
        self.count -= (loan.messages & bits).bit_count()
        loan.messages &= ~bits
        if not loan.messages:
            del self._out[lease]
            self._holders.release(lease)
        self._call.wake()


def _bits(indexes: Sequence[int]) -> int:
    return _range_bits(ranges(indexes))


def _range_bits(spans: Iterable[tuple[int, int]]) -> int:
    return reduce(or_, (((1 << count) - 1) << first for first, count in spans), 0)


class LeaseHolders:
    """The streams of a server, by the leases of the messages sent on them."""

    def __init__(self) -> None:
        self._by_lease: dict[LeaseKey, OutstandingMessages] = {}

    def __bool__(self) -> bool:
        return bool(self._by_lease)

    def hold(self, lease: LeaseKey, holder: OutstandingMessages) -> None:
        self._by_lease[lease] = holder

    def release(self, lease: LeaseKey) -> None:
        del self._by_lease[lease]

    def settle(self, leases: Mapping[LeaseKey, Sequence[int]]) -> None:
        """Records an ack or nack: for any result, the messages are not outstanding any longer."""
        for lease, indexes in leases.items():
            if holder := self._by_lease.get(lease):
                holder.settle(lease, indexes)

    def extend(self, leases: Mapping[LeaseKey, Sequence[int]], request: wire.Extend) -> None:
        for lease, indexes in leases.items():
            if holder := self._by_lease.get(lease):
                holder.extend(lease, indexes, request)
