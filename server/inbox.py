"""The inbox: how other threads reach the node's thread, and wake it."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from weft.proto import wire

from .ask import OnAnswer


class Asked(NamedTuple):
    """One request from an edge in another thread; without a request, its cancellation."""

    ticket: int
    request: wire.AnyRequest | None
    payload: Sequence[bytes] = ()
    on_answer: OnAnswer | None = None


class Inbox:
    """Appending to a deque is atomic, so the only system call is the wake-up."""

    def __init__(self) -> None:
        self._asked: deque[Asked] = deque()
        self._tickets = itertools.count(1)
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def submit(
        self, request: wire.AnyRequest, payload: Sequence[bytes], on_answer: OnAnswer
    ) -> int:
        ticket = next(self._tickets)
        self._asked.append(Asked(ticket, request, payload, on_answer))
        self.wake()
        return ticket

    def cancel(self, ticket: int) -> None:
        self._asked.append(Asked(ticket, None))
        self.wake()

    def wake(self) -> None:
        if self.fd >= 0:
            os.eventfd_write(self.fd, 1)

    def take(self, limit: int) -> list[Asked]:
        """What has come, in order; a rest wakes the node again."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass  # nobody has called since the last look
        taken = [self._asked.popleft() for _ in range(min(limit, len(self._asked)))]
        if self._asked:
            self.wake()
        return taken

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        os.close(fd)
