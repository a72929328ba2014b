"""What the gateway's rank does, round by round, until all other ranks have left.

One round: see who died; collect what ranks have done; sweep and push all that was sent before
that; only then acknowledge what was done. So what a rank sends because of a message is stored
before the message is acknowledged, and a gateway that dies in between makes the message come
again: nothing is lost, something may be done twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from .fan import OVER
from .fanout import Fanout
from .job import Job
from .lifeline import Lifelines
from .sender import watermark
from .shape import OWN
from .sweepqueue import SweepDequeuer

#: How long an idle gateway sleeps between two looks.
IDLE_SECONDS: Final = 0.0005
#: How often it looks who has died: a look is a system call.
LOOK_SECONDS: Final = 0.02
#: A pop waits so long for a first message when nothing else is to be done.
POP_WAIT_MS: Final = 5
#: More than one sweep ever takes, so that a sweep is always handed out whole.
SWEEP_ALL: Final = 2**31


@dataclass(frozen=True, slots=True)
class Totals:
    """What a gateway did in all."""

    #: Items that ranks sent and that are stored.
    pushed: int = 0
    #: Messages that ranks received and were done with.
    done: int = 0
    #: Ranks that died on the way.
    dead: tuple[int, ...] = ()


class Drain:
    """From the ranks' rings into a queue."""

    def __init__(self, job: Job) -> None:
        self._job = job
        assert isinstance(job.dequeuer, SweepDequeuer)
        self._sweeper = job.dequeuer
        self._stored = [0] * job.shape.enqueuers
        self.pushed = 0

    def over(self) -> bool:
        return self._sweeper.drained()

    def push_all(self, push: Callable[[list[bytes]], None]) -> int:
        """Push what is in the rings at this moment; how many items that was."""
        fresh, backlog = 0, self._sweeper.backlog()
        while fresh < backlog:
            items = self._sweeper.dequeue_many(SWEEP_ALL)
            push(items)
            fresh += len(items)
            self._stored = self._sweeper.taken()
            self._publish(failed=False)
        self.pushed += fresh
        return fresh

    def abandon(self, rank: int) -> None:
        self._sweeper.abandon(rank)

    def fail(self) -> None:
        """Tell all senders that nothing more is stored."""
        self._publish(failed=True)

    def _publish(self, failed: bool) -> None:
        """The watermark of every sender, after the push that covers it was acknowledged."""
        for number, count in enumerate(self._stored):
            rank = self._job.shape.rank(number)
            self._job.window.store(rank, OWN, watermark(count, failed))


class Rounds:
    """The loop over both ways; either may be missing."""

    def __init__(
        self,
        lines: Lifelines,
        drain: Drain | None,
        push: Callable[[list[bytes]], None],
        fanout: Fanout | None,
        abandoned: set[int],
    ) -> None:
        self._lines = lines
        self._drain = drain
        self._push = push
        self._fanout = fanout
        #: Ranks that the caller has given up; it may grow.
        self._abandoned = abandoned
        self._gone: set[int] = set()
        self._looked = 0.0
        self._ended = False

    def run(self, idle_s: float | None) -> Totals:
        """Until all ranks have closed or died."""
        while not self._over():
            self._let_go()
            done = self._fanout.collect() if self._fanout is not None else []
            moved = len(done)
            if self._drain is not None:
                moved += self._drain.push_all(self._push)
            if self._fanout is not None:
                self._fanout.settle(done)
                moved += self._feed(self._fanout, idle_s, wait_ms=0 if moved else POP_WAIT_MS)
            if not moved:
                time.sleep(IDLE_SECONDS)
        if self._fanout is not None:
            self._fanout.end(OVER)  # what was fetched and never handed over goes back
        return Totals(
            self._drain.pushed if self._drain is not None else 0,
            self._fanout.done if self._fanout is not None else 0,
            tuple(sorted(self._gone)),
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
        """Wait no more for ranks that have died since the last look."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        fresh: Sequence[int] = sorted((self._lines.look() | self._abandoned) - self._gone)
        for rank in fresh:
            self._gone.add(rank)
            if self._drain is not None:
                self._drain.abandon(rank)
            if self._fanout is not None:
                self._fanout.abandon(rank)
