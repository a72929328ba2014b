"""The loop of `weft provision`: sample, decide, start or stop workers, report.

| event | the provisioner |
|---|---|
| another provisioner holds the lease | watches and reports, and starts and stops nothing |
| the cluster does not answer | reports, decides nothing, and tries again at the next interval |
| a hook fails | reports, and pauses: an interval, then twice as long, up to `RETRY_S_MAX` |
| the provisioner ends | releases the lease; local workers stop after their running tasks |
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from weft.client.sync_client import Client
from weft.errors import WeftError
from weft.tasks.call import queue_name
from weft.tasks.heartbeat import WorkerBeat, beats_of

from .provisioner_lease import ProvisionerLease
from .slot_policy import LoadSample, SlotController, SlotDecision, SlotPolicy
from .worker_source import HookFailed, WorkerSource, workers_of

#: The longest pause after hooks that fail one after the other.
RETRY_S_MAX: Final = 300.0
#: The lease outlives so many missed renewals.
LEASE_INTERVALS: Final = 3
LEASE_S_MIN: Final = 3.0


class ProvisionReport(msgspec.Struct, frozen=True):
    """One interval, as `--json` prints it. Times are in seconds since 1970."""

    time: float
    leader: bool
    ready: int = 0
    running: int = 0
    arrivals: float = 0.0
    slot_rate: float = 0.0
    workers: int = 0
    slots: int = 0
    wanted: int = 0
    rule: str = ""
    started: int = 0
    stopped: int = 0
    hook_failures: int = 0
    error: str = ""


class Provisioner:
    """Belongs to one thread; `stop` may be called by any, and by signal handlers."""

    def __init__(
        self,
        client: Client,
        app: str,
        queues: Sequence[str],
        policy: SlotPolicy,
        source: WorkerSource,
        *,
        slots_per_worker: int = 1,
        name: str = "default",
        dry_run: bool = False,
        report: Callable[[ProvisionReport], Any] = lambda report: None,
    ) -> None:
        self._client = client
        self._app = app
        self._queues = {queue_name(app, queue) for queue in queues}
        self._policy = policy.checked()
        self._controller = SlotController(policy)
        self._source = source
        self._per_worker = slots_per_worker
        self._dry_run = dry_run
        self._report = report
        ttl_s = max(LEASE_S_MIN, LEASE_INTERVALS * policy.interval_s)
        self._lease = ProvisionerLease(client, app, name, ttl_s)
        self._ended = threading.Event()
        self.hook_failures = 0
        self._pause_s = 0.0
        self._hooks_at = 0.0

    def stop(self, now: bool = False) -> None:
        self._ended.set()

    def run(self) -> None:
        """Works until `stop`."""
        following = time.monotonic()
        try:
            while not self._ended.is_set():
                self._report(self.step())
                following = max(following + self._policy.interval_s, time.monotonic())
                self._ended.wait(following - time.monotonic())
        finally:
            self._lease.release()
            self._source.close()

    def step(self) -> ProvisionReport:
        """One interval."""
        leader, error = False, ""
        try:
            leader = self._lease.renew()
            ready, leased, ended = self._load()
            beats = self._beats()
        except WeftError as failure:
            error = f"the cluster was not asked: {failure.message}"
            return ProvisionReport(
                time.time(), self._lease.held, hook_failures=self.hook_failures, error=error
            )
        try:
            workers = self._source.count(beats)
        except HookFailed as failure:
            workers, error = len(beats), self._failed(failure)
        slots = workers * self._per_worker
        decision = self._controller.decide(
            LoadSample(time.monotonic(), ready, leased, ended, slots)
        )
        started = stopped = 0
        if leader and not error and not self._dry_run and time.monotonic() >= self._hooks_at:
            try:
                started, stopped = self._act(workers, decision, beats)
            except HookFailed as failure:
                error = self._failed(failure)
        return ProvisionReport(
            time.time(), leader, ready, leased, round(decision.arrivals, 3),
            round(decision.slot_rate, 6), workers, slots, decision.wanted, decision.rule, started,
            stopped, self.hook_failures, error,
        )  # fmt: skip

    def _act(
        self, workers: int, decision: SlotDecision, beats: Sequence[WorkerBeat]
    ) -> tuple[int, int]:
        wanted = workers_of(decision.wanted, self._per_worker)
        if not self._lease.held:  # the samples took longer than the lease
            return 0, 0
        if wanted > workers:
            self._source.start(wanted - workers)
            return wanted - workers, 0
        if wanted < workers and self._source.can_stop:
            idle = {beat.pid for beat in beats if not beat.running}
            self._source.stop(workers - wanted, idle)
            return 0, workers - wanted
        return 0, 0

    def _failed(self, failure: HookFailed) -> str:
        now = time.monotonic()
        if now > self._hooks_at + 2 * self._pause_s:
            self._pause_s = 0.0  # the last failure is long ago
        self._pause_s = min(max(self._policy.interval_s, 2 * self._pause_s), RETRY_S_MAX)
        self._hooks_at = now + self._pause_s
        self.hook_failures += 1
        return f"{failure}; hooks pause for {self._pause_s:g} s"

    def _load(self) -> tuple[int, int, int]:
        ready = leased = ended = 0
        for queue in self._client.list_queues(queue_name(self._app, "")):
            if not self._queues or queue.name in self._queues:
                ready += queue.ready
                leased += queue.leased
                ended += queue.acked
        return ready, leased, ended

    def _beats(self) -> list[WorkerBeat]:
        """The heartbeats of workers with one of the queues."""
        beats = beats_of(self._client, self._app)
        return [beat for beat in beats if not self._queues or self._queues & set(beat.queues)]
