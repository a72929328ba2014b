"""What the parts of one client share: the way to the nodes, its time limit, its name and numbers.

A client is a producer with a random id, and numbers the batches it pushes. A push that is sent
again keeps its number, which is how a node knows it.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from weft import limits
from weft.errors import InvalidArgument
from weft.ids import PRODUCER_BITS
from weft.proto import wire

from . import retry
from .link import Asked
from .popping import Trails
from .router import Router

TIMEOUT_MS: Final = 30_000
TIMEOUT_MS_MAX: Final = limits.DAY_MS

A = TypeVar("A", bound=wire.Answer)


class Session:
    def __init__(self, router: Router, timeout_ms: int = TIMEOUT_MS) -> None:
        check_timeout(timeout_ms)
        self.router = router
        self.timeout_ms = timeout_ms
        self.trails = Trails()
        self.producer = secrets.randbits(PRODUCER_BITS)
        #: Numbers for batches: `next` is one step, also between threads.
        self.batches = itertools.count(1)
        #: Queues that are known to be all in one place; one that was made anew may not be.
        self.ordered: set[str] = set()

    def deadline(self, timeout_ms: int | None, wait_ms: int = 0) -> float:
        """When a call that starts now must have ended."""
        if timeout_ms is None:
            timeout_ms = self.timeout_ms
        else:
            check_timeout(timeout_ms)
        return time.monotonic() + (timeout_ms + wait_ms) / 1000

    async def ask(
        self, place: int, request: wire.AnyRequest, expected: type[A], timeout_ms: int | None
    ) -> A:
        """For requests without payload frames, either way. The place is a partition, or ANY."""
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
        """Each with its place; the answers in the order of the pushes."""
        return await retry.ask_all(self.router, pushes, wire.Pushed, deadline)


def check_timeout(timeout_ms: int) -> None:
    if not isinstance(timeout_ms, int):
        raise InvalidArgument(f"timeout_ms is a whole number, not {type(timeout_ms).__name__}")
    limits.check_range("timeout_ms", timeout_ms, 1, TIMEOUT_MS_MAX)
