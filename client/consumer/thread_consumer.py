"""The iteration of the synchronous consumer, in the calling thread.

The client's background loop fetches, renews and acks. The threads exchange batches, never single
messages. The calling thread itself makes nacks and extends, over its own connection.
"""

from __future__ import annotations

import queue as queues
from collections.abc import Callable

from weft.client.background import Background
from weft.client.queue_core import QueueCore
from weft.errors import WeftError

from .prefetch_buffer import PrefetchBuffer
from .prefetcher import ConsumerOptions, Prefetcher
from .sync_message import Message


class ThreadConsumer:
    """The part of `Consumer` that has no asyncio form: batches come from another thread.

    `__next__` runs once per message: it makes no call while the current batch lasts.
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

    def close(self) -> None:
        raise NotImplementedError

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
