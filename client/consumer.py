"""The asyncio consumer: `async for message in queue.consume()`.

Messages are fetched ahead and their leases renewed while they are worked on. An ack is gathered
and sent with others a moment later; `lost` counts those that came too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from weft.errors import WeftError

from .inbox import ConsumerOptions, Inbox
from .message import AsyncMessage
from .queue import QueueCore
from .shelf import Shelf


class Consumer:
    """Iterate it; close it, or use it with `async with`, to give back what was not looked at."""

    def __init__(
        self,
        queue: QueueCore[AsyncMessage],
        options: ConsumerOptions,
        on_close: Callable[[Inbox[AsyncMessage]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._line: asyncio.Queue[list[AsyncMessage] | WeftError | None] = asyncio.Queue()
        self._shelf = Shelf(self._line)
        self._ended = False
        self.inbox = Inbox(queue, queue, options, _now, self._shelf, on_close)

    @property
    def lost(self) -> int:
        """Messages that are delivered again because their lease ended before their ack came."""
        return self.inbox.losses.count

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> AsyncMessage:
        while not self._ended:
            for message in self._shelf.current:
                if not message._lease.lost:
                    return message
            batch = await self._line.get()
            if isinstance(batch, list):
                self._shelf.current = iter(batch)
                self.inbox.taken(len(batch))
                continue
            await self.close()
            if batch is not None:
                raise batch
        raise StopAsyncIteration

    async def close(self) -> None:
        """Sends the acks and gives back what was not looked at."""
        self._ended = True
        await self.inbox.close()

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
        if inbox is not None and not inbox.closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(inbox.abandon)


def _now(callback: Callable[..., None], *arguments: object) -> None:
    """The caller is on the event loop already."""
    callback(*arguments)
