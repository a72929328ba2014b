"""The gateway's part in handing a queue's messages to ranks.

A message goes to one rank, the rank with the fewest messages, and is acknowledged in its queue only
after the rank has reported done. Until then the gateway renews the message's lease. Messages that a
rank was not done with when it closed or died go back to the queue, as one failed delivery, and from
there to another rank; so a message that kills every rank working on it ends as a dead letter, if
its queue has a dead-letter queue. A message may be worked on twice, and is never lost: delivery is
at least once.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from weft.errors import LeaseLost, RankLost

from .fanout_ring import COMING, FanWriter

#: Leases are renewed after this part of their time.
RENEW_AT: Final = 1 / 3
#: Messages fetched by one pop at most.
POP_COUNT: Final = 1024
#: A message that is too large is redelivered after this time: another gateway may have more room.
OVERSIZED_DELAY_MS: Final = 5000
_log = logging.getLogger(__name__)


class FanoutLease(Protocol):
    """The part of a message of Weft's client that is needed here."""

    @property
    def body(self) -> bytes: ...

    @property
    def lease_ms(self) -> int: ...


#: A message and the rank that was done with it.
Done = tuple[int, FanoutLease]


class Source(Protocol):
    """The part of a queue of Weft's client that is needed here."""

    def pop_many(self, limit: int, *, wait_ms: int) -> Sequence[Any]: ...

    def ack_many(self, messages: Iterable[Any]) -> None: ...

    def nack_many(
        self, messages: Iterable[Any], *, delay_ms: int = 0, reason: str = ""
    ) -> None: ...

    def extend_many(self, messages: Iterable[Any], lease_ms: int) -> None: ...


