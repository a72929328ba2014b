"""Settlement of the tasks of a worker: results, effects, acknowledgements, retries.

| the run | the task |
|---|---|
| ended, once="effects" or "start" | one commit per partition: results, effects, acks |
| ended, once="none" | results are written, then effects, then the acks: at least once |
| failed, attempts left | is nacked with the pause of its backoff; has no result and no effects |
| has an unknown name | is given back uncounted, with a growing delay |

A commit under a lost lease changes nothing: another worker has the task.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from weft.client.consumer.message import BaseMessage
from weft.client.key_group import KeyGroup
from weft.client.kv_core import KvCore
from weft.client.lease_ticket import give_back
from weft.client.queue_core import QueueCore
from weft.client.routing.session import ClientSession
from weft.client.transaction.home_numbers import HomeNumbers
from weft.errors import LeaseLost, QueueNotFound, WeftError
from weft.ids import INDEX_BITS, MessageId

from . import outcome as outcomes
from .call import batch_of, queue_name, result_prefix
from .execution import TaskRun
from .failed_call import failed_writes
from .graph_ends import failed_by_itself, is_plain, links_of, ttl_of
from .graph_inputs import GraphInputs
from .graph_submission import ensure_graph_queue
from .heartbeat import PlacementCounts, TaskCounts
from .large_result import store_large
from .loss_reason import explain_losses
from .outcome import LargeResult, PickledResult, TaskError, task_error
from .signature import encode
from .sites.placement import Placement
from .submission import create_queue
from .task import NONE, AppTask
from .task_commit import (
    EndedPart,
    TaskCommit,
    column_commits,
    column_writes,
    commit_columns,
    commit_tasks,
    portions,
)
from .task_context import EffectPush, EffectWrite
from .task_trace import end_spans

log = logging.getLogger("weft.tasks")

#: Pauses before an unknown task is delivered again: doubled each time a worker finds it.
UNKNOWN_MS_MIN: Final = 1_000
UNKNOWN_MS_MAX: Final = 60_000
#: Retries with almost equal pauses are one request.
_PAUSE_STEP_MS: Final = 100
#: Written together for tasks with once="none".
_WRITE_KEYS: Final = 1_000
_WRITE_BYTES: Final = 4 << 20


class TaskSettlement:
    """Coroutines over a client's session; threads may share an instance of a blocking session."""

    def __init__(self, session: ClientSession, app: str) -> None:
        self._session = session
        self._app = app
        self._numbers = HomeNumbers(session)
        #: Results of parents, for tasks of graphs.
        self.inputs = GraphInputs(session, app)
        self._unknown: dict[str, int] = {}
        self.succeeded = self.failed = self.retried = self.lost = 0
        #: Where tasks near data were run.
        self.placements: Sequence[Placement[Any]] = ()
        #: Time in tasks, counted by the loop.
        self.busy_s = 0.0
        self._ended: Counter[AppTask[Any, Any] | None] = Counter()
        self._failures: Counter[AppTask[Any, Any] | None] = Counter()

    @property
    def counts(self) -> TaskCounts:
        placed = PlacementCounts()
        for each in self.placements:
            placed = placed.plus(each.counts)
        by_task = {
            task.name: (ended - self._failures[task], self._failures[task])
            for task, ended in list(self._ended.items())
            if task is not None
        }
        return TaskCounts(
            self.succeeded, self.failed, self.retried, self.lost, placed, self.busy_s, by_task
        )

    async def settle(self, runs: Sequence[TaskRun], parts: Sequence[EndedPart] = ()) -> None:
        """Settles runs, and parts of columns, of any leases. Logs failures: the tasks are delivered
        again."""
        if parts:
            await self._end_parts(parts)
        if not runs:
            return
        ended = [run for run in runs if run.retry_ms < 0 and not run.unknown]
        if ended:
            await self._end(ended)
        if len(ended) < len(runs):
            await self._retry([run for run in runs if run.retry_ms >= 0])
            await self._return([run for run in runs if run.unknown])

    # --- ended parts of columns ---

    async def _end_parts(self, parts: Sequence[EndedPart]) -> None:
        promised = [part for part in parts if part.task.options.once != NONE]
        found = [
            each for part in promised for each in column_commits(self._session, self._app, part)
        ]
        commits = [commit for _, commit in found]
        ends = await commit_columns(self._session, self._numbers, commits) if commits else []
        for (part, _), error in zip(found, ends, strict=True):
            self._count_part(part, error)
        if len(promised) < len(parts):
            for part in parts:
                if part.task.options.once == NONE:
                    await self._end_part_plain(part)

    async def _end_part_plain(self, part: EndedPart) -> None:
        """Results, then acks: a crash in between runs the tasks again."""
        error: WeftError | None = None
        try:
            for block in column_writes(self._session, self._app, part):
                await KvCore(self._session).insert(block.key, block.value, ttl_ms=block.ttl_ms)
            await self._core(part.lease.queue).ack_claims([part.claim])
        except WeftError as failure:
            error = failure
        self._count_part(part, error)

    def _count_part(self, part: EndedPart, error: WeftError | None) -> None:
        count = len(part.rows)
        if error is None:
            self.succeeded += count
            self._ended[part.task] += count
        else:
            self.lost += count
            log.warning("%d tasks are delivered again: %s", count, error.message)

    # --- ended runs ---

    async def _end(self, runs: list[TaskRun]) -> None:
        await explain_losses(self._session, self._app, runs)
        await store_large(self._session, self._app, runs)
        promised = [run for run in runs if not is_plain(run)]
        parts = [part for some in _by_partition(promised) for part in portions(some, pushes_of)]
        if parts:
            await self._commit(parts)
        if len(promised) < len(runs):
            await self._end_plain([run for run in runs if is_plain(run)])

    async def _commit(self, parts: list[list[TaskRun]]) -> None:
        commits = [
            TaskCommit(part, self._blocks(part), [push for run in part for push in pushes_of(run)])
            for part in parts
        ]
        ends = await commit_tasks(self._session, self._numbers, commits)
        for commit, error in zip(commits, ends, strict=True):
            if error is None or isinstance(error, LeaseLost) or error.retriable:
                self._count(commit.runs, error)
            else:
                await self._end_refused(commit, error)

    async def _end_refused(self, commit: TaskCommit, error: WeftError) -> None:
        """The cluster refused the effects of a task, which fails then; the others must not."""
        if isinstance(error, QueueNotFound):
            for queue in {push.queue for push in commit.pushes}:
                if queue.startswith(queue_name(self._app, "")):
                    await create_queue(self._session, queue)
        begun = [plan for run in commit.runs if run.effects for plan in run.effects.graphs]
        for queue in {queue for plan in begun for queue in plan.queues}:
            await ensure_graph_queue(self._session, queue, sure=True)
        if len(commit.runs) > 1 or begun or isinstance(error, QueueNotFound):
            for run in commit.runs:
                part = TaskCommit([run], self._blocks([run]), list(pushes_of(run)))
                (end,) = await commit_tasks(self._session, self._numbers, [part])
                if end is None or isinstance(end, LeaseLost) or end.retriable:
                    self._count([run], end)
                else:
                    await self._end_without_effects(run, end)
        else:
            await self._end_without_effects(commit.runs[0], error)

    async def _end_without_effects(self, run: TaskRun, error: WeftError) -> None:
        run.effects, run.outcome = None, task_error(error)
        part = TaskCommit([run], self._blocks([run]), [])
        (end,) = await commit_tasks(self._session, self._numbers, [part])
        self._count([run], end)

    def _count(self, runs: Sequence[TaskRun], error: WeftError | None) -> None:
        if error is not None:
            self.lost += len(runs)
            log.warning("%d tasks are delivered again: %s", len(runs), error.message)
            end_spans(runs, "lease lost")
            return
        end_spans(runs, "acked")
        self._ended.update([run.task for run in runs])
        failed = 0
        for run in runs:
            if links_of(run) is not None and run.outcome is not None:
                self.inputs.remember(run.message.id, run.outcome)
            if isinstance(run.outcome, TaskError):
                failed += 1
                self._failures[run.task] += 1
                # The failure of a task before it was logged where it happened.
                level = logging.WARNING if failed_by_itself(run) else logging.DEBUG
                words = run.outcome.error, run.outcome.text
                log.log(level, "%s failed: %s: %s", name_of(run), *words)
        self.failed += failed
        self.succeeded += len(runs) - failed

    def _blocks(self, runs: list[TaskRun]) -> list[EffectWrite]:
        """The results, in a block for each batch, on the partition of the batch."""
        by_batch: dict[tuple[int, int], list[tuple[int, outcomes.Outcome]]] = {}
        for run in runs:
            ttl = ttl_of(run)
            assert run.outcome is not None
            number = run.message.id
            by_batch.setdefault((batch_of(number), ttl), []).append((number.index, run.outcome))
        writes: list[EffectWrite] = []
        for (batch, ttl), rows in by_batch.items():
            first = MessageId(batch << INDEX_BITS)
            group = KeyGroup(self._session, result_prefix(self._app, first), first.partition)
            writes += [
                EffectWrite(group.key(f"{index:x}"), data, ttl)
                for index, data in outcomes.blocks_of(rows)
            ]
        return [*writes, *failed_writes(self._session, self._app, runs)]

    async def _end_plain(self, runs: list[TaskRun]) -> None:
        """Effects, results, acks: a crash in between runs the tasks again."""
        try:
            for push in (each for run in runs for each in pushes_of(run)):
                await self._push(push)
            by_ttl: dict[int | None, list[EffectWrite]] = {}
            for write in self._blocks(runs):
                by_ttl.setdefault(write.ttl_ms, []).append(write)
            for write in (each for run in runs if run.effects for each in run.effects.writes):
                by_ttl.setdefault(write.ttl_ms, []).append(write)
            kv = KvCore(self._session)
            for ttl, writes in by_ttl.items():
                for part in _parts(writes):
                    await kv.insert_many({each.key: each.value for each in part}, ttl_ms=ttl)
            for queue, some in _by_queue(runs):
                await self._core(queue).ack_many([run.message for run in some])
        except WeftError as error:
            if error.retriable or isinstance(error, LeaseLost):
                self._count(runs, error)
                return
            for run in runs if len(runs) > 1 else ():
                await self._end_plain([run])
            if len(runs) == 1:  # the effects of this task were refused
                await self._end_without_effects(runs[0], error)
        else:
            self._count(runs, None)

    async def _push(self, push: EffectPush) -> None:
        await self._core(push.queue).push(
            push.body, headers=push.headers, delay_ms=push.delay_ms, priority=push.priority
        )

    # --- not ended ---

    async def _retry(self, runs: list[TaskRun]) -> None:
        parts: dict[tuple[str, int, bool], list[TaskRun]] = {}
        for run in runs:
            pause = run.retry_ms - run.retry_ms % _PAUSE_STEP_MS
            parts.setdefault((run.message.queue, pause, run.begun), []).append(run)
        for (queue, pause, begun), some in parts.items():
            messages = [run.message for run in some]
            for run in some:
                error = run.outcome
                assert isinstance(error, TaskError)
                log.info(
                    "%s is retried in %d ms: %s: %s", name_of(run), pause, error.error, error.text
                )
            first = some[0].outcome
            assert isinstance(first, TaskError)
            try:
                if begun:
                    reason = first.error[:200]
                    await self._core(queue).nack_many(messages, delay_ms=pause, reason=reason)
                else:
                    await give_back(self._core(queue), messages, pause)
            except WeftError as failure:
                self._count(some, failure)
            else:
                self.retried += len(some)

    async def _return(self, runs: list[TaskRun]) -> None:
        for run in runs:
            name = run.unknown
            pause = self._unknown.get(name, UNKNOWN_MS_MIN)
            self._unknown[name] = min(2 * pause, UNKNOWN_MS_MAX)
            log.warning(
                "task %s has the name %r, which this worker does not know: given back for %.0f s. "
                "Import its module in the app's module, or upgrade this worker",
                run.message.id, name, pause / 1000,
            )  # fmt: skip
            try:
                await give_back(self._core(run.message.queue), [run.message], pause)
            except WeftError as failure:
                self._count([run], failure)

    def _core(self, queue: str) -> QueueCore[BaseMessage]:
        return QueueCore(self._session, queue, BaseMessage)


