"""The submission of a graph: it starts wholly, once, or not at all.

| a graph   | steps                                                                                |
|-----------|--------------------------------------------------------------------------------------|
| small     | one commit: the tasks, the structure, and the decision STARTED                       |
| large     | 1. the reaper, a delayed task; 2. the structure; 3. the tasks, every root waiting    |
|           | for the start; 4. one commit: the decision STARTED, and the arrivals of all roots    |

The decision is one key, written on the condition that it is absent. If the client dies before step
4, the reaper writes ABANDONED under the same condition, and fails all tasks that were stored:
workers end them without running them. So there is no time at which a client must have started its
graph, and no clock decides: start and reaper cannot both happen.

Every request has a name that was chosen before, so a submission may be repeated after any error.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Final

from weft import limits
from weft.client.admin.queues import AdminCore
from weft.client.key_group import KeyGroup
from weft.client.kv_core import KvCore
from weft.client.routing.session import ClientSession
from weft.client.transaction.graph_commit import (
    Arrival,
    HomePushes,
    TableWrite,
    WaitingBatch,
    arrival,
    commit_batches,
    commit_graph,
    table_write,
    takes_graphs,
)
from weft.errors import (
    DeadlineExceeded,
    InvalidArgument,
    QueueExists,
    QueueNotFound,
    VersionMismatch,
)

from .call import BodyFrame
from .graph_links import shortened
from .graph_plan import GraphPlan, PlannedBatch
from .graph_record import ABANDONED, STARTED, BatchRecord, GraphRecord, chunks_of, keys_of
from .signature import NO_KEYWORDS, encode
from .submission import LEASE_MS, SubmitOptions, push_call

#: The name of the task that ends graphs without a start.
REAPER: Final = "weft.graph.reap"
#: The reaper of a graph runs this long after the submission began.
REAP_S: Final = 600.0
#: A submission that has taken longer than this is given up by its client, before the reaper comes.
SUBMIT_S_MAX: Final = 300.0
NOT_STARTED: Final = "the client of the graph did not start it"
#: Batches of one commit of a large graph.
_PUSHES: Final = 16
_PART_BYTES: Final = limits.COMMIT_BYTES_MAX // 2
#: Stored longer than the results.
RECORD_TTL_FACTOR: Final = 2


class GraphAbandoned(DeadlineExceeded):
    """The other decision about a graph was made before."""

    code = DeadlineExceeded.code


#: Queues that take graphs, as a session has found them.
_ensured: weakref.WeakKeyDictionary[ClientSession, set[str]] = weakref.WeakKeyDictionary()


async def submit_graph(session: ClientSession, app: str, plan: GraphPlan) -> None:
    """Raises the errors of a push; after an error the same plan may be submitted again."""
    try:
        await _submit(session, app, plan)
    except (QueueNotFound, InvalidArgument):
        _ensured.pop(session, None)  # a queue was deleted, and perhaps created again
        await _submit(session, app, plan)


async def _submit(session: ClientSession, app: str, plan: GraphPlan) -> None:
    for queue in sorted(plan.queues):
        await ensure_graph_queue(session, queue)
    group = keys_of(session, app, plan.record.number)
    writes = record_writes(group, plan.record)
    if plan.atomic:
        await _decide(session, group, STARTED, writes, [b.push for b in plan.batches], [])
        return
    began = time.monotonic()
    await _push_reaper(session, app, plan)
    kv = KvCore(session)
    for write in writes[:-1]:
        await kv.insert(write.key, write.value, ttl_ms=write.ttl_ms)
    await commit_batches(session, list(_parts(plan.batches)))
    if time.monotonic() - began > SUBMIT_S_MAX:
        await abandon(session, app, plan.record)
        raise GraphAbandoned(
            f"the submission of the graph took more than {SUBMIT_S_MAX:.0f} s: it was given up, "
            "and nothing of it runs. Submit a smaller graph, or look at the cluster's health"
        )
    try:
        await _decide(
            session, group, STARTED, writes[-1:], [], plan.roots(session.router.partitions)
        )
    except GraphAbandoned:
        # The reaper came first, and perhaps before the last of these batches.
        await release(
            session, group.partition, release_all(session, plan.record.batches, NOT_STARTED)
        )
        raise


def record_writes(group: KeyGroup, record: GraphRecord) -> list[TableWrite]:
    """The structure in chunks, and the decision that the graph is started."""
    ttl_ms = _ttl_of(record)
    chunks = enumerate(chunks_of(record))
    writes = [table_write(group.key(f"s{n}"), data, ttl_ms) for n, data in chunks]
    return [*writes, table_write(group.key("d"), STARTED, ttl_ms, if_absent=True)]


def _ttl_of(record: GraphRecord) -> int:
    return min(record.ttl_ms * RECORD_TTL_FACTOR, limits.TABLE_TTL_MS_MAX)


async def _decide(
    session: ClientSession,
    group: KeyGroup,
    decision: bytes,
    writes: Sequence[TableWrite],
    batches: Sequence[WaitingBatch],
    arrivals: Sequence[Arrival],
) -> None:
    """Makes the commit with the decision, once."""
    try:
        await commit_graph(
            session, group.partition, batches=batches, writes=writes, arrivals=arrivals
        )
    except VersionMismatch:
        found = await KvCore(session).lookup(group.key("d"))
        if found != decision:
            raise GraphAbandoned(
                "the graph was given up, because its submission took too long: nothing of it runs. "
                "Build it again with app.graph(), or look at the cluster's health"
            ) from None


async def abandon(session: ClientSession, app: str, record: GraphRecord) -> bool:
    """Fails all tasks of a graph that was not started; False if it was started."""
    group = keys_of(session, app, record.number)
    put = table_write(group.key("d"), ABANDONED, _ttl_of(record), if_absent=True)
    arrivals = release_all(session, record.batches, NOT_STARTED)
    try:
        await _decide(session, group, ABANDONED, [put], [], arrivals)
    except GraphAbandoned:
        return False
    # A push may have been on its way at the decision: its tasks are released now.
    await release(session, group.partition, arrivals)
    return True


async def release(session: ClientSession, home: int, arrivals: Sequence[Arrival]) -> None:
    """Makes arrivals, in as few commits as the limits allow."""
    for start in range(0, len(arrivals), limits.COMMIT_ARRIVALS_MAX):
        some = arrivals[start : start + limits.COMMIT_ARRIVALS_MAX]
        await commit_graph(session, home, arrivals=some)


def release_all(
    session: ClientSession, batches: Sequence[BatchRecord], reason: str
) -> list[Arrival]:
    """Arrivals that fail every waiting task of these batches."""
    partitions, why = session.router.partitions, shortened(reason)
    return [
        arrival(each.queue, each.producer, each.batch, partitions, (), [(0, each.count)], why)
        for each in batches
    ]


async def ensure_graph_queue(session: ClientSession, queue: str, *, sure: bool = False) -> None:
    """Creates a queue of an app for graphs, or switches graphs on."""
    known = _ensured.setdefault(session, set())
    if sure or queue not in known:
        await _ensure(session, queue)
        known.add(queue)


async def _ensure(session: ClientSession, queue: str) -> None:
    try:
        if await takes_graphs(session, queue):
            return
        await AdminCore(session).update_queue(queue, {"graphs": True})
    except QueueNotFound:
        try:
            await AdminCore(session).create_queue(queue, {"lease_ms": LEASE_MS, "graphs": True})
        except QueueExists:
            await AdminCore(session).update_queue(queue, {"graphs": True})


async def _push_reaper(session: ClientSession, app: str, plan: GraphPlan) -> None:
    rows = [(b.queue, b.producer, b.number, b.partition, len(b.nodes)) for b in plan.batches]
    args = encode([str(plan.record.number), plan.record.ttl_ms, rows])
    body = BodyFrame(REAPER).body(args, NO_KEYWORDS)
    options = SubmitOptions(int(REAP_S * 1000), key=f"reap {plan.record.number}")
    await push_call(session, plan.batches[0].queue, body, options)


def _parts(batches: Sequence[PlannedBatch]) -> Iterator[HomePushes]:
    """The batches for the commits of a large graph."""
    by_partition: dict[int, list[PlannedBatch]] = {}
    for batch in batches:
        by_partition.setdefault(batch.partition, []).append(batch)
    for partition, some in by_partition.items():
        part: list[WaitingBatch] = []
        size = 0
        for batch in some:
            if part and (len(part) >= _PUSHES or size + batch.bytes > _PART_BYTES):
                yield partition, part
                part, size = [], 0
            part.append(batch.push)
            size += batch.bytes
        yield partition, part
