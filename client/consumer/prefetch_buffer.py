"""The buffer between the prefetcher and the front of a consumer.

The front iterates over `current`; the prefetcher puts batches into the queue behind `current`.
Neither holds a reference to the other, so the client can detect a consumer that the application has
dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from weft.errors import WeftError

from .message import M

T = TypeVar("T")


class Line(Protocol[T]):
    """The common interface of `asyncio.Queue` and `queue.SimpleQueue`."""

    def put_nowait(self, item: T, /) -> None: ...

    def get_nowait(self) -> T: ...

    def empty(self) -> bool: ...


class PrefetchBuffer(Generic[M]):
    def __init__(self, line: Line[list[M] | WeftError | None]) -> None:
        self._line = line
        self.current: Iterator[M] = iter(())

    def put(self, batch: list[M] | WeftError | None) -> None:
        """Puts a batch, the error that ended the consumer, or None for the end."""
        self._line.put_nowait(batch)

    def unseen(self) -> list[M]:
        """Removes and returns all messages that the front has not handed out."""
        unseen = list(self.current)
        while not self._line.empty():
            batch = self._line.get_nowait()
            if isinstance(batch, list):
                unseen += batch
        return unseen
