"""Calls of failed tasks, kept beside their results for a retry.

A retry is a new task with the same call: results never change, so a failed task keeps its failure,
and readers of its future see no second outcome. One transaction marks the failed task and submits
the new one, so a task is retried once, however often and from wherever `retry` is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from weft import limits
from weft.client.key_group import KeyGroup
from weft.client.kv_core import KvCore
from weft.client.routing.session import ClientSession
from weft.client.transaction.async_transaction import AsyncTransaction
from weft.errors import InvalidArgument, VersionMismatch
from weft.ids import INDEX_BITS, MessageId

from .batch_results import BatchResults
from .call import batch_of, failed_prefix, retry_key
from .graph_ends import links_of
from .outcome import TaskError
from .signature import encode
from .task_context import EffectWrite

if TYPE_CHECKING:
    from .execution import TaskRun

#: Calls kept by one commit, together; beyond, a failed task is not kept for a retry.
KEPT_BYTES_MAX: Final = limits.MIB
#: The mark of a retry outlives the call that it guards.
_MARK_TTL_MS: Final = 366 * 24 * 3600 * 1000


class FailedCalls(msgspec.Struct, array_like=True, frozen=True):
    """Calls by column. New fields are added at the end, with defaults."""

    queue: str
    indexes: list[int]
    bodies: list[bytes]


_decoder = msgspec.msgpack.Decoder(FailedCalls)


def failed_writes(session: ClientSession, app: str, runs: Sequence[TaskRun]) -> list[EffectWrite]:
    """The calls of the failed ones of some runs, in a block for each batch."""
    # A task of a graph is not kept: its end has been told to its children, once.
    failed = [
        run
        for run in runs
        if type(run.outcome) is TaskError and run.task is not None and links_of(run) is None
    ]
    by_batch: dict[tuple[int, int], list[TaskRun]] = {}
    size = 0
    for run in failed:
        size += len(run.message.body)
        if size > KEPT_BYTES_MAX:
            break
        assert run.task is not None
        by_batch.setdefault((batch_of(run.message.id), run.task.options.ttl_ms), []).append(run)
    writes: list[EffectWrite] = []
    for (batch, ttl), some in by_batch.items():
        first = MessageId(batch << INDEX_BITS)
        group = KeyGroup(session, failed_prefix(app, first), first.partition)
        indexes = [run.message.id.index for run in some]
        block = FailedCalls(some[0].message.queue, indexes, [run.message.body for run in some])
        writes.append(EffectWrite(group.key(f"{min(indexes):x}"), encode(block), ttl))
    return writes


async def retry_task(session: ClientSession, app: str, number: MessageId) -> MessageId:
    """Submits the call of a failed task again, once; returns the id of the new task.

    Raises InvalidArgument if the task has not failed, or if its call is not kept.
    """
    kv, key = KvCore(session), retry_key(app, number)
    before = await kv.lookup(key)
    if before:
        return MessageId.parse(before.decode())
    queue, body = await _failed_call(session, app, number)
    transaction = AsyncTransaction(session, session.home_numbers)
    transaction.kv.insert(key, b"", ttl_ms=_MARK_TTL_MS, if_version=0)
    transaction.push(queue, body)
    try:
        await transaction.commit()
    except VersionMismatch:
        before = await kv.lookup(key)
        if before:
            return MessageId.parse(before.decode())
        raise InvalidArgument(
            f"task {number} was retried before, by a program that ended before it stored the new "
            "id: `weft tasks list` shows the queues"
        ) from None
    (new,) = transaction.ids
    await kv.insert(key, str(new).encode(), ttl_ms=_MARK_TTL_MS)
    return new


async def _failed_call(session: ClientSession, app: str, number: MessageId) -> tuple[str, bytes]:
    group = KeyGroup(session, failed_prefix(app, number), number.partition)
    for entry in await group.scan():
        calls = _decoder.decode(entry.value)
        if number.index in calls.indexes:
            return calls.queue, calls.bodies[calls.indexes.index(number.index)]
    results = BatchResults(session, app, number, None)
    await results.scan()
    outcome = results.found.get(number.index)
    if outcome is None:
        raise InvalidArgument(
            f"task {number} has no result: it has not ended, or its result has expired"
        )
    if not isinstance(outcome, TaskError):
        raise InvalidArgument(f"task {number} has succeeded: submit it again for a second run")
    raise InvalidArgument(
        f"the call of task {number} is not kept: the task was cancelled or of a graph, or its "
        f"arguments were too large (calls that fail together are kept up to {KEPT_BYTES_MAX} "
        "bytes). Submit it again"
    )
