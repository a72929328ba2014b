"""The call inbox: other threads submit calls to the node's thread, and wake the thread.

After `close`, every request is answered at once: the node has ended and takes no more calls.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from weft.proto import wire
from weft.server.security.caller import ANONYMOUS, Caller

from .node_api import OnAnswer

ENDED: Final = wire.Failure("SHUTTING_DOWN", "the node has stopped", True)


class QueuedCall(NamedTuple):
    """One request from an edge in another thread; without a request, a cancellation."""

    ticket: int
    request: wire.AnyRequest | None
    payload: Sequence[bytes] = ()
    on_answer: OnAnswer | None = None
    who: Caller = ANONYMOUS


class CallInbox:
    def __init__(self) -> None:
        self._asked: deque[QueuedCall] = deque()
        self._looks: deque[Callable[[], None]] = deque()
        self._tickets = itertools.count(1)
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Held while the descriptor is used: a closed descriptor may already have another owner.
        self._lock = threading.Lock()
        self._closed = False

    def submit(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        who: Caller = ANONYMOUS,
    ) -> int:
        ticket = next(self._tickets)
        if not self._put(QueuedCall(ticket, request, payload, on_answer, who)):
            on_answer(ENDED, ())
        return ticket

    def cancel(self, ticket: int) -> None:
        self._put(QueuedCall(ticket, None))

    def look(self, look: Callable[[], None]) -> bool:
        """Has `look` called in the node's thread, after a round; False when the node has ended.

        `look` must be quick and must not raise. A node that ends first does not call `look`.
        """
        with self._lock:
            if self._closed:
                return False
            self._looks.append(look)
            os.eventfd_write(self.fd, 1)
            return True

    def take_looks(self) -> list[Callable[[], None]]:
        return [self._looks.popleft() for _ in range(len(self._looks))]

    def wake(self) -> None:
        with self._lock:
            if not self._closed:
                os.eventfd_write(self.fd, 1)

    def take(self, limit: int) -> list[QueuedCall]:
        """Takes up to `limit` calls, in order; calls left over wake the node again."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass  # no call since the last read
        taken = [self._asked.popleft() for _ in range(min(limit, len(self._asked)))]
        if self._asked:
            self.wake()
        return taken

    def close(self) -> None:
        """Closes the inbox, and answers the calls that were not taken."""
        with self._lock:
            self._closed = True
            os.close(self.fd)
        while self._asked:
            asked = self._asked.popleft()
            if asked.on_answer is not None:
                asked.on_answer(ENDED, ())

    def _put(self, asked: QueuedCall) -> bool:
        with self._lock:
            if self._closed:
                return False
            self._asked.append(asked)
            os.eventfd_write(self.fd, 1)
            return True
