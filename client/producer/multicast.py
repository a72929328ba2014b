"""multicast: one message to several queues, and pushes to a topic."""

from __future__ import annotations

from collections.abc import Iterable

from weft import limits
from weft.client import arguments, tracing
from weft.client.routing.session import ClientSession, ask
from weft.errors import InvalidArgument, TooLarge
from weft.ids import MessageId
from weft.proto import wire

from .batch import (
    Body,
    Columns,
    Headers,
    batches,
    check_bodies,
    check_body,
    check_dedup_key,
    check_group,
    check_headers,
    check_keys,
    check_one,
    encode,
)


class MulticastCore:
    """Pushes to several queues named by the caller."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def multicast(
        self,
        body: Body,
        queues: Iterable[str],
        headers: Headers | None,
        key: str | None,
        delay_ms: int,
        priority: int,
        dedup_key: str | None,
        conflict_key: str | None,
        timeout_ms: int | None,
    ) -> dict[str, MessageId]:
        names = _check_queues(queues)
        _check_options(delay_ms, priority, dedup_key, conflict_key)
        session = self._session
        columns = Columns([check_body(body)], *check_one(headers, key))
        with tracing.pushing(names[0], columns) as traced:
            request = wire.Multicast(
                names, session.producer, next(session.batches), 1, delay_ms, priority, dedup_key,
                conflict_key,
            )  # fmt: skip
            frame = encode(traced)
            answer = await send(session, request, frame, session.deadline(timeout_ms))
        return _ids(answer, 1)[0]


class TopicCore:
    """A handle for a topic, by name. The constructor sends no request; each method does."""

    def __init__(self, session: ClientSession, name: str) -> None:
        arguments.check_queue_name("name", name)
        self.name = name
        self._session = session

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    async def push(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        dedup_key: str | None = None,
        conflict_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> dict[str, MessageId]:
        """Pushes one message to every bound queue whose filter the headers match: to all or none.

            ids = await client.topic("prices").push(b"1.08", headers={"region": "eu"})

        Returns the id of the message in each queue; the mapping is empty if no queue matches, and
        then nothing is stored. The other arguments are those of `Client.multicast`. Raises
        TopicNotFound, QueueFull, InvalidArgument and TooLarge.
        """
        _check_options(delay_ms, priority, dedup_key, conflict_key)
        columns = Columns([check_body(body)], *check_one(headers, key))
        with tracing.pushing(self.name, columns) as traced:
            request = self._request(1, delay_ms, priority, dedup_key, conflict_key)
            deadline = self._session.deadline(timeout_ms)
            answer = await send(self._session, request, encode(traced), deadline)
        return _ids(answer, 1)[0]

    async def push_many(
        self,
        bodies: Iterable[Body],
        *,
        headers: Iterable[Headers | None] | None = None,
        keys: Iterable[str | None] | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        conflict_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[dict[str, MessageId]]:
        """Pushes many messages in few batches; each batch reaches all its queues, or none.

            ids = await client.topic("prices").push_many([b"1.08", b"1.09"])

        Returns for each message its id in each queue. After an error, earlier batches are stored.
        Raises like `push`.
        """
        _check_options(delay_ms, priority, None, conflict_key)
        arguments.check_iterable("bodies", bodies, "bytes")
        column = check_bodies(list(bodies))
        columns = Columns(
            column, check_headers(headers, len(column)), check_keys(keys, len(column))
        )
        deadline = self._session.deadline(timeout_ms)
        ids: list[dict[str, MessageId]] = []
        with tracing.pushing(self.name, columns) as traced:
            most = await self._batch_count_max()
            while len(ids) < len(column):
                part = traced.part(len(ids), len(ids) + most)
                for count, frame, _ in batches(part):
                    request = self._request(count, delay_ms, priority, None, conflict_key)
                    try:
                        answer = await send(self._session, request, frame, deadline)
                    except TooLarge:
                        before, most = most, await self._batch_count_max()
                        if most >= before:
                            raise
                        break  # more queues are bound than before: smaller batches
                    ids += _ids(answer, count)
        return ids

    async def describe(self) -> wire.TopicInfo:
        """Returns the bound queues and their filters. Raises TopicNotFound."""
        answer = await self._session.ask(wire.DescribeTopic(self.name), wire.Topics, None)
        return answer.topics[0]

    async def _batch_count_max(self) -> int:
        """The messages of one batch: a batch has a limit for all its copies together."""
        return limits.BATCH_COUNT_MAX // max(1, len((await self.describe()).bindings))

    def _request(
        self,
        count: int,
        delay_ms: int,
        priority: int,
        dedup_key: str | None,
        conflict_key: str | None,
    ) -> wire.PushTopic:
        session = self._session
        return wire.PushTopic(
            self.name, session.producer, next(session.batches), count, delay_ms, priority,
            dedup_key, conflict_key,
        )  # fmt: skip


async def send(
    session: ClientSession, request: wire.Multicast | wire.PushTopic, frame: bytes, deadline: float
) -> wire.Multicasted:
    """Sends a multicast to the node that probably stores it; another node passes it on."""
    router = session.router
    key = request.conflict_key if request.dedup_key is None else request.dedup_key
    name = request.producer, request.batch
    place = router.of_batch(*name) if key is None else router.of_text(key)
    answer, _ = await ask(router, place, request, wire.Multicasted, deadline, (frame,))
    return answer


def _ids(answer: wire.Multicasted, count: int) -> list[dict[str, MessageId]]:
    """For each message of a batch its id in each queue."""
    ids: list[dict[str, MessageId]] = [{} for _ in range(count)]
    for copy in answer.copies:
        partition = answer.partition if copy.partition < 0 else copy.partition
        first = MessageId.of(partition, copy.producer, copy.batch, copy.first)
        for start, length in copy.ranges:
            for place in range(start, start + length):
                ids[place][copy.queue] = MessageId(first + place)
    return ids


def _check_queues(queues: Iterable[str]) -> list[str]:
    arguments.check_iterable("queues", queues, "names of queues")
    names = list(queues)
    for name in names:
        arguments.check_queue_name("each of queues", name)
    limits.check_range("number of queues", len(names), 1, limits.MULTICAST_QUEUES_MAX)
    if len(set(names)) < len(names):
        raise InvalidArgument("queues names a queue twice")
    return names


def _check_options(
    delay_ms: int, priority: int, dedup_key: str | None, conflict_key: str | None
) -> None:
    arguments.check_push_options(delay_ms, priority)
    if dedup_key is not None:
        check_dedup_key(dedup_key)
    if conflict_key is not None:
        check_group(conflict_key, "conflict_key")
