"""State shared by the parts of one client: router, timeout, producer id, batch numbers.

A client is a producer with a random id and numbers its batches. A resent push keeps its number, so
a node recognizes the duplicate.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from weft.client import arguments
from weft.client.consumer.pop import Trails
from weft.client.transport.link import Asked
from weft.ids import PRODUCER_BITS
from weft.proto import wire

from . import retry
from .router import Router

TIMEOUT_MS: Final = 30_000

A = TypeVar("A", bound=wire.Answer)


class ClientSession:
    def __init__(self, router: Router, timeout_ms: int = TIMEOUT_MS) -> None:
        arguments.check_timeout(timeout_ms)
        self.router = router
        self.timeout_ms = timeout_ms
        self.trails = Trails()
        self.producer = secrets.randbits(PRODUCER_BITS)
        #: Batch numbers: `next` is atomic between threads.
        self.batches = itertools.count(1)
        #: Queues known to be ordered, each in one partition; a recreated queue may not be.
        self.ordered: set[str] = set()

    def deadline(self, timeout_ms: int | None, wait_ms: int = 0) -> float:
        """Returns the deadline of a call that starts now."""
        if timeout_ms is None:
            timeout_ms = self.timeout_ms
        else:
            arguments.check_timeout(timeout_ms)
        return time.monotonic() + (timeout_ms + wait_ms) / 1000

    def learn_place(self, queue: str, chosen: int, stored: int) -> None:
        """Learns from an answered push whether a queue is ordered, so that the next push goes to
        the right node at once.

        If the partition that stored the batch is not the one that the client chose, a node
        forwarded the push: the queue is ordered, or is no longer ordered.
        """
        if stored == chosen:
            return
        if stored == self.router.of_text(queue):
            self.ordered.add(queue)
        else:
            self.ordered.discard(queue)

    async def ask(
        self, place: int, request: wire.AnyRequest, expected: type[A], timeout_ms: int | None
    ) -> A:
        """For requests and answers without payload frames. The place is a partition, or ANY."""
        deadline = self.deadline(timeout_ms)
        return (await retry.ask(self.router, place, request, expected, deadline))[0]

    async def push(
        self, place: int, request: wire.Push, frame: bytes, deadline: float
    ) -> wire.Pushed:
        answer = await retry.ask(self.router, place, request, wire.Pushed, deadline, (frame,))
        return answer[0]

    async def push_all(
        self, pushes: Sequence[tuple[int, Asked]], deadline: float
    ) -> list[wire.Pushed | Exception]:
        """Pushes several batches, each with its place; answers are in the order of the pushes."""
        return await retry.ask_all(self.router, pushes, wire.Pushed, deadline)
