"""Assembles the gangs of one queue, and watches those that run, in two threads of each worker.

The coordinators of all workers pop from the ordered queue of jobs. The lease of its head is one for
the whole cluster, so one job assembles at a time; a coordinator that dies loses the lease, and
another one begins a new epoch, which releases the members of the old one.

| event while a job assembles | the coordinator |
|---|---|
| there are fewer slots than members | fails the job; with `wait`, puts it behind the others |
| all members have joined | starts the epoch, in one transaction |
| a member that had joined is lost | begins a new epoch |
| the time is over | releases the members; the job fails, or goes behind the others |
| the job is cancelled | releases the members |
| its worker stops | releases the members; another worker goes on |
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from weft.client.lease_ticket import give_back
from weft.client.queue_core import QueueCore
from weft.client.routing.session import pause_s
from weft.client.sync_client import Client
from weft.client.transport.blocking_link import run
from weft.errors import LeaseLost, MessageLeased, TaskFailed, WeftError
from weft.ids import MessageId
from weft.tasks.call import BodyFrame
from weft.tasks.cancellation import CANCELLED, mark_prefix
from weft.tasks.heartbeat import beats_of
from weft.tasks.outcome import TaskError
from weft.tasks.signature import NO_KEYWORDS, encode
from weft.tasks.submission import LEASE_MS

from .gang_job import (
    ASSEMBLING,
    MEMBER_PRIORITY,
    RECORD_TTL_MS,
    RELEASED,
    RUNNING,
    GangJob,
    GangMember,
    GangRun,
    GangState,
    create_gang_queues,
    jobs_queue,
    outcome_of,
    outcomes_of,
    roster_prefix,
    runs_queue,
    state_key,
    store_outcome,
)
from .gang_monitor import GangMonitor

log = logging.getLogger("weft.tasks")

POP_WAIT_MS: Final = 500
#: Looks at the roster.
POLL_S: Final = 0.1
#: Looks for the loss of a member, and for a cancel.
LOSS_POLL_S: Final = 1.0
#: The pause of a job that waits for more workers.
WAIT_S: Final = 1.0
#: A worker that has just started is seen by its heartbeat after so long.
_BEATS_S: Final = 2.0


class GangCoordinator:
    def __init__(self, client: Client, app: str, queue: str) -> None:
        self._client = client
        self._app = app
        self._queue = queue
        self._ended = threading.Event()
        self._monitor = GangMonitor(client, app, queue, self._ended)
        self._threads = [
            threading.Thread(target=self._work, args=(turn,), name=name, daemon=True)
            for turn, name in (
                (self._assemble_one, "weft-gangs"),
                (self._monitor.turn, "weft-runs"),
            )
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _work(self, turn: Callable[[], None]) -> None:
        failures = 0
        while not self._ended.is_set():
            try:
                if not failures:
                    run(create_gang_queues(self._client._session, self._queue))
                while not self._ended.is_set():
                    turn()
                    failures = 0
            except WeftError as error:
                log.warning("gangs of %s wait: %s", self._queue, error.message)
                self._ended.wait(pause_s(failures))
                failures += 1
        if turn == self._monitor.turn:
            self._monitor.give_back()

    def _assemble_one(self) -> None:
        queue = self._client.queue(jobs_queue(self._queue))
        message = queue.pop(wait_ms=POP_WAIT_MS)
        if message is None:
            return
        try:
            job = msgspec.msgpack.decode(message.body, type=GangJob)
        except msgspec.DecodeError as error:
            log.error("message %s of %s is no gang's job: %s", message.id, queue.name, error)
            message.ack()
            return
        assembly = GangAssembly(self._client, self._app, self._queue, message, job, self._ended)
        try:
            assembly.run()
        except LeaseLost:
            log.info("another worker assembles the gang %s", assembly.id)


class GangAssembly:
    """One job at the head of its queue."""

    def __init__(
        self, client: Client, app: str, queue: str, message: object, job: GangJob,
        ended: threading.Event,
    ) -> None:  # fmt: skip
        from weft.client.consumer.sync_message import Message

        assert isinstance(message, Message)
        self._client, self._session = client, client._session
        self._app, self._queue = app, queue
        self._message = message
        self.id = MessageId.parse(job.id) if job.id else message.id
        self._job = msgspec.structs.replace(job, id=str(self.id))
        self._ended = ended
        self._extend_at = time.monotonic() + LEASE_MS / 3000

    def run(self) -> None:
        job = self._job
        if run(outcome_of(self._session, self._app, self.id)) is not None:
            self._message.ack()  # cancelled, or the end of an epoch was stored twice
            return
        slots = self._slots()
        if slots < job.size:
            self._not_now(
                "GangTooLarge",
                f"the gang needs {job.size} workers at once, and {slots} slots serve "
                f"{self._queue}: start more workers, or submit with wait=True",
            )
            return
        deadline = time.monotonic() + job.assemble_s
        while time.monotonic() < deadline and self._epoch(deadline):
            log.info("gang %s has lost a waiting member: it is assembled anew", self.id)

    def _slots(self) -> int:
        """Slots of all workers of the queue, this one included."""
        end = time.monotonic() + _BEATS_S
        while True:
            beats = [b for b in beats_of(self._client, self._app) if self._queue in b.queues]
            slots = sum(beat.concurrency for beat in beats)
            if slots >= self._job.size or time.monotonic() >= end or self._ended.is_set():
                return slots
            self._ended.wait(POLL_S)

    def _epoch(self, deadline: float) -> bool:
        """Assembles once; True if a waiting member was lost, and there is time for another one."""
        job, epoch = self._job, secrets.token_hex(6)
        self._write(GangState(epoch, ASSEMBLING))
        frame = BodyFrame(job.name)
        bodies = [
            frame.body(encode([job.id, epoch, rank, job.size, job.args, job.kwargs]), NO_KEYWORDS)
            for rank in range(job.size)
        ]
        tasks = self._client.queue(self._queue).push_many(bodies, priority=MEMBER_PRIORITY)
        began = look = time.monotonic()
        while True:
            members, now = self._roster(epoch), time.monotonic()
            self._extend(now)
            complete = len(members) == job.size
            if complete or now - look >= LOSS_POLL_S:
                look = now
                if self._lost(tasks):
                    self._release(epoch, tasks)
                    return True
                if self._cancelled():
                    self._release(epoch, tasks)
                    self._store(CANCELLED)
                    return False
            if complete:
                self._start(epoch, tasks, members)
                return False
            if self._ended.is_set():
                self._release(epoch, tasks)
                queue = QueueCore(self._session, jobs_queue(self._queue), type(self._message))
                run(give_back(queue, [self._message]))
                return False
            if now >= deadline:
                self._release(epoch, tasks)
                self._not_now(
                    "GangTimeout",
                    f"{len(members)} of {job.size} workers were free within {now - began:.1f} s: "
                    "all are released",
                )
                return False
            self._ended.wait(POLL_S)

    def _start(self, epoch: str, tasks: list[MessageId], members: list[GangMember]) -> None:
        job = self._job
        made = GangRun(job, epoch, [str(each) for each in tasks], members)
        with self._client.transaction() as tx:
            tx.ack(self._message)
            tx.push(runs_queue(self._queue), encode(made))
            state = encode(GangState(epoch, RUNNING, members))
            tx.kv.insert(state_key(self._app, job.id), state, ttl_ms=RECORD_TTL_MS)
        log.info("gang %s (%s) runs on %d workers", self.id, job.name, job.size)

    def _not_now(self, error: str, text: str) -> None:
        """The job fails; with `wait` it goes behind the other jobs."""
        job = self._job
        if not job.wait:
            self._store(TaskError(TaskFailed.code, error, text))
            log.warning("gang %s (%s) failed: %s", self.id, job.name, text)
            return
        with self._client.transaction() as tx:
            tx.ack(self._message)
            tx.push(jobs_queue(self._queue), encode(job))
        self._ended.wait(WAIT_S)

    def _store(self, outcome: TaskError) -> None:
        run(store_outcome(self._session, self._app, self.id, outcome, self._job, self._queue))
        self._message.ack()

    def _release(self, epoch: str, tasks: list[MessageId]) -> None:
        """Ends the waiting members, and withdraws the invitations."""
        self._write(GangState(epoch, RELEASED))
        queue = self._client.queue(self._queue)
        for each in tasks:
            try:
                queue.cancel(each)
            except MessageLeased:
                pass  # the member sees the state

    def _roster(self, epoch: str) -> list[GangMember]:
        prefix = roster_prefix(self._app, self._job.id, epoch)
        page = self._client.kv.scan(prefix)
        entries = list(page)
        while page.more:
            page = self._client.kv.scan(prefix, after=page.after)
            entries += page
        found = [msgspec.msgpack.decode(each.value, type=GangMember) for each in entries]
        return sorted(found, key=lambda member: member.rank)

    def _lost(self, tasks: list[MessageId]) -> bool:
        """True if the task of a member has ended before the start."""
        return bool(run(outcomes_of(self._session, self._app, tasks)))

    def _cancelled(self) -> bool:
        return self._client.kv.lookup(mark_prefix(self._app) + self._job.id) is not None

    def _extend(self, now: float) -> None:
        if now >= self._extend_at:
            self._extend_at = now + LEASE_MS / 3000
            self._message.extend(LEASE_MS)

    def _write(self, state: GangState) -> None:
        key = state_key(self._app, self._job.id)
        self._client.kv.insert(key, encode(state), ttl_ms=RECORD_TTL_MS)
