"""A map of null tasks: submission, run, commit and results, in counts for each task.

One thread does everything, so the counts do not depend on time: it maps, pops the batch, runs it by
the loop of a worker, and gathers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from weft import tasks
from weft.client.consumer.message import BaseMessage
from weft.client.lease_ticket import LeaseTicket
from weft.client.queue_core import QueueCore
from weft.client.transport.blocking_link import run
from weft.tasks import lease_loop
from weft.tasks.lease_loop import LeaseLoop
from weft.tasks.run_marker import RunMarker
from weft.tasks.worker_options import WorkerOptions

from .inside import Profile, opened
from .operations import low, patient

COUNT: Final = 4_000
_TIMES: Final = 10
_WARM_UP: Final = 2
_WAIT_MS: Final = 20_000


@contextmanager
def _unhurried() -> Iterator[None]:
    """A loop divides its work by time, and the parts of a slow machine would be counted."""
    before = lease_loop.HOARD_S, lease_loop.BUDGET_S
    lease_loop.HOARD_S = lease_loop.BUDGET_S = _WAIT_MS  # type: ignore[misc]
    try:
        yield
    finally:
        lease_loop.HOARD_S, lease_loop.BUDGET_S = before  # type: ignore[misc]


class _NoKeeper:
    def hold(self, held: Sequence[LeaseTicket]) -> None: ...

    def drop(self, nonces: Sequence[int]) -> None: ...


def measure(data: Path) -> dict[str, float]:
    with patient(), _unhurried(), opened(data) as inside:
        app = tasks.App("costs", inside.address)

        @app.task
        def null(value: float) -> float:
            return value

        steps = _Steps(app, null)
        try:
            for _ in range(_WARM_UP):
                steps.all()
            before = inside.traffic()
            for _ in range(_TIMES):
                steps.all()
            after = inside.traffic()
            found = {
                f"map of {COUNT:,}: {name}": (after[name] - before[name]) / _TIMES
                for name in ("messages on the wire", "store writes", "store writes, synced")
            }
            for name, figure in steps.counted(inside.in_client).items():
                found[f"map of {COUNT:,}: Python calls a task, {name}"] = figure
            return found
        finally:
            app.close()


class _Steps:
    """The three sides of a task, each a call of its own."""

    def __init__(self, app: tasks.App, null: Any) -> None:
        self._null = null
        self._queue = QueueCore(app.session, null.queue, BaseMessage)
        self._loop = LeaseLoop(
            app, app.session, _NoKeeper(), WorkerOptions(), [null.queue], RunMarker()
        )
        self._values = [0.5] * COUNT
        self._futures: list[tasks.Future] = []

    def submit(self) -> None:
        self._futures = self._null.map(self._values)

    def work(self) -> None:
        messages = run(self._queue.pop_many(COUNT, wait_ms=_WAIT_MS))
        assert len(messages) == COUNT
        self._loop._mean_s = 0.0  # nothing is popped ahead
        self._loop._left[messages[0]._lease.lent.nonce] += COUNT
        self._loop._work(messages)

    def gather(self) -> None:
        assert tasks.gather(self._futures, timeout=60) == self._values

    def all(self) -> None:
        for step in (self.submit, self.work, self.gather):
            step()

    def counted(self, profile: Profile) -> dict[str, float]:
        """The calls of each step in this thread, for a task."""
        found: dict[str, list[float]] = {"submitter": [], "worker": [], "reader": []}
        steps: dict[str, Callable[[], None]] = {
            "submitter": self.submit, "worker": self.work, "reader": self.gather,
        }  # fmt: skip
        for _ in range(_TIMES):
            for name, step in steps.items():
                began, before = profile.calls, sys.getprofile()
                sys.setprofile(profile)
                try:
                    step()
                finally:
                    sys.setprofile(before)
                found[name].append((profile.calls - began) / COUNT)
        return {name: low(counts) for name, counts in found.items()}
