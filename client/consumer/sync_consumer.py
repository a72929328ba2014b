"""The synchronous consumer: `for message in queue.consume()`.

The client's background loop fetches, renews and acks. The threads exchange batches, never single
messages. The calling thread itself makes nacks and extends, over its own connection.
"""

from __future__ import annotations

import logging
import queue as queues
from collections.abc import Callable, Iterator
from types import TracebackType

from weft.client import arguments
from weft.client.background import Background
from weft.client.queue_core import QueueCore
from weft.errors import WeftError

from .message import Message
from .prefetch_buffer import PrefetchBuffer
from .prefetcher import ConsumerOptions, Prefetcher

log = logging.getLogger("weft.client")


class Consumer:
    """Iterates over the messages of a queue. Close the consumer, or use `with`.

    with queue.consume(prefetch=100) as consumer:
        for message in consumer:
            work(message.body)
            message.ack()
            consumer.flush()    # if the ack must be confirmed before the next step

    A message counts as delivered when the iteration yields it. The client holds up to `prefetch`
    more messages; they return uncounted when the consumer ends, even if the process is killed.
    Iterate in one thread; any thread may settle the messages.
    """

    def __init__(
        self,
        background: Background,
        direct: QueueCore[Message],
        options: ConsumerOptions,
        on_close: Callable[[Prefetcher[Message]], None],
    ) -> None:
        self._background = background
        self._line: queues.SimpleQueue[list[Message] | WeftError | None] = queues.SimpleQueue()
        self._prefetch_buffer = PrefetchBuffer(self._line)
        self._ended = False
        fetching = QueueCore(background.session, direct.name, Message)
        self.prefetcher = background.wait(
            _open(fetching, direct, options, background.post, self._prefetch_buffer, on_close)
        )

    @property
    def lost(self) -> int:
        """Number of messages that are delivered again because the lease ended before the ack."""
        return self.prefetcher.losses.count

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        while not self._ended:
            for message in self._prefetch_buffer.current:
                if not message._lease.lost:
                    return message
            if not self.prefetcher.closed:
                self._background.post(self.prefetcher.want)
            batch = self._line.get()
            if isinstance(batch, list):
                self._prefetch_buffer.current = iter(batch)
                continue
            if batch is not None:
                self._ended = True
                self._background.post(self.prefetcher.abandon)
                raise batch
            self.close()
        raise StopIteration

    def flush(self) -> None:
        """Returns when every ack so far is confirmed: durable on the node.

        Raises LeaseLost if an ack since the last flush came too late, so that the message is
        delivered again, and any other WeftError that prevented a confirmation. A consumer with
        `on_lost` passes the ids to that function instead and raises nothing.
        """
        self._background.wait(self.prefetcher.flush())

    def drain(self, timeout_s: float = 30) -> int:
        """Stops fetching, waits up to `timeout_s` seconds for messages in hand, flushes, and
        closes.

        Call `drain` from another thread than the one that works on the messages, or after the last
        message. Returns the number of messages still in hand; the client renews their leases until
        they are settled. Raises like `flush`.
        """
        arguments.check_number("timeout_s", timeout_s, 0, arguments.WAIT_S_MAX)
        self._ended = True
        return self._background.wait(self.prefetcher.drain(timeout_s))

    def close(self) -> None:
        """Flushes the acks and returns messages that were not handed out, uncounted.

        The client renews leases of messages in hand until they are acked or nacked, for
        `renew_for_ms` milliseconds at most, or until the client closes. Raises like `flush`.
        """
        self._ended = True
        if not self.prefetcher.closed:
            self._background.wait(self.prefetcher.close())

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except WeftError as failed:  # the error that ends the block is more informative
            log.warning("a consumer was closed: %s", failed.message)

    def __del__(self) -> None:
        # The application left the loop with `break`, so nothing else can close the consumer.
        prefetcher = getattr(self, "prefetcher", None)
        if prefetcher is not None and not prefetcher.closed and self._background.running:
            self._background.post(prefetcher.abandon)


async def _open(
    fetching: QueueCore[Message],
    direct: QueueCore[Message],
    options: ConsumerOptions,
    post: Callable[..., None],
    prefetch_buffer: PrefetchBuffer[Message],
    on_close: Callable[[Prefetcher[Message]], None],
) -> Prefetcher[Message]:
    """Runs on the background loop: a prefetcher belongs to the loop that creates it."""
    return Prefetcher(fetching, direct, options, post, prefetch_buffer, on_close)
