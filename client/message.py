"""A message in a consumer's hands.

A message is its body, a shared lease and its index in it: made by the thousand, it must cost next
to nothing. Everything else is looked up in the lease when asked for. `gc=False` keeps messages out
of the garbage collector's rounds: they point to leases, and no lease points back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TypeVar

import msgspec

from weft.errors import ProtocolError
from weft.ids import MessageId
from weft.proto import wire

from .lease import Lease, Settler, Taken, numbers
from .link import run


class BaseMessage(msgspec.Struct, eq=False, gc=False, frozen=True):
    """What both flavours share: everything but how they wait."""

    body: bytes
    _lease: Lease
    _index: int

    @property
    def id(self) -> MessageId:
        return self._lease.id(self._index)

    @property
    def queue(self) -> str:
        return self._lease.queue

    @property
    def headers(self) -> dict[str, str]:
        column = self._lease.headers
        return (column and column[self._index - self._lease.lent.first]) or {}

    @property
    def key(self) -> str | None:
        column = self._lease.keys
        return column[self._index - self._lease.lent.first] if column else None

    @property
    def deliveries(self) -> int:
        """How often it was delivered, with this time."""
        return self._lease.lent.deliveries

    @property
    def pushed_at(self) -> float:
        """When it was pushed, in seconds since 1970."""
        return self._lease.lent.pushed_ms / 1000

    @property
    def priority(self) -> int:
        return self._lease.lent.priority

    @property
    def lease_ms(self) -> int:
        """For how long it was lent; 0 for a peeked one."""
        return self._lease.lent.lease_ms

    @property
    def dead_reason(self) -> str:
        """Why it is a dead letter; empty if it is none."""
        return self._lease.lent.reason

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue}, {len(self.body)} bytes>"


class Message(BaseMessage, frozen=True, eq=False, gc=False):
    """A popped message. Settle it with ack or nack before its lease ends, or extend the lease."""

    def ack(self) -> None:
        """It is done and never comes back. Raises LeaseLost if it was lent again already."""
        run(self._lease.owner.ack_many([self]))

    def nack(self, *, delay_ms: int = 0, reason: str = "") -> None:
        """It failed: it is delivered again, or moves to the dead letter queue."""
        run(self._lease.owner.nack_many([self], delay_ms=delay_ms, reason=reason))

    def extend(self, lease_ms: int) -> None:
        """The lease ends `lease_ms` from now."""
        run(self._lease.owner.extend_many([self], lease_ms))


class AsyncMessage(BaseMessage, frozen=True, eq=False, gc=False):
    """A popped message, awaited. Settle it with ack or nack before its lease ends, or extend it."""

    async def ack(self) -> None:
        """It is done and never comes back. Raises LeaseLost if it was lent again already."""
        await self._lease.owner.ack_many([self])

    async def nack(self, *, delay_ms: int = 0, reason: str = "") -> None:
        """It failed: it is delivered again, or moves to the dead letter queue."""
        await self._lease.owner.nack_many([self], delay_ms=delay_ms, reason=reason)

    async def extend(self, lease_ms: int) -> None:
        """The lease ends `lease_ms` from now."""
        await self._lease.owner.extend_many([self], lease_ms)


M = TypeVar("M", bound=BaseMessage)


def unpack(
    make: type[M],
    queue: str,
    lent: Sequence[wire.Lent],
    frames: Sequence[wire.Frame],
    owner: Settler,
) -> list[list[M]]:
    """The messages of a Popped or Peeked, a list for each lease."""
    if len(lent) != len(frames):
        raise ProtocolError(f"the node lent {len(lent)} ranges in {len(frames)} frames")
    return list(_unpack(make, queue, lent, frames, owner))


def _unpack(
    make: type[M],
    queue: str,
    lent: Sequence[wire.Lent],
    frames: Sequence[wire.Frame],
    owner: Settler,
) -> Iterator[list[M]]:
    for one, frame in zip(lent, frames, strict=True):
        try:
            bodies, headers, keys = msgspec.structs.astuple(wire.decode_payload(frame))
        except wire.MALFORMED as error:
            raise ProtocolError(f"the node lent messages that cannot be read: {error}") from None
        if len(bodies) != one.count:
            raise ProtocolError(f"the node lent {one.count} messages and sent {len(bodies)}")
        lease = Lease(queue, one, headers, keys, owner)
        made = map(make, bodies, repeat(lease), numbers(one.first, one.count))
        yield Taken(made, (lease,))