class Fanout:
    """Hands messages to receivers and settles them. All methods run in one thread."""

    def __init__(self, source: Source, writers: Sequence[FanWriter], ahead: int) -> None:
        self._source = source
        self._ahead = ahead
        #: Messages held by each receiver, oldest first; a receiver that has left is removed.
        self._out: dict[FanWriter, deque[FanoutLease]] = {writer: deque() for writer in writers}
        self._waiting: deque[FanoutLease] = deque()
        self._renewed = time.monotonic()
        self._popped = time.monotonic()
        #: Messages that ranks were done with, and the number of times that a lease had expired
        #: early.
        self.done = 0
        self.late = 0
        #: Deliveries refused because the message is larger than a receiver's ring.
        self.refused = 0

    @property
    def receivers(self) -> int:
        return len(self._out)

    @property
    def busy(self) -> bool:
        """True if some message is neither acknowledged nor back in the queue."""
        return bool(self._waiting) or any(self._out.values())

    def idle_s(self) -> float:
        """Seconds since the last message came, or 0 while any rank holds a message."""
        return 0.0 if self.busy else time.monotonic() - self._popped

    def collect(self) -> list[Done]:
        """Returns the messages reported done by ranks since the last call, for ``settle``."""
        done: list[Done] = []
        for writer in list(self._out):
            closed = writer.closed()
            out = self._out[writer]
            done += [(writer.rank, out.popleft()) for _ in range(writer.done())]
            if closed:
                self._drop(writer, "the rank closed before it was done with this message")
        return done

    def settle(self, done: Sequence[Done], lost_ranks: Collection[int] = ()) -> None:
        """Acknowledges collected messages, and renews the leases of all others.

        Messages that ``lost_ranks`` were done with go back to the queue: some of the items sent by
        these ranks were lost.
        """
        good = [message for rank, message in done if rank not in lost_ranks]
        undone = [message for rank, message in done if rank in lost_ranks]
        if good:
            self.done += len(good)
            self._try(lambda: self._source.ack_many(good))
        if undone:
            reason = "the rank died, and the items that it sent for this message were lost"
            self._try(lambda: self._source.nack_many(undone, reason=reason))
        held = [*self._waiting, *(message for out in self._out.values() for message in out)]
        if not held:
            self._renewed = time.monotonic()
            return
        lease_ms = min(message.lease_ms for message in held)
        if time.monotonic() - self._renewed >= lease_ms / 1000 * RENEW_AT:
            self._renewed = time.monotonic()
            self._try(lambda: self._source.extend_many(held, lease_ms))

    def feed(self, wait_ms: int) -> int:
        """Fetches as many messages as fit and hands them over; returns the number handed over."""
        room = sum(self._ahead - len(out) for out in self._out.values()) - len(self._waiting)
        if room > 0:
            fresh = self._without_oversized(
                self._source.pop_many(min(room, POP_COUNT), wait_ms=wait_ms)
            )
            self._waiting.extend(fresh)
            if fresh:
                self._popped = time.monotonic()
        before = len(self._waiting)
        least_first = sorted(self._out.items(), key=lambda pair: len(pair[1]))
        for at, (writer, out) in enumerate(least_first):
            # An even share, so that the first rank does not get all of a few messages.
            share = -(-len(self._waiting) // (len(least_first) - at))
            self._give(writer, out, min(share, self._ahead - len(out)))
        for writer, out in least_first:  # a second pass for the messages without room in the first
            self._give(writer, out, min(len(self._waiting), self._ahead - len(out)))
        return before - len(self._waiting)

    def abandon(self, rank: int, lost_ranks: Collection[int] = ()) -> None:
        """A rank died: others get its messages."""
        for writer in [writer for writer in self._out if writer.rank == rank]:
            done = [(rank, self._out[writer].popleft()) for _ in range(writer.done())]
            self.settle(done, lost_ranks)
            self._drop(writer, "the rank died before it was done with this message")

    def end(self, state: int) -> None:
        """Tells all receivers that no more messages come, and why; waiting messages go back."""
        assert state != COMING
        for writer in self._out:
            with suppress(RankLost):
                writer.end(state)
        if self._waiting:
            left, self._waiting = self._waiting, deque()
            reason = "no rank had room for the message"
            self._try(lambda: self._source.nack_many(left, reason=reason))

    def _without_oversized(self, fresh: Sequence[FanoutLease]) -> Sequence[FanoutLease]:
        """Returns messages to the queue that no receiver's ring can hold.

        One such message must not stop the others. The return counts as a failed delivery, so a
        dead-letter queue receives the message in the end; without a dead-letter queue the message
        comes back after ``OVERSIZED_DELAY_MS``.
        """
        body_bytes_max = min((writer.body_bytes_max for writer in self._out), default=0)
        oversized = [message for message in fresh if len(message.body) > body_bytes_max]
        if not oversized or not self._out:
            return fresh
        self.refused += len(oversized)
        sizes = max(len(message.body) for message in oversized)
        reason = (
            f"{sizes} bytes do not fit into a receiver's ring, which holds messages of up to "
            f"{body_bytes_max} bytes: start the gateway with a larger --ring-bytes (ring_bytes)"
        )
        _log.warning("mpi-gateway: %d messages were returned: %s", len(oversized), reason)
        self._try(
            lambda: self._source.nack_many(oversized, delay_ms=OVERSIZED_DELAY_MS, reason=reason)
        )
        return [message for message in fresh if len(message.body) <= body_bytes_max]

    def _give(self, writer: FanWriter, out: deque[FanoutLease], count: int) -> None:
        if not count:
            return
        offered = [self._waiting[at] for at in range(count)]
        try:
            taken = writer.offer([message.body for message in offered])
        except RankLost:
            return  # `abandon` follows when the connection reports the death; other ranks get these
        out.extend(self._waiting.popleft() for _ in range(taken))

    def _drop(self, writer: FanWriter, reason: str) -> None:
        left = self._out.pop(writer)
        if left:
            self._try(lambda: self._source.nack_many(left, reason=reason))

    def _try(self, settle: Callable[[], None]) -> None:
        """Settles messages; messages with expired leases are redelivered without further action."""
        try:
            settle()
        except LeaseLost:
            self.late += 1
