"""The leases of this client, with the indexes of settled messages.

One lease covers a range of one batch; all messages of the range share the lease, so a message
itself has three fields. `settled` holds the indexes that this client acked or nacked: settling the
same message again is refused without a call. `settled` is a set because several threads may settle
messages of one lease, and adding to a set is atomic under the interpreter's lock. A lease that is
settled as a whole gets a shared, immutable set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from weft import limits
from weft.client import arguments
from weft.client.producer.batch import Body, Headers, HeadersColumn, KeysColumn
from weft.errors import AlreadySettled, InvalidArgument, LeaseLost, UsageError
from weft.ids import MessageId
from weft.proto import wire

if TYPE_CHECKING:
    from weft.client.tracing import Deliveries

    from .message import BaseMessage

#: Number of ids that an error names; the error also states the total.
NAMED_MAX: Final = 3

T = TypeVar("T")

_lease_of = attrgetter("_lease")
#: The indexes of a full batch.
_NUMBERS: Final = list(range(limits.BATCH_COUNT_MAX))


class Settler(Protocol):
    """Takes the acks of messages: a queue sends them at once, a consumer in batches."""

    async def ack_many(self, messages: Sequence[Any]) -> None: ...

    async def confirm_acks(self, messages: Sequence[Any]) -> None: ...

    async def nack_many(
        self, messages: Sequence[Any], *, delay_ms: int = 0, reason: str = "", final: bool = False
    ) -> None: ...

    async def extend_many(self, messages: Sequence[Any], lease_ms: int) -> None: ...

    async def push_reply(
        self, message: Any, body: Body, headers: Headers | None, ack: bool, timeout_ms: int | None
    ) -> None: ...


class ClientLease:
    __slots__ = (
        "deliveries", "handed_to", "headers", "keys", "lent", "lost", "owner", "queue", "settled",
    )  # fmt: skip

    def __init__(
        self,
        queue: str,
        lent: wire.Lent,
        headers: HeadersColumn | None,
        keys: KeysColumn | None,
        owner: Settler,
    ) -> None:
        self.queue = queue
        self.lent = lent
        self.headers = headers
        self.keys = keys
        self.owner = owner
        self.settled: set[int] | frozenset[int] = set()
        self.lost = False
        #: The application has the messages before this index; a consumer hands out a lease in
        #: order.
        self.handed_to = lent.first + lent.count
        #: Spans of the messages, if tracing is on.
        self.deliveries: Deliveries | None = None

    @property
    def open(self) -> int:
        """Number of messages that are neither acked nor nacked."""
        return self.lent.count - len(self.settled)

    def indexes(self) -> range:
        return range(self.lent.first, self.lent.first + self.lent.count)

    def id(self, index: int) -> MessageId:
        lent = self.lent
        return MessageId.of(lent.partition, lent.producer, lent.batch, index)


class LeasedBatch(list[T]):
    """The result of a pop: a list of messages with a reference to the leases.

    Settling the unchanged list does not touch the single messages.
    """

    __slots__ = ("_came", "_leases")

    def __init__(self, messages: Iterable[T], leases: Sequence[ClientLease]) -> None:
        super().__init__(messages)
        self._came = self[:]
        self._leases = leases

    def whole(self) -> Sequence[ClientLease]:
        """Returns the leases if the list is unchanged, else an empty sequence."""
        return self._leases if self == self._came else ()


class Claim(NamedTuple):
    """Some messages of one lease, to be settled together."""

    lease: ClientLease
    indexes: Sequence[int]
    #: An earlier attempt to settle these messages got no answer and may have been executed.
    in_doubt: bool = False

    @property
    def receipt(self) -> wire.Receipt:
        lent = self.lease.lent
        whole = len(self.indexes) == lent.count
        ranges = [] if whole else runs(self.indexes)
        return wire.Receipt(lent.partition, lent.lsn, lent.nonce, ranges)


def group(messages: Iterable[BaseMessage]) -> list[Claim]:
    """Groups the messages by lease."""
    if isinstance(messages, LeasedBatch) and (leases := messages.whole()):
        return [Claim(lease, lease.indexes()) for lease in leases]
    if type(messages) is not list:
        arguments.check_iterable("messages", messages, "messages")
    try:
        unique = set(messages)
        counts: Counter[ClientLease] = Counter(map(_lease_of, unique))
    except (AttributeError, TypeError):
        raise InvalidArgument("messages must be messages of a pop") from None
    parts: dict[ClientLease, list[int]] = {
        lease: [] for lease, count in counts.items() if count != lease.lent.count
    }
    for message in unique if parts else ():
        if (part := parts.get(message._lease)) is not None:
            part.append(message._index)
    return [Claim(lease, parts.get(lease) or lease.indexes()) for lease in counts]


def numbers(first: int, count: int) -> list[int]:
    """Returns `count` consecutive integers from `first`; shared objects if within a batch."""
    if first + count <= limits.BATCH_COUNT_MAX:
        return _NUMBERS[first : first + count]
    return list(range(first, first + count))


@lru_cache(maxsize=256)
def _all_of(first: int, count: int) -> frozenset[int]:
    return frozenset(numbers(first, count))


def claims(queue: str, messages: Iterable[BaseMessage]) -> list[Claim]:
    """Groups the messages by lease; checks that all belong to the queue, are leased and open."""
    found = group(messages)
    for claim in found:
        lease = claim.lease
        if lease.queue != queue:
            raise InvalidArgument(
                f"a message of the queue {lease.queue} is not {queue}'s to settle"
            )
        check_leased(claim)
    return found


def check_leased(claim: Claim) -> None:
    """Raises UsageError for a peeked message, AlreadySettled for a settled one."""
    if not claim.lease.lent.nonce:
        raise UsageError("a peeked message is not leased: pop the message to settle it")
    if claim.lease.settled:
        _check_open(claim)


def unsettled(lease: ClientLease) -> Claim:
    """Returns the messages of a lease that are not settled."""
    settled = lease.settled.copy()  # atomic copy; other threads may add
    if not settled:
        return Claim(lease, lease.indexes())
    return Claim(lease, [index for index in lease.indexes() if index not in settled])


def in_hand(lease: ClientLease) -> Claim:
    """Returns the messages of a lease that the application has and has not settled."""
    claim = unsettled(lease)
    return Claim(lease, [index for index in claim.indexes if index < lease.handed_to])


def runs(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Returns consecutive indexes as (first, count), ascending."""
    found: list[tuple[int, int]] = []
    start = stop = -1
    for index in sorted(indexes):
        if index != stop:
            if start >= 0:
                found.append((start, stop - start))
            start = index
        stop = index + 1
    if start >= 0:
        found.append((start, stop - start))
    return found


