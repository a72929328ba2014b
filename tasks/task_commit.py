"""The commits of a worker: results, effects and acknowledgements of tasks in one transaction each.

A transaction acknowledges messages of one partition, so the tasks of a pop are committed partition
by partition: one transaction for a batch popped as a whole, and for single tasks with
a common partition. The result blocks are on the same partition (`key_group`), so a task
without effects of its own is decided and complete with one log entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from weft import limits
from weft.client.consumer.lease import Claim, ClientLease
from weft.client.key_group import KeyGroup
from weft.client.routing.session import ClientSession
from weft.client.transaction.async_transaction import AsyncTransaction
from weft.client.transaction.home_numbers import HomeNumbers
from weft.client.transaction.pipeline import commit_all
from weft.errors import Busy, TooLarge, Unavailable, WeftError
from weft.ids import MessageId

from .call import result_prefix
from .execution import TaskRun
from .graph_ends import add_graph_effects, children_of, links_of
from .graph_links import CHILD_BATCHES_MAX
from .graph_record import chunks_of
from .outcome import column_blocks, size_of, task_error
from .run_column import ColumnEnd
from .task import AppTask
from .task_context import EffectPush, EffectWrite

#: Room in a transaction for the result blocks of its tasks, beside their effects.
_BLOCKS: Final = 64
PUSHES_MAX: Final = limits.COMMIT_PUSHES_MAX - _BLOCKS
WRITES_MAX: Final = limits.COMMIT_WRITES_MAX - _BLOCKS
BYTES_MAX: Final = limits.COMMIT_BYTES_MAX // 2
#: Transactions sent together.
_TOGETHER: Final = 64
#: Further attempts after an open outcome, or a refusal for now.
_AGAIN: Final = 5


class TaskCommit(NamedTuple):
    """Ended runs of one partition, and all effects of the acknowledgement."""

    runs: list[TaskRun]
    results: list[EffectWrite]
    pushes: list[EffectPush]


class ColumnCommit(NamedTuple):
    """Ended calls of one lease, without effects."""

    claim: Claim
    results: list[EffectWrite]


class _Size(NamedTuple):
    """What the effects and results of tasks take of the limits of a transaction."""

    pushes: int
    writes: int
    bytes: int

    @classmethod
    def of(cls, run: TaskRun, pushes: Sequence[EffectPush]) -> _Size:
        writes = run.effects.writes if run.effects else []
        graphs = run.effects.graphs if run.effects else []
        return cls(
            len(pushes) + sum(len(plan.batches) for plan in graphs),
            len(writes) + sum(1 + len(chunks_of(plan.record)) for plan in graphs),
            sum(len(each.body) for each in pushes)
            + sum(len(each.value) for each in writes)
            + sum(plan.bytes for plan in graphs),
        )

    def plus(self, other: _Size) -> _Size:
        return _Size(
            self.pushes + other.pushes, self.writes + other.writes, self.bytes + other.bytes
        )

    @property
    def fits(self) -> bool:
        return self.pushes <= PUSHES_MAX and self.writes <= WRITES_MAX and self.bytes <= BYTES_MAX


_NOTHING: Final = _Size(0, 0, 0)


class EndedPart(NamedTuple):
    """Ended calls of one column: a task without failures, effects and large results."""

    task: AppTask[Any, Any]
    lease: ClientLease
    rows: list[ColumnEnd]

    @property
    def claim(self) -> Claim:
        return Claim(self.lease, [index for index, _ in self.rows])


def column_writes(session: ClientSession, app: str, part: EndedPart) -> list[EffectWrite]:
    """The results of the part, in blocks."""
    lent, ttl_ms = part.lease.lent, part.task.options.ttl_ms
    first = MessageId.of(lent.partition, lent.producer, lent.batch, 0)
    group = KeyGroup(session, result_prefix(app, first), first.partition)
    return [
        EffectWrite(group.key(f"{index:x}"), data, ttl_ms)
        for index, data in column_blocks(part.rows)
    ]


def column_commits(
    session: ClientSession, app: str, part: EndedPart
) -> Iterator[tuple[EndedPart, ColumnCommit]]:
    """The commits of a part, which is halved until the results of each fit into a transaction."""
    writes = column_writes(session, app, part)
    if len(writes) == 1 or sum(len(each.value) for each in writes) <= BYTES_MAX:
        yield part, ColumnCommit(part.claim, writes)
        return
    half = len(part.rows) // 2
    yield from column_commits(session, app, part._replace(rows=part.rows[:half]))
    yield from column_commits(session, app, part._replace(rows=part.rows[half:]))


def portions(runs: Sequence[TaskRun], pushes_of: Any) -> Iterator[list[TaskRun]]:
    """Splits runs by the limits of a transaction, which writes a key once.

    A task with too many effects fails, without effects. Results count, too: they are up to 1 MiB
    each, and a failure has up to 20,000 characters.
    """
    part: list[TaskRun] = []
    used, children = _NOTHING, 0
    keys: set[str] = set()
    for run in runs:
        assert run.outcome is not None
        result = _Size(0, 0, size_of(run.outcome))
        plain = run.effects is None and not (run.call and run.call.options.reply_to)
        if plain and links_of(run) is None:
            if part and not used.plus(result).fits:
                yield part
                part, used, keys, children = [], _NOTHING, set(), 0
            part.append(run)
            used = used.plus(result)
            continue
        own = _Size.of(run, list(pushes_of(run)))
        written = run.effects.writes if run.effects else []
        if not own.fits:
            run.effects = None
            run.outcome = task_error(
                TooLarge(
                    f"the task has {own.pushes} pushes and {own.writes} writes with {own.bytes} "
                    f"bytes, those of its graphs included; a commit has at most {PUSHES_MAX}, "
                    f"{WRITES_MAX} and {BYTES_MAX}"
                )
            )
            part.append(run)
            continue
        own = own.plus(result)
        if part and (
            not used.plus(own).fits
            or any(each.key in keys for each in written)
            or children + children_of(run) > CHILD_BATCHES_MAX
        ):
            yield part
            part, used, keys, children = [], _NOTHING, set(), 0
        part.append(run)
        used = used.plus(own)
        children += children_of(run)
        keys.update(each.key for each in written)
    if part:
        yield part


async def commit_tasks(
    session: ClientSession, numbers: HomeNumbers, commits: Sequence[TaskCommit]
) -> list[WeftError | None]:
    """Makes the commits; returns an error or None for each. One that cannot be a transaction, by
    the effects of a task, does not hold up the others."""
    made = [_transaction(session, numbers, each) for each in commits]
    ends = iter(await _commit(session, [each for each in made if not isinstance(each, WeftError)]))
    return [each if isinstance(each, WeftError) else next(ends) for each in made]


async def commit_columns(
    session: ClientSession, numbers: HomeNumbers, commits: Sequence[ColumnCommit]
) -> list[WeftError | None]:
    """As `commit_tasks`, for columns."""
    transactions: list[AsyncTransaction] = []
    for commit in commits:
        transaction = AsyncTransaction(session, numbers)
        transaction.ack_claims([commit.claim])
        _write(transaction, commit.results)
        transactions.append(transaction)
    return await _commit(session, transactions)


async def _commit(
    session: ClientSession, transactions: Sequence[AsyncTransaction]
) -> list[WeftError | None]:
    ends: list[WeftError | None] = []
    for start in range(0, len(transactions), _TOGETHER):
        some = transactions[start : start + _TOGETHER]
        errors = await commit_all(session, some)
        for _ in range(_AGAIN):
            # The same transaction again is executed once, however many attempts arrive.
            open_ = [n for n, each in enumerate(errors) if isinstance(each, Busy | Unavailable)]
            if not open_:
                break
            again = await commit_all(session, [some[n] for n in open_])
            for n, end in zip(open_, again, strict=True):
                errors[n] = end
        ends += errors
    return ends


def _transaction(
    session: ClientSession, numbers: HomeNumbers, commit: TaskCommit
) -> AsyncTransaction | WeftError:
    transaction = AsyncTransaction(session, numbers)
    try:
        _fill(transaction, session, commit)
    except WeftError as error:
        return error
    return transaction


def _fill(transaction: AsyncTransaction, session: ClientSession, commit: TaskCommit) -> None:
    transaction.ack_many([run.message for run in commit.runs])
    add_graph_effects(transaction, session, commit.runs)
    _write(transaction, commit.results)
    for run in commit.runs:
        if run.effects:
            _write(transaction, run.effects.writes)
    for (queue, delay_ms, priority), some in _alike(commit.pushes):
        transaction.push_many(
            queue,
            [push.body for push in some],
            headers=[push.headers for push in some] if any(push.headers for push in some) else None,
            delay_ms=delay_ms,
            priority=priority,
        )


def _write(transaction: AsyncTransaction, writes: Sequence[EffectWrite]) -> None:
    for write in writes:
        transaction.kv.insert(write.key, write.value, ttl_ms=write.ttl_ms)


def _alike(
    pushes: Sequence[EffectPush],
) -> list[tuple[tuple[str, int, int], list[EffectPush]]]:
    """Pushes with the same queue and options go as one batch, in their order."""
    found: dict[tuple[str, int, int], list[EffectPush]] = {}
    for push in pushes:
        found.setdefault((push.queue, push.delay_ms, push.priority), []).append(push)
    return list(found.items())
