"""The synchronous consumer: `for message in queue.consume()`.

The client's background loop fetches, renews and acks; what crosses between the threads is a batch,
never a message. Nacks and extends are made by the calling thread itself, over its own connection.
"""

from __future__ import annotations

import queue as queues
from collections.abc import Callable, Iterator
from types import TracebackType

from weft.errors import WeftError

from .background import Background
from .inbox import ConsumerOptions, Inbox
from .message import Message
from .queue import QueueCore
from .shelf import Shelf


class Consumer:
    """Iterate it in one thread; its messages may be acked from any.

    Close it, or use it with `with`, to give back what was not looked at.
    """

    def __init__(
        self,
        background: Background,
        direct: QueueCore[Message],
        options: ConsumerOptions,
        on_close: Callable[[Inbox[Message]], None],
    ) -> None:
        self._background = background
        self._line: queues.SimpleQueue[list[Message] | WeftError | None] = queues.SimpleQueue()
        self._shelf = Shelf(self._line)
        self._ended = False
        fetching = QueueCore(background.session, direct.name, Message)
        self.inbox = background.wait(
            _open(fetching, direct, options, background.post, self._shelf, on_close)
        )

    @property
    def lost(self) -> int:
        """Messages that are delivered again because their lease ended before their ack came."""
        return self.inbox.losses.count

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        while not self._ended:
            for message in self._shelf.current:
                if not message._lease.lost:
                    return message
            batch = self._line.get()
            if isinstance(batch, list):
                self._shelf.current = iter(batch)
                self._background.post(self.inbox.taken, len(batch))
                continue
            self.close()
            if batch is not None:
                raise batch
        raise StopIteration

    def close(self) -> None:
        """Sends the acks and gives back what was not looked at."""
        self._ended = True
        if not self.inbox.closed:
            self._background.wait(self.inbox.close())

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A loop that was left with `break`: nobody else can close this consumer any more.
        inbox = getattr(self, "inbox", None)
        if inbox is not None and not inbox.closed and self._background.running:
            self._background.post(inbox.abandon)


async def _open(
    fetching: QueueCore[Message],
    direct: QueueCore[Message],
    options: ConsumerOptions,
    post: Callable[..., None],
    shelf: Shelf[Message],
    on_close: Callable[[Inbox[Message]], None],
) -> Inbox[Message]:
    """An inbox belongs to the loop on which it is made."""
    return Inbox(fetching, direct, options, post, shelf, on_close)
