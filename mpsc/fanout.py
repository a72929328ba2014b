"""The gateway's part in handing a queue's messages to ranks.

A message goes to one rank, the one that has least to do, and is acknowledged in its queue only
when that rank has said done. Until then its lease is renewed. What a rank had and was not done
with when it closed or died goes back to the queue, as one failed delivery, and from there to
another rank; so a message that kills whoever works on it ends as a dead letter, if its queue has
one. A message may be worked on twice, and is never lost: at least once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from weft.errors import LeaseLost

from .fan import COMING, FanWriter

#: Leases are renewed when this part of their time is over.
RENEW_AT: Final = 1 / 3
#: Messages fetched by one pop at most.
POP_COUNT: Final = 1024


class Lent(Protocol):
    """A message of Weft's client, as far as it is needed here."""

    @property
    def body(self) -> bytes: ...

    @property
    def lease_ms(self) -> int: ...


class Source(Protocol):
    """A queue of Weft's client, as far as it is needed here."""

    def pop_many(self, limit: int, *, wait_ms: int) -> Sequence[Any]: ...

    def ack_many(self, messages: Iterable[Any]) -> None: ...

    def nack_many(self, messages: Iterable[Any], *, reason: str) -> None: ...

    def extend_many(self, messages: Iterable[Any], lease_ms: int) -> None: ...


class Fanout:
    """Hands messages to receivers and settles them. Call the methods in turn, in one thread."""

    def __init__(self, source: Source, writers: Sequence[FanWriter], ahead: int) -> None:
        self._source = source
        self._ahead = ahead
        #: What each receiver has, oldest first; one that has left is no longer in it.
        self._out: dict[FanWriter, deque[Lent]] = {writer: deque() for writer in writers}
        self._waiting: deque[Lent] = deque()
        self._renewed = time.monotonic()
        self._popped = time.monotonic()
        #: Messages that ranks were done with, and how often some lease had ended before its time.
        self.done = 0
        self.late = 0

    @property
    def receivers(self) -> int:
        return len(self._out)

    @property
    def busy(self) -> bool:
        """Some message is neither acknowledged nor back in the queue."""
        return bool(self._waiting) or any(self._out.values())

    def idle_s(self) -> float:
        """For how long nothing came and nobody had anything."""
        return 0.0 if self.busy else time.monotonic() - self._popped

    def collect(self) -> list[Lent]:
        """The messages that ranks have said done to since the last call, for ``settle``."""
        done: list[Lent] = []
        for writer in list(self._out):
            closed = writer.closed()
            out = self._out[writer]
            done += [out.popleft() for _ in range(writer.done())]
            if closed:
                self._drop(writer, "the rank closed before it was done with this message")
        return done

    def settle(self, done: Sequence[Lent]) -> None:
        """Acknowledge what was collected, and renew the leases of all else."""
        if done:
            self.done += len(done)
            self._try(lambda: self._source.ack_many(done))
        held = [*self._waiting, *(message for out in self._out.values() for message in out)]
        if not held:
            self._renewed = time.monotonic()
            return
        lease_ms = min(message.lease_ms for message in held)
        if time.monotonic() - self._renewed >= lease_ms / 1000 * RENEW_AT:
            self._renewed = time.monotonic()
            self._try(lambda: self._source.extend_many(held, lease_ms))

    def feed(self, wait_ms: int) -> int:
        """Fetch what there is room for and hand it over; how many were handed over."""
        room = sum(self._ahead - len(out) for out in self._out.values()) - len(self._waiting)
        if room > 0:
            fresh = self._source.pop_many(min(room, POP_COUNT), wait_ms=wait_ms)
            self._waiting.extend(fresh)
            if fresh:
                self._popped = time.monotonic()
        before = len(self._waiting)
        least_first = sorted(self._out.items(), key=lambda pair: len(pair[1]))
        for at, (writer, out) in enumerate(least_first):
            # An even share of what there is, so that the first rank does not get all of little.
            share = -(-len(self._waiting) // (len(least_first) - at))
            self._give(writer, out, min(share, self._ahead - len(out)))
        for writer, out in least_first:  # and what those had no room for
            self._give(writer, out, min(len(self._waiting), self._ahead - len(out)))
        return before - len(self._waiting)

    def abandon(self, rank: int) -> None:
        """A rank died: others get what it had."""
        for writer in [writer for writer in self._out if writer.rank == rank]:
            done = [self._out[writer].popleft() for _ in range(writer.done())]
            self.settle(done)
            self._drop(writer, "the rank died before it was done with this message")

    def end(self, state: int) -> None:
        """Tell all receivers that no more comes, and why; what is left goes back."""
        assert state != COMING
        for writer in self._out:
            writer.end(state)
        if self._waiting:
            left, self._waiting = self._waiting, deque()
            self._try(lambda: self._source.nack_many(left, reason="no rank had room for it"))

    def _give(self, writer: FanWriter, out: deque[Lent], count: int) -> None:
        if not count:
            return
        offered = [self._waiting[at] for at in range(count)]
        taken = writer.offer([message.body for message in offered])
        out.extend(self._waiting.popleft() for _ in range(taken))

    def _drop(self, writer: FanWriter, reason: str) -> None:
        left = self._out.pop(writer)
        if left:
            self._try(lambda: self._source.nack_many(left, reason=reason))

    def _try(self, settle: Callable[[], None]) -> None:
        """Settle messages; those whose leases have ended come again by themselves."""
        try:
            settle()
        except LeaseLost:
            self.late += 1
