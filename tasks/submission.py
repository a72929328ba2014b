"""Submissions: task messages pushed to the queues of an app, as coroutines over a session.

A queue of an app is made by the first submission or worker. Such a queue has no dead-letter
queue: the worker decides after the last attempt and stores the failure as the task's result.
"""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass
from typing import Any, Final

from weft import limits
from weft.client import arguments, tracing
from weft.client.admin.queues import AdminCore
from weft.client.consumer.message import BaseMessage
from weft.client.producer.batch import Columns, batches, check_body
from weft.client.producer.body_source import with_progress
from weft.client.producer.push import Stored, store
from weft.client.queue_core import QueueCore
from weft.client.routing.session import ClientSession
from weft.errors import InvalidArgument, QueueExists, QueueNotFound
from weft.ids import MessageId

from .call import NO_OPTIONS, CallOptions
from .sites.task_location import near_site

#: The lease of a task; supervisors renew leases. The tasks of a lost machine come back after this
#: time.
LEASE_MS: Final = 30_000
DELAY_S_MAX: Final = limits.DELAY_MS_MAX // limits.SECOND_MS


@dataclass(frozen=True)
class SubmitOptions:
    """Checked options of a submission."""

    delay_ms: int = 0
    priority: int = 0
    key: str | None = None
    call: CallOptions = NO_OPTIONS

    @classmethod
    def of(
        cls,
        delay: float | None,
        at: datetime.datetime | None,
        priority: int,
        key: str | None,
        reply_to: str | None,
        near: Any = None,
    ) -> SubmitOptions:
        if delay is not None and at is not None:
            raise InvalidArgument("delay and at exclude each other: pass one of them")
        if at is not None:
            if not isinstance(at, datetime.datetime):
                raise arguments.wrong_type("at", "a datetime", at)
            if at.tzinfo is None:
                raise InvalidArgument("at must have a time zone: at=datetime.now(UTC) + ...")
            delay = max(0.0, at.timestamp() - time.time())
        if delay is not None:
            arguments.check_number("delay", delay, 0, DELAY_S_MAX)
        arguments.check_integer("priority", priority, 0, limits.PRIORITY_MAX)
        if key is not None:
            arguments.check_text("key", key, 1, limits.DEDUP_KEY_BYTES_MAX)
        if reply_to is not None:
            arguments.check_queue_name("reply_to", reply_to)
        return cls(
            int((delay or 0) * 1000),
            priority,
            key,
            CallOptions(reply_to or "", near_site(near)) if reply_to or near else NO_OPTIONS,
        )


async def create_queue(session: ClientSession, name: str) -> None:
    """Creates a queue of an app; an existing queue keeps its settings."""
    try:
        await AdminCore(session).create_queue(name, {"lease_ms": LEASE_MS})
    except QueueExists:  # the operator has given the queue other settings
        pass


async def push_call(
    session: ClientSession, queue: str, body: bytes, options: SubmitOptions
) -> MessageId:
    core = QueueCore(session, queue, BaseMessage)
    while True:
        try:
            return await core.push(
                body,
                delay_ms=options.delay_ms,
                priority=options.priority,
                dedup_key=options.key,
            )
        except QueueNotFound:
            await create_queue(session, queue)


async def push_calls(
    session: ClientSession, queue: str, bodies: list[bytes], options: SubmitOptions
) -> list[Stored]:
    """Pushes calls in few batches; returns the batches. An error says how many were stored."""
    size = sum(map(len, bodies))
    if size > limits.BODY_BYTES_MAX:  # else each is small enough
        check_body(max(bodies, key=len), "each call")
    while True:
        deadline = session.deadline(None)
        with tracing.pushing(queue, Columns(bodies)) as columns:
            stored, error = await store(
                session, queue, batches(columns, size), options.delay_ms, options.priority, deadline
            )
        if error is None:
            return stored
        if not isinstance(error, QueueNotFound) or stored:
            done = sum(each.messages for each in stored)
            raise with_progress(error, done, len(bodies)) from error.__cause__
        await create_queue(session, queue)
