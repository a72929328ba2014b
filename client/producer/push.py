"""push: the methods of a queue; encodes messages as batches, numbers them, derives message ids."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec import structs

from weft import limits
from weft.client import arguments, tracing
from weft.client.routing.session import ClientSession, ask
from weft.client.transport.link import PIPELINE_MAX
from weft.errors import InvalidArgument, QueueFull, WeftError
from weft.ids import MessageId, partition_of
from weft.proto import wire

from . import group_push
from .batch import (
    Body,
    Columns,
    Encoded,
    Headers,
    batches,
    check_body,
    check_dedup_key,
    check_labels,
    check_one,
    encode,
)
from .body_source import BodySource, with_progress


class Stored(NamedTuple):
    """Messages stored under consecutive ids."""

    first: MessageId
    messages: int


class QueuePushes:
    """The part of `QueueCore` that pushes."""

    name: str
    _session: ClientSession

    async def push(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        dedup_key: str | None = None,
        group: str | None = None,
        tenant: str | None = None,
        timeout_ms: int | None = None,
    ) -> MessageId:
        """Stores one message, durably when the call returns.

            message_id = await orders.push(b"one")

        The same `dedup_key` again within the queue's window stores nothing and returns the first
        id. `delay_ms` is in milliseconds. A push to a grouped queue names its `group`: messages of
        one group are delivered in order (docs/how-to/order-per-key.md). Consumers get the messages
        of each `tenant` in fair turns (docs/how-to/share-the-cluster.md). Raises InvalidArgument
        and TooLarge for bad arguments, QueueNotFound, QueueFull, and Unavailable if no node answers
        in time.
        """
        plain = headers is None and key is None and dedup_key is None and group is None is tenant
        if plain and delay_ms == 0 == priority and type(body) is bytes and not tracing.on():
            if len(body) > limits.BODY_BYTES_MAX:
                check_body(body)
            deadline = self._session.deadline(timeout_ms)
            return await push_plain(self._session, self.name, body, deadline)
        arguments.check_push_options(delay_ms, priority)
        if dedup_key is not None:
            check_dedup_key(dedup_key)
        check_labels(group, tenant)
        columns = Columns([check_body(body)], *check_one(headers, key))
        with tracing.pushing(self.name, columns) as traced:
            return await push_one(
                self._session,
                self.name,
                traced,
                delay_ms=delay_ms,
                priority=priority,
                dedup_key=dedup_key,
                deadline=self._session.deadline(timeout_ms),
                group=group,
                tenant=tenant,
            )

    async def push_many(
        self,
        bodies: Iterable[Body] | AsyncIterable[Body],
        *,
        headers: Iterable[Headers | None] | None = None,
        keys: Iterable[str | None] | None = None,
        dedup_keys: Iterable[str | None] | None = None,
        groups: Iterable[str] | None = None,
        tenants: Iterable[str] | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        timeout_ms: int | None = None,
    ) -> list[MessageId]:
        """Stores the messages of any iterable in few batches, durably when the call returns.

            ids = await orders.push_many([b"two", b"three"])
            ids = await orders.push_many(line.encode() for line in file)

        `headers`, `keys` and `dedup_keys` have one entry, or None, for each body. A message with a
        dedup key is pushed as a batch of its own, with 16 in flight at a time; the ids of a
        repeated key are those of its first push. For a grouped queue, `groups` has the group of
        each body: the messages of a group keep their order, and 16 groups are in flight at a time.
        `tenants` has the tenant of each body; the messages of each tenant are batches of their own.

        A collection (list, tuple, set) is checked before anything is sent. Any other iterable, also
        an async one, is read in chunks of at most 16,384 messages or 16 MiB while it is pushed;
        `timeout_ms` then applies to each chunk.

        An error states how many messages were stored before: a WeftError in its message, an
        exception of the iterable itself in a note (`__notes__`). Raises InvalidArgument and
        TooLarge for bad arguments, QueueNotFound, QueueFull, and Unavailable.
        """
        arguments.check_push_options(delay_ms, priority)
        if groups is not None and (delay_ms or priority):
            raise InvalidArgument("a message with a group has neither a delay nor a priority")
        source = BodySource(bodies, headers, keys, dedup_keys, groups, tenants)
        return await push_source(
            self._session,
            self.name,
            source,
            delay_ms=delay_ms,
            priority=priority,
            timeout_ms=timeout_ms,
        )


async def push_plain(session: ClientSession, queue: str, body: bytes, deadline: float) -> MessageId:
    """Pushes one message that is only a body. A caller waits, so this path is short."""
    if queue in session.ordered or queue in session.stochastic:
        columns = Columns([body])
        return await push_one(
            session, queue, columns, delay_ms=0, priority=0, dedup_key=None, deadline=deadline
        )
    producer, batch, router = session.producer, next(session.batches), session.router
    place = partition_of(producer, batch, router.partitions)
    request = wire.Push(queue, producer, batch, 1)
    try:
        pushed, _ = await ask(
            router, place, request, wire.Pushed, deadline, (wire.encode(wire.Payload([body])),),
            session.await_room,
        )  # fmt: skip
    except QueueFull:
        if queue not in session.stochastic:
            raise
        # The queue has just turned out to be stochastic: push to the near node.
        return await push_plain(session, queue, body, deadline)
    if pushed.partition != place:
        session.learn_place(queue, place, pushed.partition)
    if pushed.kind:
        session.learn_kind(queue, pushed.kind)
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
    group: str | None = None,
    tenant: str | None = None,
) -> MessageId:
    request = request_of(session, queue, 1, delay_ms, priority, dedup_key, group, tenant)
    (pushed,) = await push_window(session, [(request, (encode(columns),))], deadline)
    if isinstance(pushed, Exception):
        raise pushed
    return MessageId.of(pushed.partition, pushed.producer, pushed.batch, pushed.first)


def request_of(
    session: ClientSession,
    queue: str,
    count: int,
    delay_ms: int = 0,
    priority: int = 0,
    dedup_key: str | None = None,
    group: str | None = None,
    tenant: str | None = None,
) -> wire.Push:
    """Returns the request for a new batch, under the next number."""
    batch = session.next_batch(queue)
    if tenant is not None:
        return wire.PushTenant(
            queue, session.producer, batch, count, delay_ms, priority, dedup_key, tenant
        )
    if group is None:
        return wire.Push(queue, session.producer, batch, count, delay_ms, priority, dedup_key)
    return wire.PushGroup(
        queue, session.producer, batch, count, delay_ms, priority, dedup_key, group
    )


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
    stored: list[Stored]
    try:
        while not source.ended:
            columns = await source.next_chunk()
            if not columns.bodies:
                break
            with tracing.pushing(queue, columns) as traced:
                deadline = session.deadline(timeout_ms)
                if traced.groups is not None or traced.tenants is not None:
                    found, error = await group_push.store_groups(
                        session, queue, traced, deadline, delay_ms, priority
                    )
                    ids += [each for each in found if each is not None]
                    stored = []
                else:
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
    group: str | None = None,
) -> tuple[list[Stored], Exception | None]:
    """Stores batches, PIPELINE_MAX at a time; returns those stored, in order, and the error.

    The batches of a group are stored one at a time: a retry must not reorder the group.
    """
    stored: list[Stored] = []
    while window := list(islice(encoded, PIPELINE_MAX if group is None else 1)):
        pushes = list(_numbered(session, queue, window, delay_ms, priority, group))
        ends = await push_window(session, pushes, deadline)
        failure: Exception | None = None
        for (count, _, _), end in zip(window, ends, strict=True):
            if isinstance(end, wire.Pushed):
                # Not end.count: under a dedup key the first push may have had more messages.
                first = MessageId.of(end.partition, end.producer, end.batch, end.first)
                stored.append(Stored(first, count))
            else:
                failure = failure or end
        if failure is not None:
            return stored, failure
    return stored, None


def _numbered(
    session: ClientSession,
    queue: str,
    window: list[Encoded],
    delay_ms: int,
    priority: int,
    group: str | None,
) -> Iterator[tuple[wire.Push, Sequence[bytes]]]:
    for count, frame, dedup_key in window:
        push = request_of(session, queue, count, delay_ms, priority, dedup_key, group)
        yield push, (frame,)


async def push_window(
    session: ClientSession, pushes: list[tuple[wire.Push, Sequence[bytes]]], deadline: float
) -> list[wire.Pushed | Exception]:
    """Returns the answers in the order of the pushes, regardless of their nodes."""
    queue = pushes[0][0].queue
    known = queue in session.stochastic
    ends = await _push_once(session, pushes, deadline)
    if not known and queue in session.stochastic:
        # The queue has just turned out to be stochastic: what full nodes refused goes to the near
        # node, under new numbers.
        stray = [place for place, end in enumerate(ends) if isinstance(end, QueueFull)]
        if not stray:
            return ends
        again = [
            (structs.replace(pushes[n][0], batch=session.next_batch(queue)), pushes[n][1])
            for n in stray
        ]
        for place, end in zip(stray, await push_window(session, again, deadline), strict=True):
            ends[place] = end
    return ends


async def _push_once(
    session: ClientSession, pushes: list[tuple[wire.Push, Sequence[bytes]]], deadline: float
) -> list[wire.Pushed | Exception]:
    if len(pushes) == 1:  # the usual case, without the code for several
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


def _learn(session: ClientSession, queue: str, place: int, pushed: wire.Pushed) -> None:
    session.learn_place(queue, place, pushed.partition)
    if pushed.kind or queue in session.stochastic:
        session.learn_kind(queue, pushed.kind)


def _place(session: ClientSession, push: wire.Push) -> int:
    ordered = push.queue in session.ordered
    return session.router.of_push(ordered, push)
