"""Staged publish: messages that are stored and seen by nobody, until their batch is published.

An app publishes batches under growing numbers. Each task of a batch stages what it has to say under
its partition and attempt, in any process; then one publish names the winning attempts, and all of
their messages become visible, once, whatever fails and however often it is tried.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from weft import limits
from weft.errors import InvalidArgument, UsageError
from weft.proto import streams, wire

from . import retry
from .batch import Body, Columns, Headers, batches, check_bodies, check_headers, check_keys
from .link import PIPELINE_MAX, Asked
from .router import ANY
from .session import Session

#: (partition, attempt), or the `winner` of a stage, which names one try of that attempt.
Winner = tuple[int, int] | tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Published:
    messages: int
    #: It was published before: by an earlier call, or by a first try of this one.
    already: bool


class StageCore:
    """One attempt at one partition of a batch. Several may be open at once, in any process."""

    def __init__(
        self, session: Session, queue: str, app: str, batch: int, partition: int, attempt: int
    ) -> None:
        limits.check_queue_name(queue)
        limits.check_name("an app", app)
        for what, number in (("batch", batch), ("partition", partition), ("attempt", attempt)):
            limits.check_range(what, number, 0, limits.NUMBER_MAX)
        self.queue, self.app, self.batch = queue, app, batch
        self.partition, self.attempt = partition, attempt
        self._session = session
        self._token = secrets.randbits(61) + 1
        self._broken = self._closed = False
        #: Messages that are staged.
        self.count = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.batch}/{self.partition}/{self.attempt} of {self.app}>"

    @property
    def winner(self) -> tuple[int, int, int]:
        """What names exactly this try among the winners of `publish`. The plain (partition,
        attempt) names the try that was closed last, which after a restart of a whole application
        may be one of its other life."""
        return self.partition, self.attempt, self._token

    async def push(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Stages one message: durable when this returns. Many at once cost far less each."""
        await self.push_many(
            [body], headers=[headers] if headers else None, keys=[key] if key is not None else None,
            timeout_ms=timeout_ms,
        )  # fmt: skip

    async def push_many(
        self,
        bodies: Sequence[Body],
        *,
        headers: Sequence[Headers | None] | None = None,
        keys: Sequence[str | None] | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """Stages messages in few batches, durable when this returns; says how many.

        After an error nobody knows how much was staged: the stage cannot be closed any more, and
        the task has to be tried again with another one.
        """
        self._check_open()
        column = check_bodies(bodies)
        columns = Columns(
            column, check_headers(headers, len(column)), check_keys(keys, len(column))
        )
        deadline = self._session.deadline(timeout_ms)
        self._broken = True
        encoded = batches(columns)
        while window := list(islice(encoded, PIPELINE_MAX)):
            routed = [self._routed(count, frame) for count, frame in window]
            ends = await retry.ask_all(self._session.router, routed, wire.Pushed, deadline)
            for (place, _), end in zip(routed, ends, strict=True):
                if not isinstance(end, wire.Pushed):
                    raise end
                if end.partition != place:  # the queue is an ordered one, or is none any more
                    self._session.ordered ^= {self.queue}
        self._broken = False
        self.count += len(column)
        return len(column)

    def _routed(self, count: int, frame: bytes) -> tuple[int, Asked]:
        session = self._session
        number = next(session.batches)
        push = wire.Push(self.queue, session.producer, number, count)
        place = session.router.of_push(self.queue in session.ordered, push)
        request = streams.Stage(
            self.queue, self.app, self.batch, self.partition, self.attempt, self._token,
            session.producer, number, count,
        )  # fmt: skip
        return place, (request, (frame,))

    async def close(self, *, timeout_ms: int | None = None) -> int:
        """All is staged: it may be named as a winner. Says how many messages it has."""
        if not self._closed:
            self._check_open()
            request = streams.CloseStage(
                self.queue, self.app, self.batch, self.partition, self.attempt, self._token,
                self.count,
            )  # fmt: skip
            await self._session.ask(ANY, request, wire.Done, timeout_ms)
            self._closed = True
        return self.count

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the stage is closed")
        if self._broken:
            raise UsageError("an earlier push into this stage failed: stage it all again")


class StagingCore:
    """What an app says about its batches."""

    def __init__(self, session: Session) -> None:
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
        chosen = [_winner(winner) for winner in winners]
        request = streams.Publish(queue, app, batch, chosen)
        said = await self._session.ask(ANY, request, streams.Published, timeout_ms)
        return Published(said.messages, said.already)

    async def abort(self, queue: str, app: str, batch: int, timeout_ms: int | None) -> int:
        _check(queue, app, batch)
        request = streams.Abort(queue, app, batch)
        return (await self._session.ask(ANY, request, wire.Done, timeout_ms)).count

    async def last_published(self, queue: str, app: str, timeout_ms: int | None) -> int | None:
        _check(queue, app, 0)
        request = streams.LastPublished(queue, app)
        return (await self._session.ask(ANY, request, streams.LastBatch, timeout_ms)).batch


def _check(queue: str, app: str, batch: int) -> None:
    limits.check_queue_name(queue)
    limits.check_name("an app", app)
    limits.check_range("batch", batch, 0, limits.NUMBER_MAX)


def _winner(winner: Winner) -> tuple[int, int, int]:
    if not 2 <= len(winner) <= 3:
        raise InvalidArgument("a winner is (partition, attempt), or a stage's own `winner`")
    return (*winner[:2], winner[2] if len(winner) == 3 else 0)
