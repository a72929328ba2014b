"""A Consume stream's book: what was sent and is still out.

``prefetch`` bounds what a slow consumer can hold. A message leaves the book when it is settled
through any call of this edge, or when its lease is over: then it is some other consumer's turn,
and counting it on would stop the stream for good. An ack over ZeroMQ is not seen here; such a
message leaves with its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.proto import wire

from .gate import Gate
from .receipts import Grouped, LeaseKey


@dataclass
class _Loan:
    """The messages of one lease that are still out, and when they come back by themselves."""

    indexes: set[int]
    until: float


class Stream:
    """The book of one stream. `holders` is the edge's: it leads from a lease to its stream."""

    def __init__(self, prefetch: int, holders: dict[LeaseKey, Stream]) -> None:
        self._prefetch = prefetch
        self._holders = holders
        self._out: dict[LeaseKey, _Loan] = {}
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] | None = None

    async def room(self, gate: Gate) -> int:
        """How many messages may be sent; waits until it is at least one."""
        while self._count >= self._prefetch and not self._expire():
            self._woken = self._loop.create_future()
            first = min(loan.until for loan in self._out.values())
            timer = self._loop.call_at(first, self._wake)
            try:
                with gate.awaiting(self._woken, idly=True):
                    await self._woken
            finally:
                timer.cancel()
        return self._prefetch - self._count

    def lend(self, lent: Iterable[wire.Lent]) -> None:
        now = self._loop.time()
        for one in lent:
            lease = (one.partition, one.lsn, one.nonce)
            indexes = set(range(one.first, one.first + one.count))
            self._out[lease] = _Loan(indexes, now + one.lease_ms / 1000)
            self._holders[lease] = self
            self._count += one.count

    def settle(self, lease: LeaseKey, indexes: Iterable[int]) -> None:
        loan = self._out[lease]
        before = len(loan.indexes)
        loan.indexes.difference_update(indexes)
        self._count -= before - len(loan.indexes)
        if not loan.indexes:
            del self._out[lease], self._holders[lease]
        self._wake()

    def extend(self, lease: LeaseKey, lease_ms: int) -> None:
        """To extend one message is to extend the lease that it shares with others."""
        self._out[lease].until = self._loop.time() + lease_ms / 1000

    def close(self) -> None:
        for lease in self._out:
            del self._holders[lease]

    def _expire(self) -> bool:
        """Whether leases that ended have made room."""
        now = self._loop.time()
        for lease in [lease for lease, loan in self._out.items() if loan.until <= now]:
            self.settle(lease, set(self._out[lease].indexes))
        return self._count < self._prefetch

    def _wake(self) -> None:
        if self._woken and not self._woken.done():
            self._woken.set_result(None)


class Streams:
    """All streams of an edge, found by the leases that they sent."""

    def __init__(self) -> None:
        self._holders: dict[LeaseKey, Stream] = {}

    @contextmanager
    def open(self, prefetch: int) -> Iterator[Stream]:
        stream = Stream(prefetch, self._holders)
        try:
            yield stream
        finally:
            stream.close()

    def settle(self, grouped: Grouped) -> None:
        """An ack or nack: whatever became of each receipt, its message is out no more."""
        for lease, indexes in grouped.leases.items():
            if stream := self._holders.get(lease):
                stream.settle(lease, indexes)

    def extend(self, grouped: Grouped, lease_ms: int) -> None:
        for lease in grouped.leases:
            if stream := self._holders.get(lease):
                stream.extend(lease, lease_ms)