def close(settled: Iterable[Claim]) -> None:
    for claim in settled:
        lease, lent = claim.lease, claim.lease.lent
        before = lease.settled
        if not before and len(claim.indexes) == lent.count:
            lease.settled = _all_of(lent.first, lent.count)
        elif isinstance(before, set):  # otherwise another thread has settled the whole lease
            before.update(claim.indexes)


def lost_error(lost: Sequence[Claim]) -> LeaseLost:
    total = sum(len(claim.indexes) for claim in lost)
    ids = [str(claim.lease.id(index)) for claim in lost for index in claim.indexes[:NAMED_MAX]]
    named = ", ".join(ids[:NAMED_MAX]) + (", ..." if total > NAMED_MAX else "")
    subject = f"the lease of {total} message{'s' if total > 1 else ''} is lost ({named})"
    if any(claim.in_doubt for claim in lost):
        return LeaseLost(
            f"{subject}: a node failed during the call, so each of these messages was either "
            "settled by an earlier attempt or is delivered again; any others were settled",
            in_doubt=True,
        )
    return LeaseLost(
        f"{subject}: delivered again already, or soon; any others were settled. Extend in time, "
        "or pop with a longer lease_ms"
    )


def _check_open(claim: Claim) -> None:
    again = claim.lease.settled.intersection(claim.indexes)
    if again:
        raise AlreadySettled(
            f"{len(again)} message{'s were' if len(again) > 1 else ' was'} acked or nacked before, "
            f"the first is {claim.lease.id(min(again))}; nothing was sent"
        )
