"""The asyncio producer: sends messages in the background until flush.

Messages are pushed in batches in the background. `flush` returns when all sent messages are stored.
The next send, flush or close raises the error of a failed batch, with the number of messages that
were not stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from types import TracebackType

from weft import limits
from weft.client import arguments, tracing
from weft.client.routing.session import ClientSession

from .accumulator import Accumulator, Post, ProducerOptions
from .batch import Body, Headers, check_body, check_dedup_key, check_group, check_one
from .batch_buffer import PushOptions


class Change:
    """Lets coroutines wait for a condition, which is checked at every notification."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, so: Callable[[], bool]) -> None:
        while not so():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter


def checked(
    body: Body,
    headers: Headers | None,
    key: str | None,
    delay_ms: int,
    priority: int,
    dedup_key: str | None,
    group: str | None,
) -> tuple[bytes, dict[str, str] | None, str | None, PushOptions, str | None]:
    """Checks one message of a producer and returns the accumulator's arguments."""
    arguments.check_push_options(delay_ms, priority)
    if dedup_key is not None:
        check_dedup_key(dedup_key)
    if group is not None:
        check_group(group)
    column, _ = check_one(headers, key)
    options = PushOptions(delay_ms, priority, group)
    return check_body(body), column[0] if column else None, key, options, dedup_key


class AsyncProducer:
    """Sends messages in background batches. Close the producer, or use `async with`: closing
    flushes.

    async with queue.producer(linger_ms=5) as producer:
        for line in lines:
            await producer.send(line)
    """

    def __init__(
        self,
        session: ClientSession,
        queue: str,
        options: ProducerOptions,
        post: Post,
        on_close: Callable[[AsyncProducer], None],
    ) -> None:
        self._queue = queue
        self._traced = tracing.on()
        self._change = Change()
        self._accumulator = Accumulator(session, queue, options, post, self._change.notify)
        self._on_close = on_close

    async def send(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        dedup_key: str | None = None,
        group: str | None = None,
    ) -> None:
        """Accepts a message to push soon. Waits while more than `buffer_bytes` are pending.

            await producer.send(b"one", headers={"kind": "order"})

        A `dedup_key` works as for `Queue.push`: the same key again within the queue's window stores
        nothing. A message with a dedup key is pushed as a batch of its own, which costs a node
        about as much as a whole batch without keys. For a grouped queue, `group` names the
        message's group: each group gathers a batch of its own, and keeps its order. Raises the
        error of an earlier batch, and UsageError when the producer is closed.
        """
        if self._accumulator.attention:
            await self._heed()
        if self._traced:
            headers = tracing.carry(self._queue, headers)
        plain = headers is None and key is None and dedup_key is None and group is None
        if plain and delay_ms == 0 == priority:
            if type(body) is not bytes or len(body) > limits.BODY_BYTES_MAX:
                body = check_body(body)
            self._accumulator.put(body)
        else:
            self._accumulator.add(
                *checked(body, headers, key, delay_ms, priority, dedup_key, group)
            )

    async def send_many(self, bodies: Iterable[Body] | AsyncIterable[Body]) -> None:
        """Accepts messages from any iterable, also an async one; much cheaper than single sends.

            await producer.send_many(line.encode() for line in file)

        A collection is checked before its first message is accepted. Any other iterable is read
        while it is sent; if the iterable raises, the messages before are sent all the same, except
        for the last piece of up to `batch_count` messages. Raises like `send`.
        """
        arguments.check_iterable("bodies", bodies, "bytes", also_async=True)
        if not isinstance(bodies, Iterable):
            async for body in bodies:
                await self.send(body)
            return
        if self._traced:
            for body in bodies:
                await self.send(body)
            return
        accumulator = self._accumulator
        written = accumulator.written(bodies)
        for batch in written:
            if accumulator.attention:
                await self._heed()
            accumulator.put_batch(batch)
        if written:
            return
        for part, size in accumulator.pieces(bodies):
            if accumulator.attention:
                await self._heed()
            accumulator.put_many(part, size)

    async def flush(self) -> None:
        """Returns when all sent messages are stored; raises the error of a failed batch."""
        self._accumulator.flush()
        await self._change.until(lambda: not self._accumulator.busy)
        self._raise()

    async def close(self) -> None:
        """Flushes and accepts no more messages. Raises like `flush`."""
        self._accumulator.close()
        try:
            await self.flush()
        finally:
            self._on_close(self)

    async def _heed(self) -> None:
        """Raises the error of a failed batch, or waits until there is room."""
        self._raise()
        await self._change.until(lambda: not self._accumulator.overfull)

    def _raise(self) -> None:
        failure = self._accumulator.take_failure()
        if failure is not None:
            raise failure

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
