"""Commits of task graphs: batches whose messages wait for others, and the ends of parents.

For the package ``tasks``. A commit is one request with a name of its own, so the session may send
it again; see ``server.engine.parent_counts`` for what it does.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.client.routing.session import ClientSession, ask_all
from weft.ids import partition_of
from weft.proto import wire

Arrival = wire.Arrival
WaitingBatch = wire.CommitPush
TableWrite = wire.Put

#: Waiting batches for one partition.
HomePushes = tuple[int, list[WaitingBatch]]


def waiting_batch(
    queue: str,
    producer: int,
    number: int,
    bodies: list[bytes],
    waits: list[int],
    delay_ms: int = 0,
    priority: int = 0,
) -> WaitingBatch:
    """A batch under a chosen name; `waits` has the number of parents of each message."""
    push = wire.PushWaiting(
        queue, producer, number, len(bodies), delay_ms, priority, None, list(waits)
    )
    return wire.CommitPush(push, wire.encode(wire.Payload(bodies)))


def arrival(
    queue: str,
    producer: int,
    batch: int,
    partitions: int,
    ended: Sequence[tuple[int, int, int]] = (),
    failed: Sequence[tuple[int, int]] = (),
    reason: str = "",
) -> Arrival:
    """The ends of parents of messages of one batch; `partitions` are those of the cluster."""
    place = partition_of(producer, batch, partitions)
    return wire.Arrival(queue, place, producer, batch, list(ended), list(failed), reason)


def table_write(key: str, value: bytes, ttl_ms: int, *, if_absent: bool = False) -> TableWrite:
    return wire.Put(key, value, 0, 0, ttl_ms, 0 if if_absent else -1)


async def commit_graph(
    session: ClientSession,
    home: int,
    *,
    batches: Sequence[WaitingBatch] = (),
    writes: Sequence[TableWrite] = (),
    arrivals: Sequence[Arrival] = (),
) -> None:
    """Makes one commit. Raises VersionMismatch if a condition does not hold."""
    name = session.producer, next(session.batches)
    request = wire.CommitGraph(home, *name, [], list(batches), list(writes), list(arrivals))
    await session.ask(request, wire.Committed, None)


async def commit_batches(session: ClientSession, parts: Sequence[HomePushes]) -> None:
    """Makes a commit for each part, together; raises the first error."""
    requests = [
        wire.CommitGraph(home, session.producer, next(session.batches), [], batches, [])
        for home, batches in parts
    ]
    asked = [(request.partition, (request, ())) for request in requests]
    answers = await ask_all(session.router, asked, wire.Committed, session.deadline(None))
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer


async def takes_graphs(session: ClientSession, queue: str) -> bool:
    """True if the queue has the setting `graphs`. Raises QueueNotFound."""
    said = await session.ask(wire.DescribeQueue(queue), wire.Queues, None)
    return said.queues[0].settings.graphs
