"""Calls: questions pushed to any queue, and the one queue in which their answers arrive.

A client has one reply queue, made by its first call. A consumer of the event loop reads it, and
gives each answer to the call that waits for it; answers to no waiting call are late, and dropped.
The queue expires by itself (`expire_idle_ms`) if the client ends without closing, and the waiting
consumer keeps it while the client lives.

| the reply queue | a call | an answer |
|---|---|---|
| absent | makes the queue, as a new one under a new name | - |
| open | waits under its id | ends its call |
| lost (deleted, expired, not readable) | raises the error; the next call makes a queue | - |
| closed with the client | raises UsageError | - |
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import dataclass, field
from typing import Final

from weft import limits
from weft.errors import (
    CallTimedOut,
    DeadlineExceeded,
    Overloaded,
    QueueNotFound,
    ReplyQueueLost,
    UsageError,
    WeftError,
)
from weft.proto import call_headers, wire

from . import arguments, tracing
from .admin.queues import make_settings
from .consumer.async_consumer import AsyncConsumer
from .consumer.message import AsyncMessage
from .consumer.prefetcher import ConsumerOptions
from .consumer.reply import check_reserved
from .producer import push
from .producer.batch import Body, Columns, Headers, check_body, check_labels, check_one
from .queue_core import QueueCore
from .routing.session import ClientSession

log = logging.getLogger("weft.client")

#: Names of reply queues begin so: grants of tokens name them by this prefix.
REPLY_PREFIX: Final = "reply."
#: A client that cannot reach the cluster for so long has lost its reply queue.
EXPIRE_IDLE_MS: Final = 60 * limits.SECOND_MS
#: A client that closes waits so long for the deletion of its reply queue, which expires otherwise.
DELETE_TIMEOUT_MS: Final = 2 * limits.SECOND_MS
#: Calls of one client that wait for their answers.
CALLS_MAX: Final = 100_000
#: Random bytes of a call's id, and of a reply queue's name: they cannot be guessed.
_ID_BYTES: Final = 16


@dataclass(frozen=True)
class CallAnswer:
    """The answer to a call.

    answer = orders.call(b"question", timeout_ms=1000)
    print(answer.body, answer.headers)
    """

    #: The content, as the responder passed it to `message.reply`.
    body: bytes
    #: The headers that the responder passed to `message.reply`; empty if none.
    headers: dict[str, str]


@dataclass(frozen=True)
class CallArguments:
    """The arguments of a call."""

    body: Body
    headers: Headers | None
    key: str | None
    priority: int
    group: str | None
    timeout_ms: int | None

    def columns(self, added: dict[str, str]) -> Columns:
        """Returns the message with the headers of the call."""
        given, keys = check_one(self.headers, self.key)
        headers, _ = check_one({**((given and given[0]) or {}), **added}, None)
        return Columns([check_body(self.body)], headers, keys)

    def check(self) -> None:
        """Raises InvalidArgument or TooLarge before anything is sent."""
        arguments.check_push_options(0, self.priority)
        check_labels(self.group, None)
        if self.timeout_ms is not None:
            arguments.check_timeout(self.timeout_ms)
        self.columns({})
        check_reserved(self.headers)


@dataclass
class _OpenQueue:
    """The reply queue while it is read."""

    name: str
    consumer: AsyncConsumer
    reader: asyncio.Task[None] | None = None
    #: The waiting calls, by id.
    calls: dict[str, asyncio.Future[CallAnswer]] = field(default_factory=dict)


class ReplyQueue:
    """The calls of one client. Belongs to an event loop: that of the client, or its background."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._opening = asyncio.Lock()
        self._open: _OpenQueue | None = None
        self._closed = False

    async def call(self, queue: str, question: CallArguments) -> CallAnswer:
        """Pushes the question to the queue and returns the answer; see `Queue.call`."""
        question.check()
        deadline = self._session.deadline(question.timeout_ms)
        timeout_ms = int((deadline - time.monotonic()) * 1000) + 1
        opened = await self._opened(deadline)
        if len(opened.calls) >= CALLS_MAX:
            raise Overloaded(f"this client waits for {CALLS_MAX} answers: end some calls first")
        call_id = secrets.token_hex(_ID_BYTES)
        answered: asyncio.Future[CallAnswer] = asyncio.get_running_loop().create_future()
        opened.calls[call_id] = answered
        added = {
            call_headers.REPLY_TO: opened.name,
            call_headers.CALL_ID: call_id,
            call_headers.CALL_TIMEOUT_MS: str(timeout_ms),
        }
        try:
            await self._push(queue, question, added, deadline)
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await answered
        except TimeoutError:
            raise CallTimedOut(
                f"no answer to the call of {queue} within {timeout_ms} ms: the question "
                "may still be answered or wait in the queue, but its answer is dropped"
            ) from None
        finally:
            opened.calls.pop(call_id, None)
            if answered.done() and not answered.cancelled():
                answered.exception()  # an error that no caller sees is not worth a warning

    async def _push(
        self, queue: str, question: CallArguments, added: dict[str, str], deadline: float
    ) -> None:
        with tracing.pushing(queue, question.columns(added)) as traced:
            await push.push_one(
                self._session,
                queue,
                traced,
                delay_ms=0,
                priority=question.priority,
                dedup_key=None,
                deadline=deadline,
                group=question.group,
            )

    # --- the reply queue ---

    async def _opened(self, deadline: float) -> _OpenQueue:
        async with self._opening:
            if self._closed:
                raise UsageError("the client is closed")
            if self._open is None:
                self._open = await self._create(deadline)
            return self._open

    async def _create(self, deadline: float) -> _OpenQueue:
        name = REPLY_PREFIX + secrets.token_hex(_ID_BYTES)
        settings = make_settings({"expire_idle_ms": EXPIRE_IDLE_MS})
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        try:
            await self._session.ask(wire.create_request(name, settings), wire.Created, left_ms)
        except DeadlineExceeded as error:
            raise CallTimedOut(f"the reply queue was not made in time: {error.message}") from error
        queue = QueueCore(self._session, name, AsyncMessage)
        opened = _OpenQueue(name, AsyncConsumer(queue, ConsumerOptions(), lambda _: None))
        opened.reader = asyncio.ensure_future(self._read(opened))
        return opened

    async def _read(self, opened: _OpenQueue) -> None:
        try:
            async for message in opened.consumer:
                waiting = opened.calls.get(message.headers.get(call_headers.CALL_ID, ""))
                if waiting is not None and not waiting.done():
                    waiting.set_result(CallAnswer(message.body, _own_headers(message)))
                else:
                    log.debug("a late answer in %s was dropped", opened.name)
                await message.ack()
        except WeftError as error:
            await self._lost(opened, error)

    async def _lost(self, opened: _OpenQueue, error: WeftError) -> None:
        """The queue cannot be read any more: its calls fail, and the next call makes another."""
        if self._open is opened:
            self._open = None
        if isinstance(error, QueueNotFound):
            error = ReplyQueueLost(
                f"the reply queue {opened.name} of this client is gone, deleted or not read for "
                f"{EXPIRE_IDLE_MS // limits.SECOND_MS} s: no answer can arrive; call again"
            )
        elif not self._closed:
            log.warning("the reply queue %s cannot be read: %s", opened.name, error.message)
            await self._delete(opened)
        _fail(opened, error)

    async def _delete(self, opened: _OpenQueue) -> None:
        try:
            request = wire.DeleteQueue(opened.name)
            await self._session.ask(request, wire.Done, DELETE_TIMEOUT_MS)
        except QueueNotFound:
            pass  # it has expired
        except WeftError as error:
            log.warning(
                "the reply queue %s was not deleted and expires in %d s: %s",
                opened.name, EXPIRE_IDLE_MS // limits.SECOND_MS, error.message,
            )  # fmt: skip

    async def close(self) -> None:
        """Ends the waiting calls with UsageError, and deletes the reply queue."""
        async with self._opening:
            self._closed = True
            opened, self._open = self._open, None
        if opened is None or opened.reader is None:
            return
        _fail(opened, UsageError("the client was closed while a call waited for its answer"))
        opened.reader.cancel()
        await asyncio.gather(opened.reader, return_exceptions=True)
        await self._delete(opened)
        try:
            await opened.consumer.close()
        except WeftError as error:  # the acks of a deleted queue are of no use
            log.debug("the consumer of %s was closed: %s", opened.name, error.message)


def _own_headers(message: AsyncMessage) -> dict[str, str]:
    """The headers of an answer without those of the call."""
    headers = message.headers
    return {name: value for name, value in headers.items() if name not in call_headers.RESERVED}


def _fail(opened: _OpenQueue, error: WeftError) -> None:
    for waiting in opened.calls.values():
        if not waiting.done():
            waiting.set_exception(error)
