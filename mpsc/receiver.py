"""A rank's share of a queue's messages.

    for body in gateway.receiver:       # ends when the gateway says that no more comes
        work(body)                      # done, when the next is asked for

or in batches:

    while (bodies := receiver.take(100)) is not None:
        work_on_all(bodies)
        receiver.done()

A message is acknowledged in its queue after done, and not before what this rank sent before it
said done is stored. If this rank dies, others get what it was not done with.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from weft.errors import GatewayFailed
from weft.limits import check_range

from .fan import COMING, FAILED, FanReader
from .lifeline import Lifeline
from .terms import AHEAD_MAX

#: A rank without work looks for some so often.
IDLE_SECONDS: Final = 0.0005
#: Every so many looks the lifeline is looked at, too: it costs a system call.
LOOKS: Final = 40


class Receiver:
    """A rank that receives. Not for use by two threads at once."""

    def __init__(self, reader: FanReader, lifeline: Lifeline) -> None:
        self._reader = reader
        self._lifeline = lifeline
        self._here: deque[bytes] = deque()
        self._out = 0

    def take(self, count_max: int = 1, timeout_s: float | None = None) -> list[bytes] | None:
        """Up to ``count_max`` messages' bodies; waits for the first, ``timeout_s`` at most, if that
        is given. An empty list: none came in time. None: no more comes."""
        check_range("count_max", count_max, 1, AHEAD_MAX)
        if not self._here and not self._fetch(timeout_s):
            return None
        count = min(count_max, len(self._here))
        self._out += count
        return [self._here.popleft() for _ in range(count)]

    def done(self) -> None:
        """This rank has dealt with every message that it took so far."""
        if self._out:
            self._reader.done(self._out)
            self._out = 0

    def __iter__(self) -> Iterator[bytes]:
        while bodies := self.take(1):
            yield bodies[0]
            self.done()

    def close(self) -> None:
        """Take no more: messages that this rank is not done with go to others."""
        self._reader.close()

    def _fetch(self, timeout_s: float | None) -> bool:
        """Wait for messages; False: no more comes."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        looks = 0
        while True:
            # In this order: after it has said that no more comes, what came before is here.
            state = self._reader.state()
            self._here.extend(self._reader.take())
            if self._here:
                return True
            if state == FAILED:
                raise GatewayFailed("the gateway stopped, as its own error says")
            if state != COMING:
                return False
            if deadline is not None and time.monotonic() > deadline:
                return True
            looks += 1
            if looks % LOOKS == 0:
                self._lifeline.look()
                if self._lifeline.gateway_gone:
                    raise GatewayFailed("the gateway's process has ended")
            time.sleep(IDLE_SECONDS)