def log_unsettled(count: int, error: Exception) -> None:
    """Ended tasks were not settled. Their loop must drop the leases, also after an error of this
    program: a lease that is renewed for ever hides its tasks from all workers."""
    if isinstance(error, WeftError):
        log.warning("%d tasks come back later: %s", count, error.message)
    else:
        log.error("%d tasks come back when their leases end", count, exc_info=error)


def name_of(run: TaskRun) -> str:
    return f"task {run.message.id} ({run.task.name if run.task else 'unreadable'})"


def reply_of(run: TaskRun) -> EffectPush:
    """The message with the result for the submission's queue."""
    assert run.call is not None
    outcome = run.outcome
    headers = {"task": str(run.message.id), "name": run.call.task, "status": "ok"}
    if isinstance(outcome, TaskError):
        headers["status"] = "failed"
        body = encode({"error": outcome.error, "text": outcome.text, "trace": outcome.trace})
    elif isinstance(outcome, LargeResult):
        headers["status"] = "large"  # by the future alone: a message has at most 4 MiB
        body = encode(None)
    elif isinstance(outcome, PickledResult):
        headers["status"] = "pickled"  # by the future alone: the reader of a queue did not ask
        body = encode(None)
    else:
        assert outcome is not None
        body = bytes(outcome)
    return EffectPush(run.call.options.reply_to, body, headers)


def pushes_of(run: TaskRun) -> Iterator[EffectPush]:
    """The pushes of the end of a task."""
    if run.effects is not None:
        yield from run.effects.pushes
    if run.call is not None and run.call.options.reply_to:
        yield reply_of(run)


def _by_partition(runs: Iterable[TaskRun]) -> list[list[TaskRun]]:
    found: dict[int, list[TaskRun]] = {}
    for run in runs:
        found.setdefault(run.message._lease.lent.partition, []).append(run)
    return list(found.values())


def _by_queue(runs: Iterable[TaskRun]) -> list[tuple[str, list[TaskRun]]]:
    found: dict[str, list[TaskRun]] = {}
    for run in runs:
        found.setdefault(run.message.queue, []).append(run)
    return list(found.items())


def _parts(writes: list[EffectWrite]) -> Iterator[list[EffectWrite]]:
    part: list[EffectWrite] = []
    size = 0
    for write in writes:
        if part and (len(part) >= _WRITE_KEYS or size + len(write.value) > _WRITE_BYTES):
            yield part
            part, size = [], 0
        part.append(write)
        size += len(write.value)
    if part:
        yield part
