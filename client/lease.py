"""What a pop has lent to this client, and what has become of it.

One lease covers a range of one batch; its messages share it, so a message itself is three fields.
`settled` holds the indexes that were acked or nacked here: the same message again is refused
without a call. It is a set because several threads may settle messages of one lease, and adding to
a set is one step under the interpreter's lock. A lease that is settled as a whole gets a set that
all such leases share, and that nobody changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from weft import limits
from weft.errors import AlreadySettled, InvalidArgument, LeaseLost, UsageError
from weft.ids import MessageId
from weft.proto import wire

from .batch import HeadersColumn, KeysColumn

if TYPE_CHECKING:
    from .message import BaseMessage
    from .tracing import Deliveries

#: Ids that an error names; it says how many there are besides.
NAMED_MAX: Final = 3

T = TypeVar("T")

_lease_of = attrgetter("_lease")
#: The indexes of a full batch.
_NUMBERS: Final = list(range(limits.BATCH_COUNT_MAX))


class Settler(Protocol):
    """Who takes a message's ack: its queue at once, its consumer in batches."""

    async def ack_many(self, messages: Sequence[Any]) -> None: ...

    async def nack_many(
        self, messages: Sequence[Any], *, delay_ms: int = 0, reason: str = ""
    ) -> None: ...

    async def extend_many(self, messages: Sequence[Any], lease_ms: int) -> None: ...


class Lease:
    __slots__ = ("deliveries", "headers", "keys", "lent", "lost", "owner", "queue", "settled")

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
        #: Spans of its messages, if they are traced.
        self.deliveries: Deliveries | None = None

    @property
    def open(self) -> int:
        """How many of its messages are neither acked nor nacked."""
        return self.lent.count - len(self.settled)

    def indexes(self) -> range:
        return range(self.lent.first, self.lent.first + self.lent.count)

    def id(self, index: int) -> MessageId:
        lent = self.lent
        return MessageId.of(lent.partition, lent.producer, lent.batch, index)


class Taken(list[T]):
    """What a pop gave: a list, which also knows the leases it came with. To settle it as it came,
    none of its messages has to be looked at."""

    __slots__ = ("_came", "_leases")

    def __init__(self, messages: Iterable[T], leases: Sequence[Lease]) -> None:
        super().__init__(messages)
        self._came = self[:]
        self._leases = leases

    def whole(self) -> Sequence[Lease]:
        """The leases, if the list is as it came; else none."""
        return self._leases if self == self._came else ()


class Claim(NamedTuple):
    """Some messages of one lease, to be settled together."""

    lease: Lease
    indexes: Sequence[int]

    @property
    def receipt(self) -> wire.Receipt:
        lent = self.lease.lent
        whole = len(self.indexes) == lent.count
        ranges = [] if whole else runs(self.indexes)
        return wire.Receipt(lent.partition, lent.lsn, lent.nonce, ranges)


def group(messages: Iterable[BaseMessage]) -> list[Claim]:
    """The messages by lease."""
    if isinstance(messages, Taken) and (leases := messages.whole()):
        return [Claim(lease, lease.indexes()) for lease in leases]
    unique = set(messages)
    counts: Counter[Lease] = Counter(map(_lease_of, unique))
    parts: dict[Lease, list[int]] = {
        lease: [] for lease, count in counts.items() if count != lease.lent.count
    }
    for message in unique if parts else ():
        if (part := parts.get(message._lease)) is not None:
            part.append(message._index)
    return [Claim(lease, parts.get(lease) or lease.indexes()) for lease in counts]


def numbers(first: int, count: int) -> list[int]:
    """`first` and those that follow, as a list: shared ones, if they are of a batch."""
    if first + count <= limits.BATCH_COUNT_MAX:
        return _NUMBERS[first : first + count]
    return list(range(first, first + count))


@lru_cache(maxsize=256)
def _all_of(first: int, count: int) -> frozenset[int]:
    return frozenset(numbers(first, count))


def claims(queue: str, messages: Iterable[BaseMessage]) -> list[Claim]:
    """The messages by lease, checked: all are this queue's, lent, and open."""
    found = group(messages)
    for claim in found:
        lease = claim.lease
        if lease.queue != queue:
            raise InvalidArgument(
                f"a message of the queue {lease.queue} is not {queue}'s to settle"
            )
        if not lease.lent.nonce:
            raise UsageError("a peeked message is not lent: pop it to settle it")
        if lease.settled:
            _check_open(claim)
    return found


def unsettled(lease: Lease) -> Claim:
    """What is still out of a lease."""
    settled = lease.settled.copy()  # one step; other threads may add to it
    if not settled:
        return Claim(lease, lease.indexes())
    return Claim(lease, [index for index in lease.indexes() if index not in settled])


def runs(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Consecutive indexes as (first, count), ascending."""
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
        elif isinstance(before, set):  # else another thread has settled all of it
            before.update(claim.indexes)


def lost_error(lost: Sequence[Claim]) -> LeaseLost:
    total = sum(len(claim.indexes) for claim in lost)
    ids = [str(claim.lease.id(index)) for claim in lost for index in claim.indexes[:NAMED_MAX]]
    named = ", ".join(ids[:NAMED_MAX]) + (", ..." if total > NAMED_MAX else "")
    return LeaseLost(
        f"the lease of {total} message{'s' if total > 1 else ''} is lost ({named}): delivered "
        "again already, or soon; any others were settled. Extend in time, or pop with a longer "
        "lease_ms"
    )


def _check_open(claim: Claim) -> None:
    again = claim.lease.settled.intersection(claim.indexes)
    if again:
        raise AlreadySettled(
            f"{len(again)} message{'s were' if len(again) > 1 else ' was'} acked or nacked before, "
            f"the first is {claim.lease.id(min(again))}; nothing was sent"
        )
