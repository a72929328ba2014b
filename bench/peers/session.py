"""The interface of a client: one connection of one process, with the best batching available."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .server import Address

#: Messages per batch, for every client with batches.
BATCH_COUNT: Final = 1000
#: Bytes per batch at most, so that large messages form smaller batches of at least one message.
BATCH_BYTES: Final = 4 * 1024 * 1024
#: A consumer fails after this long without a message.
SILENCE_S: Final = 30.0


class Lost(Exception):
    """The server refused messages or did not deliver them."""


@dataclass(frozen=True)
class Flow:
    """The load of one process: `count` messages, in runs of `visit` messages per queue."""

    queues: list[str]
    count: int
    size: int
    visit: int = BATCH_COUNT
    #: Each message goes to all queues; `count` of a consumer is of the messages in all of them.
    fan_out: bool = False

    @property
    def batch(self) -> int:
        """Messages in one batch."""
        return max(1, min(self.visit, BATCH_BYTES // max(1, self.size)))

    def bodies(self) -> list[bytes]:
        """One batch of distinct bodies, generated before the clock starts."""
        return [os.urandom(self.size) for _ in range(self.batch)]

    def batches(self, bodies: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
        """Pairs of queue and message count, in order."""
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
    """One client connection. Construction and `prepare` happen before the clock starts."""

    @abstractmethod
    def __init__(self, address: Address) -> None: ...

    @abstractmethod
    def create(self, queues: list[str]) -> None: ...

    @abstractmethod
    def drop(self, queues: list[str]) -> None: ...

    @abstractmethod
    def left(self, queues: list[str]) -> int:
        """Number of unacknowledged messages, as the server reports."""

    @abstractmethod
    def prepare(self, flow: Flow, *, takes: bool) -> None:
        """Work outside of the measured time; `takes` is True for a consumer."""

    @abstractmethod
    def produce(self, flow: Flow) -> None:
        """Returns when the server has confirmed every message."""

    @abstractmethod
    def consume(self, flow: Flow) -> None:
        """Returns when every message was received and every acknowledgement reached the server."""

    @abstractmethod
    def push(self, queue: str, body: bytes) -> None:
        """Pushes one message and waits for the confirmation."""

    @abstractmethod
    def pop_ack(self, queue: str) -> None:
        """Receives and acknowledges one message."""

    @abstractmethod
    def close(self) -> None: ...
