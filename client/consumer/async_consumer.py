"""The asyncio consumer: `async for message in queue.consume()`.

The consumer prefetches messages and renews the leases of messages in progress. Acks are sent in
batches a moment later; `flush` waits for the answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Generic

from weft.client import arguments
from weft.client.producer.accumulator import Post
from weft.client.queue_core import QueueCore
from weft.errors import WeftError

from .message import AsyncMessage, M
from .prefetch_buffer import PrefetchBuffer
from .prefetcher import ConsumerOptions, Prefetcher

log = logging.getLogger("weft.client")


class Front(Generic[M]):
    """Takes handed-out messages, on the event loop of the prefetcher."""

    def __init__(
        self,
        queue: QueueCore[M],
        direct: QueueCore[M],
        options: ConsumerOptions,
        post: Post,
        on_close: Callable[[Prefetcher[M]], None],
    ) -> None:
        self._line: asyncio.Queue[list[M] | WeftError | None] = asyncio.Queue()
        self._prefetch_buffer = PrefetchBuffer(self._line)
        self.prefetcher = Prefetcher(queue, direct, options, post, self._prefetch_buffer, on_close)

    async def next(self) -> M | None:
        """Returns the next message, None at the end. Raises the error that ended the consumer."""
        while True:
            for message in self._prefetch_buffer.current:
                if not message._lease.lost:
                    return message
            self.prefetcher.want()
            batch = await self._line.get()
            if batch is None:
                return None
            if isinstance(batch, WeftError):
                raise batch
            self._prefetch_buffer.current = iter(batch)


class AsyncConsumer:
    """Iterates over the messages of a queue. Close the consumer, or use `async with`.

    async with queue.consume(prefetch=100) as consumer:
        async for message in consumer:
            work(message.body)
            await message.ack()
            await consumer.flush()    # if the ack must be confirmed before the next step

    A message counts as delivered when the iteration yields it. The client holds up to `prefetch`
    more messages; they return uncounted when the consumer ends, even if the process is killed.
    """

    def __init__(
        self,
        queue: QueueCore[AsyncMessage],
        options: ConsumerOptions,
        on_close: Callable[[Prefetcher[AsyncMessage]], None],
    ) -> None:
        self._front = Front(queue, queue, options, at_once, on_close)
        self.prefetcher = self._front.prefetcher
        self._loop = asyncio.get_running_loop()
        self._ended = False

    @property
    def lost(self) -> int:
        """Number of messages that are delivered again because the lease ended before the ack."""
        return self.prefetcher.losses.count

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> AsyncMessage:
        if not self._ended:
            try:
                message = await self._front.next()
            except WeftError:
                self._ended = True
                self.prefetcher.abandon()
                raise
            if message is not None:
                return message
            await self.close()
        raise StopAsyncIteration

    async def flush(self) -> None:
        """Returns when every ack so far is confirmed: durable on the node.

        Raises LeaseLost if an ack since the last flush came too late, so that the message is
        delivered again, and any other WeftError that prevented a confirmation. A consumer with
        `on_lost` passes the ids to that function instead and raises nothing.
        """
        await self.prefetcher.flush()

    async def drain(self, timeout_s: float = 30) -> int:
        """Stops fetching, waits up to `timeout_s` seconds for messages in hand, flushes, and
        closes.

            left = await consumer.drain(timeout_s=10)

        Call `drain` from another task than the one that works on the messages. Returns the number
        of messages still in hand; the client renews their leases until they are settled. Raises
        like `flush`.
        """
        arguments.check_number("timeout_s", timeout_s, 0, arguments.WAIT_S_MAX)
        self._ended = True
        return await self.prefetcher.drain(timeout_s)

    async def close(self) -> None:
        """Flushes the acks and returns messages that were not handed out, uncounted.

        The client renews leases of messages in hand until they are acked or nacked, for
        `renew_for_ms` milliseconds at most, or until the client closes. Raises like `flush`.
        """
        self._ended = True
        if not self.prefetcher.closed:
            await self.prefetcher.close()

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close()
        except WeftError as failed:  # the error that ends the block is more informative
            log.warning("a consumer was closed: %s", failed.message)

    def __del__(self) -> None:
        # The application left the loop with `break`, so nothing else can close the consumer.
        prefetcher = getattr(self, "prefetcher", None)
        if prefetcher is not None and not prefetcher.closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(prefetcher.abandon)


def at_once(callback: Callable[..., None], *arguments: object) -> None:
    """Calls at once: the caller is already on the event loop."""
    callback(*arguments)
