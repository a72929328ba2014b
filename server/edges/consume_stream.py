"""Flow control of a Consume stream: the messages sent and not yet settled.

``prefetch`` bounds the messages that a slow consumer can hold. The node cannot see which messages
the application has received, so a message counts as delivered once sent, and as outstanding until
settled. A message that may have killed workers before is sent alone at its last delivery: nothing
else is outstanding at the same time.

A message stops being outstanding when any call of the edge settles the message, or when its lease
expires: another consumer gets the message then, and counting the message further would block the
stream for good. The stream does not see an ack over ZeroMQ; such a message leaves when its lease
expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.proto import wire

from .drain_gate import DrainGate
from .grpc_receipts import Grouped, LeaseKey, lease_key


@dataclass
class _Loan:
    """The outstanding messages of one lease, and the lease's expiry (event loop time, seconds)."""

    indexes: set[int]
    until: float


class ConsumeStream:
    """Outstanding messages of one stream. The edge's `holders` maps a lease to its stream."""

    def __init__(self, prefetch: int, holders: dict[LeaseKey, ConsumeStream]) -> None:
        self._prefetch = prefetch
        self._holders = holders
        self._out: dict[LeaseKey, _Loan] = {}
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] | None = None

    async def room(self, gate: DrainGate) -> int:
        """Waits until at least one more message may be sent; returns how many may be."""
        await self._below(self._prefetch, gate)
        return self._prefetch - self._count

    async def empty(self, gate: DrainGate) -> None:
        """Waits until every message that was sent is settled or its lease has expired."""
        await self._below(1, gate)

    @property
    def is_empty(self) -> bool:
        return not self._count

    async def _below(self, count: int, gate: DrainGate) -> None:
        while self._count >= count and not self._expire(count):
            self._woken = self._loop.create_future()
            first = min(loan.until for loan in self._out.values())
            timer = self._loop.call_at(first, self._wake)
            try:
                with gate.awaiting(self._woken, idly=True):
                    await self._woken
            finally:
                timer.cancel()

    def lend(self, lent: Iterable[wire.Lent]) -> None:
        now = self._loop.time()
        for one in lent:
            lease = lease_key(one)
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
        """Extending one message extends the lease that the message shares with others."""
        self._out[lease].until = self._loop.time() + lease_ms / 1000

    def close(self) -> None:
        for lease in self._out:
            del self._holders[lease]

    def _expire(self, count: int) -> bool:
        """Settles expired leases; True if the outstanding count is below `count` then."""
        now = self._loop.time()
        for lease in [lease for lease, loan in self._out.items() if loan.until <= now]:
            self.settle(lease, set(self._out[lease].indexes))
        return self._count < count

    def _wake(self) -> None:
        if self._woken and not self._woken.done():
            self._woken.set_result(None)


class ConsumeStreams:
    """All streams of an edge, indexed by the leases that were sent on them."""

    def __init__(self) -> None:
        self._holders: dict[LeaseKey, ConsumeStream] = {}

    @contextmanager
    def open(self, prefetch: int) -> Iterator[ConsumeStream]:
        stream = ConsumeStream(prefetch, self._holders)
        try:
            yield stream
        finally:
            stream.close()

    def settle(self, grouped: Grouped) -> None:
        """Records an ack or nack: for any result, the messages are not outstanding any longer."""
        for lease, indexes in grouped.leases.items():
            if stream := self._holders.get(lease):
                stream.settle(lease, indexes)

    def extend(self, grouped: Grouped, lease_ms: int) -> None:
        for lease in grouped.leases:
            if stream := self._holders.get(lease):
                stream.extend(lease, lease_ms)
