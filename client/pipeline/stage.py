"""Staged publish: messages that are stored but invisible until their batch is published.

An app publishes batches under increasing numbers. Each task of a batch stages its output under its
partition and attempt, in any process. Then one publish names the winning attempts, and all their
messages become visible exactly once, regardless of failures and retries.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from itertools import islice

from weft import limits
from weft.client import arguments
from weft.client.producer.batch import Body, Columns, Headers, batches, check_body, check_one
from weft.client.producer.body_source import BodySource
from weft.client.routing.session import ClientSession, ask_all
from weft.client.transport.link import PIPELINE_MAX, Asked
from weft.errors import InvalidArgument, UsageError
from weft.proto import pipelines, wire

#: (partition, attempt), or the `winner` of a stage, which names one try of an attempt.
Winner = tuple[int, int] | tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a publish."""

    #: Messages that became visible.
    messages: int
    #: True if the batch was published before: by an earlier call, or by a first try of this call.
    already: bool


class StageCore:
    """One attempt at one partition of a batch. Several may be open at once, in any process."""

    def __init__(
        self, session: ClientSession, queue: str, app: str, batch: int, partition: int, attempt: int
    ) -> None:
        _check(queue, app, batch)
        arguments.check_integer("partition", partition, 0, limits.NUMBER_MAX)
        arguments.check_integer("attempt", attempt, 0, limits.NUMBER_MAX)
        self.queue, self.app, self.batch = queue, app, batch
        self.partition, self.attempt = partition, attempt
        self._session = session
        self._token = secrets.randbits(61) + 1
        self._broken = self._closed = False
        #: Number of staged messages.
        self.count: int = 0

    def __repr__(self) -> str:
        attempt = f"{self.batch}/{self.partition}/{self.attempt}"
        return f"<{type(self).__name__} {attempt} of {self.app}>"

    @property
    def winner(self) -> tuple[int, int, int]:
        """Identifies exactly this try among the winners of `publish`.

        The plain (partition, attempt) names the try closed last. After a restart of a whole
        application, the last closed try may be from before the restart.
        """
        return self.partition, self.attempt, self._token

    async def push(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Stages one message, durably when the call returns. `push_many` costs far less each.

        Raises like `push_many`.
        """
        columns, keys = check_one(headers, key)
        await self.push_many([check_body(body)], headers=columns, keys=keys, timeout_ms=timeout_ms)

    async def push_many(
        self,
        bodies: Iterable[Body] | AsyncIterable[Body],
        *,
        headers: Iterable[Headers | None] | None = None,
        keys: Iterable[str | None] | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """Stages the messages of any iterable in few batches, durably when the call returns.

            count = await stage.push_many(rows)

        Returns the number of messages. An iterable that is not a collection is read while it is
        staged.

        After an error the number of staged messages is unknown: the stage cannot be closed any
        more, and the task must be retried with another stage. Raises UsageError on such a stage or
        a closed one, and Fenced if the batch is already published.
        """
        self._check_open()
        source = BodySource(bodies, headers, keys)
        self._session.deadline(timeout_ms)
        self._broken = True
        staged = 0
        while not source.ended:
            columns = await source.next_chunk()
            await self._stage(columns, self._session.deadline(timeout_ms))
            staged += len(columns.bodies)
        self._broken = False
        self.count += staged
        return staged

    async def _stage(self, columns: Columns, deadline: float) -> None:
        encoded = batches(columns)
        while window := list(islice(encoded, PIPELINE_MAX)):
            routed = [self._routed(count, frame) for count, frame, _ in window]
            ends = await ask_all(self._session.router, routed, wire.Pushed, deadline)
            for (place, _), end in zip(routed, ends, strict=True):
                if not isinstance(end, wire.Pushed):
                    raise end
                self._session.learn_place(self.queue, place, end.partition)

    def _routed(self, count: int, frame: bytes) -> tuple[int, Asked]:
        session = self._session
        number = next(session.batches)
        push = wire.Push(self.queue, session.producer, number, count)
        place = session.router.of_push(self.queue in session.ordered, push)
        request = pipelines.StageBatch(
            self.queue, self.app, self.batch, self.partition, self.attempt, self._token,
            session.producer, number, count,
        )  # fmt: skip
        return place, (request, (frame,))

    async def close(self, *, timeout_ms: int | None = None) -> int:
        """Completes the stage, so that it can be a winner. Returns the number of messages.

        Raises UsageError after a failed push, and Fenced if the batch is published or aborted.
        """
        if not self._closed:
            self._check_open()
            request = pipelines.CloseStage(
                self.queue, self.app, self.batch, self.partition, self.attempt, self._token,
                self.count,
            )  # fmt: skip
            await self._session.ask(request, wire.Done, timeout_ms)
            self._closed = True
        return self.count

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the stage is closed")
        if self._broken:
            raise UsageError("an earlier push into this stage failed: stage it all again")


class StagingCore:
    """The operations of an app on its batches."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def publish(
        self,
        queue: str,
        app: str,
        batch: int,
        winners: Iterable[Winner],
        timeout_ms: int | None,
    ) -> Published:
        _check(queue, app, batch)
        arguments.check_iterable("winners", winners, "(partition, attempt)")
        chosen = [_winner(winner) for winner in winners]
        request = pipelines.Publish(queue, app, batch, chosen)
        said = await self._session.ask(request, pipelines.PublishResult, timeout_ms)
        return Published(said.messages, said.already)

    async def abort(self, queue: str, app: str, batch: int, timeout_ms: int | None) -> int:
        _check(queue, app, batch)
        request = pipelines.Abort(queue, app, batch)
        return (await self._session.ask(request, wire.Done, timeout_ms)).count

    async def last_published(self, queue: str, app: str, timeout_ms: int | None) -> int | None:
        _check(queue, app, 0)
        request = pipelines.LastPublished(queue, app)
        return (await self._session.ask(request, pipelines.LastBatch, timeout_ms)).batch


def _check(queue: str, app: str, batch: int) -> None:
    arguments.check_queue_name("queue", queue)
    arguments.check_queue_name("app", app)
    arguments.check_integer("batch", batch, 0, limits.NUMBER_MAX)


def _winner(winner: Winner) -> tuple[int, int, int]:
    if (
        not isinstance(winner, tuple)
        or not 2 <= len(winner) <= 3
        or any(not isinstance(number, int) or isinstance(number, bool) for number in winner)
    ):
        raise InvalidArgument("each of winners is (partition, attempt), or a stage's own `winner`")
    return (*winner[:2], winner[2] if len(winner) == 3 else 0)
