"""A message as the application gets it.

A message is a body, a shared lease and an index into the lease: clients create messages by the
thousand, so a message must cost next to nothing. All other properties are read from the lease on
demand. `gc=False` excludes messages from garbage collection: messages refer to leases, and no lease
refers to a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final, TypeVar

import msgspec

from weft.client import arguments
from weft.client.producer.batch import Body, Headers
from weft.errors import ProtocolError
from weft.ids import MessageId
from weft.proto import call_headers, dead_letter, wire

from .lease import ClientLease, LeasedBatch, Settler, numbers

#: Digits of a call's timeout; a longer one comes from no caller that waits.
_TIMEOUT_DIGITS_MAX: Final = 18


class BaseMessage(msgspec.Struct, eq=False, gc=False, frozen=True):
    """The properties common to sync and async messages."""

    #: The content, as pushed.
    body: bytes
    _lease: ClientLease
    _index: int

    @property
    def id(self) -> MessageId:
        """The id that the push returned."""
        return self._lease.id(self._index)

    @property
    def queue(self) -> str:
        """Name of the queue that delivered the message."""
        return self._lease.queue

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the push; empty if it had none."""
        column = self._lease.headers
        return (column and column[self._index - self._lease.lent.first]) or {}

    @property
    def key(self) -> str | None:
        """The key of the push; None if it had none."""
        column = self._lease.keys
        return column[self._index - self._lease.lent.first] if column else None

    @property
    def group(self) -> str | None:
        """The group of the push, in a grouped queue; None in other queues."""
        return self._lease.lent.group

    @property
    def reply_to(self) -> str | None:
        """The queue in which a caller waits for the answer (`reply`); None if none waits."""
        return self.headers.get(call_headers.REPLY_TO)

    @property
    def reply_until(self) -> float | None:
        """When the caller stops waiting for the answer, in seconds since 1970; None if unknown."""
        text = self.headers.get(call_headers.CALL_TIMEOUT_MS, "")
        if not text.isdecimal() or len(text) > _TIMEOUT_DIGITS_MAX:
            return None
        return self.pushed_at + int(text) / 1000

    @property
    def deliveries(self) -> int:
        """Number of deliveries, including this one."""
        return self._lease.lent.deliveries

    @property
    def settled(self) -> bool:
        """True if this client acked or nacked the message."""
        return self._index in self._lease.settled

    @property
    def pushed_at(self) -> float:
        """Time of the push, in seconds since 1970."""
        return self._lease.lent.pushed_ms / 1000

    @property
    def priority(self) -> int:
        """Priority of the push, 0 (default) to 9 (delivered first)."""
        return self._lease.lent.priority

    @property
    def lease_ms(self) -> int:
        """Duration of the lease in milliseconds; 0 for a peeked message."""
        return self._lease.lent.lease_ms

    @property
    def dead_reason(self) -> str:
        """Reason why the message is a dead letter; empty otherwise."""
        return self._lease.lent.reason

    @property
    def dead_origin(self) -> str:
        """The original queue of a dead letter; empty otherwise."""
        return self._lease.lent.origin

    @property
    def dead_deliveries(self) -> int:
        """Number of deliveries of a dead letter in its original queue; 0 otherwise.

        `deliveries` starts again in the dead-letter queue.
        """
        return dead_letter.deliveries_of(self._lease.lent.reason)

    @property
    def due_at(self) -> float | None:
        """End of the message's delay, in seconds since 1970; None without a delay."""
        return self._lease.lent.due_ms / 1000 or None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue}, {len(self.body)} bytes>"


class AsyncMessage(BaseMessage, frozen=True, eq=False, gc=False):
    """A popped message, awaited. Ack or nack before the lease ends, or extend the lease.

    message = await queue.pop(wait_ms=1000)
    if message is not None:
        work(message.body)
        await message.ack()
    """

    async def ack(self, *, confirm: bool = False) -> None:
        """Acknowledges the message: done, never delivered again.

        For a message of `pop` or `pop_many`, the ack is durable when the call returns; LeaseLost
        means that the message was, or will be, delivered again. For a message of `consume` or
        `work`, the ack is sent with others a moment later; `consumer.flush()`, `drain()` and
        `close()` wait for the ack and raise LeaseLost if it came too late. With `confirm` the ack
        works as for `pop`.

        Raises AlreadySettled if this client acked or nacked the message before.
        """
        if confirm is not False:
            arguments.check_flag("confirm", confirm)
        owner = self._lease.owner
        await (owner.confirm_acks([self]) if confirm else owner.ack_many([self]))

    async def nack(self, *, delay_ms: int = 0, reason: str = "", final: bool = False) -> None:
        """Reports a failure: the message is delivered again after `delay_ms` milliseconds.

        Instead, the message moves to the dead-letter queue after the queue's `max_deliveries`, or
        at once if this failure is `final` and the queue has a dead-letter queue. A dead letter
        keeps the `reason`. An ordered queue delivers a nacked message next and has no delays: there
        `delay_ms` raises InvalidArgument. The nack is durable when the call returns; a stale lease
        raises LeaseLost.
        """
        owner = self._lease.owner
        await owner.nack_many([self], delay_ms=delay_ms, reason=reason, final=final)

    async def extend(self, lease_ms: int) -> None:
        """Extends the lease to `lease_ms` milliseconds from now. Raises LeaseLost."""
        await self._lease.owner.extend_many([self], lease_ms)

    async def reply(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ack: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Answers a question that another client has pushed with `queue.call`.

            await message.reply(b"answer")

        The answer is stored when the call returns. `reply` does not ack the message: ack it
        afterwards, or return from the handler of a worker. If the responder ends in between, the
        question is delivered and answered again, and the caller gets the first answer. With `ack`
        the answer and the acknowledgement happen together, or not at all.

        Raises UsageError if the message is not a question (`reply_to` is None), CallerGone if the
        caller's reply queue is gone, and InvalidArgument and TooLarge for bad arguments; with `ack`
        also LeaseLost and AlreadySettled. The message stays leased after an error.
        """
        await self._lease.owner.push_reply(self, body, headers, ack, timeout_ms)


M = TypeVar("M", bound=BaseMessage)


def unpack(
    make: type[M],
    queue: str,
    lent: Sequence[wire.Lent],
    frames: Sequence[wire.Frame],
    owner: Settler,
) -> list[list[M]]:
    """Returns the messages of a Popped or Peeked answer, one list per lease."""
    if len(lent) != len(frames):
        raise ProtocolError(f"the node leased {len(lent)} ranges in {len(frames)} frames")
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
            raise ProtocolError(f"the node leased messages that cannot be read: {error}") from None
        if len(bodies) != one.count:
            raise ProtocolError(f"the node leased {one.count} messages and sent {len(bodies)}")
        lease = ClientLease(queue, one, headers, keys, owner)
        made = map(make, bodies, repeat(lease), numbers(one.first, one.count))
        yield LeasedBatch(made, (lease,))
