"""The loop of the gateway's rank, round by round, until all other ranks have left.

One round: find dead ranks; collect the messages that ranks are done with; sweep and push all items
sent before that; only then acknowledge the messages. So the items that a rank sends because of a
message are stored before the message is acknowledged. If the gateway dies in between, the message
is delivered again: nothing is lost, some work may be done twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from weft.errors import RankLost

from .fanout import Fanout
from .fanout_ring import OVER
from .job import Job
from .liveness import GatewayLiveness
from .rings import RingDequeuer
from .sender import watermark
from .shape import OWN

#: Sleep of an idle gateway between two rounds.
IDLE_SECONDS: Final = 0.0005
#: Time for the connection of a rank to report its end after its memory is out of reach.
TOLD_SECONDS: Final = 1.0
#: Interval of the checks for dead ranks: a check is a system call.
POLL_SECONDS: Final = 0.02
#: Wait of a pop for a first message when the gateway has nothing else to do.
POP_WAIT_MS: Final = 5
#: More than one sweep ever takes, so that one call returns a complete sweep.
SWEEP_ALL: Final = 2**31


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of one gateway run."""

    #: Items sent by ranks and stored.
    pushed: int = 0
    #: Messages that ranks received and were done with.
    done: int = 0
    #: Ranks that died during the run.
    dead: tuple[int, ...] = ()
    #: Deliveries refused because the message was larger than a receiver's ring.
    refused: int = 0


class Drain:
    """Moves items from the ranks' rings into a queue."""

    def __init__(self, job: Job) -> None:
        self._job = job
        assert isinstance(job.dequeuer, RingDequeuer)
        self._sweeper = job.dequeuer
        self._stored = [0] * job.shape.enqueuers
        #: Ranks that get no watermark any more.
        self._gone: set[int] = set()
        #: Ranks with unreachable memory, perhaps before their connection reported the end.
        self.unreachable: set[int] = set()
        #: Dead ranks with lost items, because their memory is gone.
        self.lost_ranks: set[int] = set()
        self.pushed = 0

    def over(self) -> bool:
        return self._sweeper.drained()

    def push_all(self, push: Callable[[list[bytes]], None]) -> int:
        """Pushes the items that are in the rings at the moment; returns their number."""
        fresh, backlog = 0, self._sweeper.backlog()
        while fresh < backlog:
            try:
                items = self._sweeper.dequeue_many(SWEEP_ALL)
            except RankLost as lost:
                self._lose(lost.rank)  # the backlog may be smaller from here on
                backlog = fresh + self._sweeper.backlog()
                continue
            if not items:
                break  # the rest is not announced yet, or its sender is dead and not yet abandoned
            push(items)
            fresh += len(items)
            self._stored = self._sweeper.taken()
            self._publish(failed=False)
        self.pushed += fresh
        return fresh

    def abandon(self, rank: int) -> None:
        self._gone.add(rank)
        before = self._sweeper.lost
        self._sweeper.abandon(rank)
        if self._sweeper.lost > before:
            self.lost_ranks.add(rank)

    def fail(self) -> None:
        """Tells all senders that nothing more is stored."""
        self._publish(failed=True)

    def _publish(self, failed: bool) -> None:
        """Writes every sender's watermark, after the push that it covers was acknowledged."""
        for number, count in enumerate(self._stored):
            rank = self._job.shape.rank(number)
            if rank in self._gone:
                continue
            try:
                self._job.window.store(rank, OWN, watermark(count, failed))
            except RankLost as lost:
                self._lose(lost.rank)

    def _lose(self, rank: int) -> None:
        self.unreachable.add(rank)
        self.abandon(rank)


class GatewayLoop:
    """The loop over both directions; either may be missing."""

    def __init__(
        self,
        lines: GatewayLiveness,
        drain: Drain | None,
        push: Callable[[list[bytes]], None],
        fanout: Fanout | None,
        abandoned: set[int],
    ) -> None:
        self._lines = lines
        self._drain = drain
        self._push = push
        self._fanout = fanout
        #: Ranks given up by the caller; the set may grow.
        self._abandoned = abandoned
        self._gone: set[int] = set()
        self._polled_at = 0.0
        self._ended = False

    def run(self, idle_s: float | None) -> Totals:
        """Runs until all ranks have closed or died."""
        while not self._over():
            if time.monotonic() - self._polled_at >= POLL_SECONDS:
                self._let_go()
            done = self._fanout.collect() if self._fanout is not None else []
            moved = len(done)
            if self._drain is not None:
                moved += self._drain.push_all(self._push)
            if self._fanout is not None:
                self._fanout.settle(done, self._lost_ranks())
                moved += self._feed(self._fanout, idle_s, wait_ms=0 if moved else POP_WAIT_MS)
            if not moved:
                time.sleep(IDLE_SECONDS)
        self._account_for_unreachable()
        self._let_go()  # the totals include a rank that died just now
        if self._fanout is not None:
            self._fanout.end(OVER)  # messages fetched and never handed over go back
        return Totals(
            self._drain.pushed if self._drain is not None else 0,
            self._fanout.done if self._fanout is not None else 0,
            tuple(sorted(self._gone)),
            self._fanout.refused if self._fanout is not None else 0,
        )

    def _over(self) -> bool:
        return (self._drain is None or self._drain.over()) and (
            self._fanout is None or not self._fanout.receivers
        )

    def _feed(self, fanout: Fanout, idle_s: float | None, wait_ms: int) -> int:
        if self._ended:
            return 0
        fed = fanout.feed(wait_ms)
        if idle_s is not None and fanout.idle_s() >= idle_s:
            fanout.end(OVER)
            self._ended = True
        return fed

    def _let_go(self) -> None:
        """Abandons the ranks that have died since the last check."""
        self._polled_at = time.monotonic()
        self._lines.poll()
        fresh: Sequence[int] = sorted((self._lines.dead | self._abandoned) - self._gone)
        for rank in fresh:
            self._gone.add(rank)
            if self._drain is not None:
                self._drain.abandon(rank)
                self._drain.push_all(self._push)  # before its finished messages are acknowledged
            if self._fanout is not None:
                self._fanout.abandon(rank, self._lost_ranks())

    def _account_for_unreachable(self) -> None:
        """Determines the fate of ranks with unreachable memory: left in good order, or dead.

        The rank's connection tells which; a rank without a report is abandoned. The gateway reads
        the set of abandoned ranks, too, and makes no collective call with a dead rank.
        """
        unknown = set(self._drain.unreachable) if self._drain is not None else set()
        deadline = time.monotonic() + TOLD_SECONDS
        while unknown := unknown - self._lines.ended():
            if time.monotonic() > deadline:
                self._abandoned |= unknown
                return
            time.sleep(IDLE_SECONDS)

    def _lost_ranks(self) -> Collection[int]:
        return self._drain.lost_ranks if self._drain is not None else ()
