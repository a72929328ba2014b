"""reply: answers a question that `call` has pushed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft import limits
from weft.client import arguments, tracing
from weft.client.producer import push
from weft.client.producer.batch import Body, Columns, Headers, check_body, check_one
from weft.client.transaction.async_transaction import AsyncTransaction
from weft.errors import CallerGone, InvalidArgument, QueueNotFound, UsageError
from weft.proto import call_headers

if TYPE_CHECKING:
    from weft.client.routing.session import ClientSession

    from .message import BaseMessage


def check_reserved(headers: Headers | None) -> None:
    """Raises InvalidArgument for a header that belongs to calls."""
    taken = sorted(call_headers.RESERVED.intersection(headers or ()))
    if taken:
        raise InvalidArgument(
            f"headers: {', '.join(taken)} is set by call and reply: leave it out, or push a "
            "message with these headers instead"
        )


async def reply(
    session: ClientSession,
    message: BaseMessage,
    body: Body,
    headers: Headers | None,
    ack: bool,
    timeout_ms: int | None,
) -> None:
    """Pushes the answer to the queue that the question names; with `ack`, in one commit with the
    acknowledgement of the question."""
    arguments.check_flag("ack", ack)
    content, (column, _) = check_body(body), check_one(headers, None)
    check_reserved(headers)
    deadline = session.deadline(timeout_ms)
    target = _target(message)
    added = {**((column and column[0]) or {})}
    if (call_id := message.headers.get(call_headers.CALL_ID)) is not None:
        added[call_headers.CALL_ID] = call_id
    columns = Columns([content], *check_one(added, None))
    try:
        with tracing.pushing(target, columns) as traced:
            if ack:
                await _commit(session, message, target, traced, timeout_ms)
            else:
                await push.push_one(
                    session, target, traced, delay_ms=0, priority=0, dedup_key=None,
                    deadline=deadline,
                )  # fmt: skip
    except QueueNotFound as error:
        if target not in error.message:
            raise  # the queue of the question is gone
        raise CallerGone(
            f"the reply queue {target} is gone: the caller has closed its client, or has not read "
            "its answers for too long. Acknowledge the question: no caller waits for its answer"
        ) from error


def _target(message: BaseMessage) -> str:
    """The reply queue that the question names."""
    target = message.reply_to
    if target is None:
        raise UsageError(
            f"the message {message.id} of {message.queue} is not a question: it has no header "
            f"{call_headers.REPLY_TO}, which call sets"
        )
    try:
        limits.check_queue_name(target)
    except InvalidArgument as error:
        raise CallerGone(f"{call_headers.REPLY_TO} names no queue: {error.message}") from None
    return target


async def _commit(
    session: ClientSession,
    message: BaseMessage,
    target: str,
    columns: Columns,
    timeout_ms: int | None,
) -> None:
    transaction = AsyncTransaction(session, session.home_numbers)
    transaction.ack(message)
    headers = columns.headers[0] if columns.headers else None
    transaction.push(target, columns.bodies[0], headers=headers)
    await transaction.commit(timeout_ms=timeout_ms)
