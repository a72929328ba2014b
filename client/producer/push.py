"""push: encodes messages as batches, numbers the batches, derives message ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from weft.client import tracing
from weft.client.routing import retry
from weft.client.routing.session import ClientSession
from weft.client.transport.link import PIPELINE_MAX
from weft.dht import placement
from weft.errors import WeftError
from weft.ids import MessageId
from weft.proto import wire

from .batch import Columns, Encoded, batches, encode
from .body_source import BodySource, with_progress


class Stored(NamedTuple):
    """Messages stored under consecutive ids."""

    first: MessageId
    messages: int


async def push_plain(session: ClientSession, queue: str, body: bytes, deadline: float) -> MessageId:
    """Pushes one message that is only a body. A caller waits, so this path is short."""
    if queue in session.ordered:
        columns = Columns([body])
        return await push_one(
            session, queue, columns, delay_ms=0, priority=0, dedup_key=None, deadline=deadline
        )
    producer, batch, router = session.producer, next(session.batches), session.router
    place = placement.of_batch(producer, batch, router.partitions)
    request = wire.Push(queue, producer, batch, 1)
    pushed, _ = await retry.ask(
        router, place, request, wire.Pushed, deadline, (wire.encode(wire.Payload([body])),)
    )
    if pushed.partition != place:
        session.learn_place(queue, place, pushed.partition)
    return MessageId.of(pushed.partition, pushed.producer, pushed.batch, 0)


async def push_one(
    session: ClientSession,
    queue: str,
    columns: Columns,
    *,
    delay_ms: int,
    priority: int,
    dedup_key: str | None,
    deadline: float,
) -> MessageId:
    batch = next(session.batches)
    request = wire.Push(queue, session.producer, batch, 1, delay_ms, priority, dedup_key)
    place = _place(session, request)
    pushed = await session.push(place, request, encode(columns), deadline)
    session.learn_place(queue, place, pushed.partition)
    return MessageId.of(pushed.partition, pushed.producer, pushed.batch, 0)


async def push_source(
    session: ClientSession,
    queue: str,
    source: BodySource,
    *,
    delay_ms: int,
    priority: int,
    timeout_ms: int | None,
) -> list[MessageId]:
    """Stores all messages and returns the ids; an error states how many were stored before.

    The timeout applies to each chunk: the time that the source takes does not count.
    """
    ids: list[MessageId] = []
    try:
        while not source.ended:
            columns = await source.next_chunk()
            if not columns.bodies:
                break
            with tracing.pushing(queue, columns) as traced:
                deadline = session.deadline(timeout_ms)
                stored, error = await store(
                    session, queue, batches(traced), delay_ms, priority, deadline
                )
            for first, count in stored:
                ids.extend(map(MessageId, range(first, first + count)))
            if error is not None:
                raise error
    except Exception as error:
        raise with_progress(error, len(ids), source.total) from error.__cause__
    return ids


async def store(
    session: ClientSession,
    queue: str,
    encoded: Iterator[Encoded],
    delay_ms: int,
    priority: int,
    deadline: float,
) -> tuple[list[Stored], Exception | None]:
    """Stores batches, PIPELINE_MAX at a time; returns those stored, in order, and the error."""
    stored: list[Stored] = []
    while window := list(islice(encoded, PIPELINE_MAX)):
        pushes = list(_numbered(session, queue, window, delay_ms, priority))
        ends = await _push_window(session, pushes, deadline)
        failure: Exception | None = None
        for (count, _, _), end in zip(window, ends, strict=True):
            if isinstance(end, wire.Pushed):
                # Not end.count: under a dedup key the first push may have had more messages.
                first = MessageId.of(end.partition, end.producer, end.batch, 0)
                stored.append(Stored(first, count))
            else:
                failure = failure or end
        if failure is not None:
            return stored, failure
    return stored, None


def _numbered(
    session: ClientSession, queue: str, window: list[Encoded], delay_ms: int, priority: int
) -> Iterator[tuple[wire.Push, Sequence[bytes]]]:
    for count, frame, dedup_key in window:
        batch = next(session.batches)
        push = wire.Push(queue, session.producer, batch, count, delay_ms, priority, dedup_key)
        yield push, (frame,)


async def _push_window(
    session: ClientSession, pushes: list[tuple[wire.Push, Sequence[bytes]]], deadline: float
) -> list[wire.Pushed | Exception]:
    """Returns the answers in the order of the pushes, regardless of their nodes."""
    if len(pushes) == 1:  # the usual case, without the code for several
        ((push, payload),) = pushes
        place = _place(session, push)
        try:
            pushed = await session.push(place, push, payload[0], deadline)
        except WeftError as error:
            return [error]
        session.learn_place(push.queue, place, pushed.partition)
        return [pushed]
    routed = [(_place(session, push), (push, f)) for push, f in pushes]
    ends = await session.push_all(routed, deadline)
    for (place, (push, _)), end in zip(routed, ends, strict=True):
        if isinstance(end, wire.Pushed):
            session.learn_place(push.queue, place, end.partition)
    return ends


def _place(session: ClientSession, push: wire.Push) -> int:
    ordered = push.queue in session.ordered
    return session.router.of_push(ordered, push)
