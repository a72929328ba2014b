"""push: messages become batches, batches get numbers, numbers become message ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from weft import limits
from weft.dht import placement
from weft.errors import WeftError
from weft.ids import MessageId
from weft.proto import wire

from . import retry
from .batch import Columns, Encoded, batches, encode
from .link import PIPELINE_MAX
from .session import Session


def check_options(delay_ms: int, priority: int) -> None:
    limits.check_range("delay_ms", delay_ms, 0, limits.DELAY_MS_MAX)
    limits.check_range("priority", priority, 0, limits.PRIORITY_MAX)


async def push_plain(session: Session, queue: str, body: bytes, deadline: float) -> MessageId:
    """One message with nothing but its body. A caller waits: this is as short as it can be."""
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
        _learn(session, queue, place, pushed)
    return MessageId.of(pushed.partition, pushed.producer, pushed.batch, 0)


async def push_one(
    session: Session,
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
    _learn(session, queue, place, pushed)
    return MessageId.of(pushed.partition, pushed.producer, pushed.batch, 0)


async def push_columns(
    session: Session,
    queue: str,
    columns: Columns,
    *,
    delay_ms: int,
    priority: int,
    deadline: float,
) -> list[MessageId]:
    """Stores all of it and gives the ids; an error says how much was stored before it."""
    stored, error = await store(session, queue, batches(columns), delay_ms, priority, deadline)
    if error is not None:
        raise _partly(error, sum(pushed.count for pushed in stored), len(columns.bodies))
    ids: list[MessageId] = []
    for pushed in stored:
        first = int(MessageId.of(pushed.partition, pushed.producer, pushed.batch, 0))
        ids.extend(map(MessageId, range(first, first + pushed.count)))
    return ids


async def store(
    session: Session,
    queue: str,
    encoded: Iterator[Encoded],
    delay_ms: int,
    priority: int,
    deadline: float,
) -> tuple[list[wire.Pushed], Exception | None]:
    """What was stored, in order, PIPELINE_MAX batches at a time, and what stopped it."""
    stored: list[wire.Pushed] = []
    while window := list(islice(encoded, PIPELINE_MAX)):
        pushes = list(_numbered(session, queue, window, delay_ms, priority))
        ends = await _push_window(session, pushes, deadline)
        stored += [end for end in ends if isinstance(end, wire.Pushed)]
        failure = next((end for end in ends if isinstance(end, Exception)), None)
        if failure is not None:
            return stored, failure
    return stored, None


def _numbered(
    session: Session, queue: str, window: list[Encoded], delay_ms: int, priority: int
) -> Iterator[tuple[wire.Push, Sequence[bytes]]]:
    for count, frame in window:
        batch = next(session.batches)
        yield wire.Push(queue, session.producer, batch, count, delay_ms, priority), (frame,)


async def _push_window(
    session: Session, pushes: list[tuple[wire.Push, Sequence[bytes]]], deadline: float
) -> list[wire.Pushed | Exception]:
    """The answers in the order of the pushes, whichever nodes they went to."""
    if len(pushes) == 1:  # the usual case, without the machinery for several
        ((push, payload),) = pushes
        place = _place(session, push)
        try:
            pushed = await session.push(place, push, payload[0], deadline)
        except WeftError as error:
            return [error]
        _learn(session, push.queue, place, pushed)
        return [pushed]
    routed = [(_place(session, push), (push, f)) for push, f in pushes]
    ends = await session.push_all(routed, deadline)
    for (place, (push, _)), end in zip(routed, ends, strict=True):
        if isinstance(end, wire.Pushed):
            _learn(session, push.queue, place, end)
    return ends


def _place(session: Session, push: wire.Push) -> int:
    ordered = push.queue in session.ordered
    return session.router.of_push(ordered, push)


def _learn(session: Session, queue: str, place: int, pushed: wire.Pushed) -> None:
    """A push that was stored elsewhere than it was sent was handed on by the node: the queue is an
    ordered one, or is none any more. The next push goes the right way at once."""
    if pushed.partition != place:
        session.ordered ^= {queue}


def _partly(error: Exception, stored: int, total: int) -> Exception:
    """The error, saying how much was stored all the same."""
    if not stored or not isinstance(error, WeftError):
        return error
    return type(error)(f"{stored} of {total} messages were stored, then: {error.message}")
