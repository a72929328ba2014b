"""What a client of a system can do: one connection of one process, with its best batching."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .server import Address

#: Messages in one batch, for every client that has batches.
BATCH_COUNT: Final = 1000
#: Large messages go in smaller batches: this many bytes at most, but one message at least.
BATCH_BYTES: Final = 4 * 1024 * 1024
#: A consumer that gets nothing for this long will not get anything any more.
SILENCE_S: Final = 30.0


class Lost(Exception):
    """Messages were refused, or did not come."""


@dataclass(frozen=True)
class Flow:
    """What one process sends or takes: `count` messages, `visit` to one queue, then the next."""

    queues: list[str]
    count: int
    size: int
    visit: int = BATCH_COUNT

    @property
    def batch(self) -> int:
        """Messages in one batch."""
        return max(1, min(self.visit, BATCH_BYTES // max(1, self.size)))

    def bodies(self) -> list[bytes]:
        """One batch of bodies, all different; made before the clock starts."""
        return [os.urandom(self.size) for _ in range(self.batch)]

    def batches(self, bodies: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
        """Which queue gets what, in order."""
        left, turn = self.count, 0
        while left:
            take = min(left, len(bodies))
            yield (
                self.queues[turn % len(self.queues)],
                bodies if take == len(bodies) else bodies[:take],
            )
            left -= take
            turn += 1


class Session(ABC):
    """Made, then `prepare`d for a flow, then used; all before the clock starts but the use."""

    @abstractmethod
    def __init__(self, address: Address) -> None: ...

    @abstractmethod
    def create(self, queues: list[str]) -> None: ...

    @abstractmethod
    def drop(self, queues: list[str]) -> None: ...

    @abstractmethod
    def left(self, queues: list[str]) -> int:
        """Messages that are there and not acknowledged, by what the server says."""

    @abstractmethod
    def prepare(self, flow: Flow, *, takes: bool) -> None:
        """Everything that does not belong into the measured time; `takes`: it will consume."""

    @abstractmethod
    def produce(self, flow: Flow) -> None:
        """Returns when the server has confirmed every message."""

    @abstractmethod
    def consume(self, flow: Flow) -> None:
        """Returns when every message came and its acknowledgement arrived at the server."""

    @abstractmethod
    def push(self, queue: str, body: bytes) -> None:
        """One message, confirmed."""

    @abstractmethod
    def pop_ack(self, queue: str) -> None:
        """One message, received and acknowledged."""

    @abstractmethod
    def close(self) -> None: ...
