"""Watches running gangs: their end, the loss of a member, a cancel.

The message of a run is leased by one worker, which renews the lease. If that worker dies, another
one gets the message and goes on: everything else about the run is in the cluster.

| event | the monitor |
|---|---|
| all members have succeeded | stores the list of their results as the job's |
| a member fails, or is lost | cancels the others: they are interrupted, and killed 5 s later |
| all have ended, one without success | the job is assembled again, or fails with the reason |
| the job is cancelled | cancels all members |
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from weft.client.lease_ticket import give_back
from weft.client.queue_core import QueueCore
from weft.client.sync_client import Client
from weft.client.transport.blocking_link import run
from weft.errors import LeaseLost, TaskCancelled, TaskFailed, WeftError
from weft.ids import MessageId
from weft.tasks.batch_results import BatchResults
from weft.tasks.cancellation import CANCELLED, cancel_task, mark_prefix
from weft.tasks.large_result import stored_result
from weft.tasks.loss_reason import reason_of
from weft.tasks.outcome import RESULT_BYTES_MAX, LargeResult, Outcome, TaskError
from weft.tasks.signature import encode
from weft.tasks.submission import LEASE_MS

from .gang_job import (
    GangRun,
    jobs_queue,
    outcome_of,
    outcomes_of,
    runs_queue,
    state_key,
    store_outcome,
)

log = logging.getLogger("weft.tasks")

#: A monitor watches so many gangs at once.
RUNS_MAX: Final = 64
#: The pause between two looks, while gangs run and while none runs.
POLL_MS: Final = 200
IDLE_MS: Final = 500


@dataclass
class WatchedRun:
    message: Any
    run: GangRun
    extend_at: float
    #: The first failure: the reason of the end.
    reason: TaskError | None = None
    cancelled: bool = False


class GangMonitor:
    """Belongs to one thread."""

    def __init__(self, client: Client, app: str, queue: str, ended: threading.Event) -> None:
        self._client, self._session = client, client._session
        self._app, self._queue = app, queue
        self._ended = ended
        self._watched: list[WatchedRun] = []

    def turn(self) -> None:
        """One look at all runs."""
        if len(self._watched) < RUNS_MAX:
            wait_ms = POLL_MS if self._watched else IDLE_MS
            message = self._client.queue(runs_queue(self._queue)).pop(wait_ms=wait_ms)
            if message is not None:
                self._take(message)
        else:
            self._ended.wait(POLL_MS / 1000)
        for each in list(self._watched):
            try:
                self._check_run(each)
            except LeaseLost:
                self._watched.remove(each)

    def give_back(self) -> None:
        """Another worker goes on with the runs."""
        if not self._watched:
            return
        messages = [each.message for each in self._watched]
        queue = QueueCore(self._session, runs_queue(self._queue), type(messages[0]))
        try:
            run(give_back(queue, messages))
        except WeftError as error:
            log.info("running gangs are watched again after their lease: %s", error.message)

    def _take(self, message: Any) -> None:
        try:
            made = msgspec.msgpack.decode(message.body, type=GangRun)
        except msgspec.DecodeError as error:
            log.error("message %s of %s is no gang: %s", message.id, message.queue, error)
            message.ack()
            return
        self._watched.append(WatchedRun(message, made, time.monotonic() + LEASE_MS / 3000))

    def _check_run(self, one: WatchedRun) -> None:
        now = time.monotonic()
        if now >= one.extend_at:
            one.extend_at = now + LEASE_MS / 3000
            one.message.extend(LEASE_MS)
        tasks = [MessageId.parse(each) for each in one.run.tasks]
        ends = run(outcomes_of(self._session, self._app, tasks))
        if one.reason is None:
            one.reason = self._failure(one, tasks, ends)
            if one.reason is None and self._mark(one.run.job.id):
                one.reason = CANCELLED
        if one.reason is not None and not one.cancelled:
            one.cancelled = True
            log.info("gang %s ends: %s", one.run.job.id, one.reason.text)
            for each in tasks:
                if each not in ends:
                    run(cancel_task(self._session, self._app, each, [self._queue]))
        if len(ends) == len(tasks):
            self._end(one, tasks, ends)
            self._watched.remove(one)

    def _failure(
        self, one: WatchedRun, tasks: list[MessageId], ends: dict[MessageId, Any]
    ) -> TaskError | None:
        """The failure of a member, with its rank and place; a loss before its consequences."""
        failed = [
            (rank, ends[number][1])
            for rank, number in enumerate(tasks)
            if number in ends and isinstance(ends[number][1], TaskError)
        ]
        if not failed:
            return None
        # Others fail because a member is gone: the loss is the reason.
        order = {"WORKER_LOST": 0, TaskCancelled.code: 2}
        rank, error = min(failed, key=lambda each: order.get(each[1].kind, 1))
        member = one.run.members[rank]
        reason = run(reason_of(self._session, self._app, tasks[rank]))
        text = (
            f"rank {rank} of {len(tasks)} (process {member.pid} of {member.host}): "
            f"{error.error}: {error.text}"
        )
        if reason and reason not in text:
            text += f" ({reason})"
        return TaskError(error.kind, error.error, text, error.trace)

    def _end(self, one: WatchedRun, tasks: list[MessageId], ends: dict[MessageId, Any]) -> None:
        job = one.run.job
        number = MessageId.parse(job.id)
        cancelled = self._mark(job.id)
        if one.reason is not None and job.attempt < job.attempts and not cancelled:
            again = msgspec.structs.replace(job, attempt=job.attempt + 1)
            with self._client.transaction() as tx:
                tx.ack(one.message)
                tx.push(jobs_queue(self._queue), encode(again))
            log.warning("gang %s is tried again: %s", job.id, one.reason.text)
            return
        outcome: Outcome = one.reason or self._results(tasks, ends, job.ttl_ms)
        run(store_outcome(self._session, self._app, number, outcome, job, self._queue))
        assert run(outcome_of(self._session, self._app, number)) is not None
        self._client.kv.remove(state_key(self._app, job.id))
        one.message.ack()

    def _results(
        self, tasks: list[MessageId], ends: dict[MessageId, Any], job_ttl_ms: int
    ) -> Outcome:
        """The list of the members' results, by rank."""
        parts: list[msgspec.Raw] = []
        for number in tasks:
            results, outcome = ends[number]
            assert isinstance(results, BatchResults)
            if isinstance(outcome, LargeResult):
                parts.append(msgspec.Raw(run(results._chunks(number, outcome.keys))))
            else:
                parts.append(outcome)
        data = encode(parts)
        if len(data) > RESULT_BYTES_MAX:
            return TaskError(
                TaskFailed.code, "TooLarge",
                f"the results of the gang have {len(data)} bytes together, at most "
                f"{RESULT_BYTES_MAX} are allowed: return them from rank 0 alone",
            )  # fmt: skip
        return run(stored_result(self._session, self._app, data, job_ttl_ms))

    def _mark(self, job: str) -> bool:
        return self._client.kv.lookup(mark_prefix(self._app) + job) is not None
