"""Where a consumer's front finds the batches that were fetched for it.

The front iterates `current`; the inbox puts batches into the queue behind it. Neither knows the
other, so a consumer that its user has dropped can be told from one in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from weft.errors import WeftError

from .message import M

T = TypeVar("T")


class Line(Protocol[T]):
    """What `asyncio.Queue` and `queue.SimpleQueue` have in common."""

    def put_nowait(self, item: T, /) -> None: ...

    def get_nowait(self) -> T: ...

    def empty(self) -> bool: ...


class Shelf(Generic[M]):
    def __init__(self, line: Line[list[M] | WeftError | None]) -> None:
        self._line = line
        self.current: Iterator[M] = iter(())

    def put(self, batch: list[M] | WeftError | None) -> None:
        """A batch; or the error that ended the consumer, or None for its end."""
        self._line.put_nowait(batch)

    def unseen(self) -> list[M]:
        """Takes away everything that the front has not handed out."""
        unseen = list(self.current)
        while not self._line.empty():
            batch = self._line.get_nowait()
            if isinstance(batch, list):
                unseen += batch
        return unseen
