"""The asyncio consumer: `async for message in queue.consume()`.

Messages are fetched ahead and their leases renewed while they are worked on. An ack is gathered
and sent with others a moment later; `lost` counts those that came too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import TracebackType

from weft.errors import WeftError

from .inbox import ConsumerOptions, Inbox
from .message import AsyncMessage
from .queue import QueueCore


class Consumer:
    """Iterate it; close it, or use it with `async with`, to give back what was not looked at."""

    def __init__(
        self,
        queue: QueueCore[AsyncMessage],
        options: ConsumerOptions,
        on_close: Callable[[Inbox[AsyncMessage]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._shelf: asyncio.Queue[list[AsyncMessage] | WeftError | None] = asyncio.Queue()
        self._current: Iterator[AsyncMessage] = iter(())
        self._ended = False
        self._on_close = on_close
        self.inbox = Inbox(queue, queue, options, _now, self._shelf.put_nowait)

    @property
    def lost(self) -> int:
        """Messages that are delivered again because their lease ended before their ack came."""
        return self.inbox.losses.count

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> AsyncMessage:
        while not self._ended:
            for message in self._current:
                if not message._lease.lost:
                    return message
            batch = await self._shelf.get()
            if isinstance(batch, list):
                self._current = iter(batch)
                self.inbox.taken(len(batch))
                continue
            self._ended = True
            await self.close()
            if batch is not None:
                raise batch
        raise StopAsyncIteration

    async def close(self) -> None:
        """Sends the acks and gives back what was not looked at."""
        await self.inbox.close(self._unseen)
        self._ended = True
        self._on_close(self.inbox)

    def _unseen(self) -> list[AsyncMessage]:
        return _drain(self._current, self._shelf)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        # A loop that was left with `break`: nobody else can close this consumer any more.
        inbox = getattr(self, "inbox", None)
        if inbox is None or inbox.closed or self._loop.is_closed():
            return
        current, shelf, on_close = self._current, self._shelf, self._on_close

        async def close() -> None:
            await inbox.close(lambda: _drain(current, shelf))
            on_close(inbox)

        self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(close()))


def _drain(
    current: Iterator[AsyncMessage], shelf: asyncio.Queue[list[AsyncMessage] | WeftError | None]
) -> list[AsyncMessage]:
    unseen = list(current)
    while not shelf.empty():
        batch = shelf.get_nowait()
        if isinstance(batch, list):
            unseen += batch
    return unseen


def _now(callback: Callable[..., None], *arguments: object) -> None:
    """The caller is on the event loop already."""
    callback(*arguments)
