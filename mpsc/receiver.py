"""A rank's share of a queue's messages.

    for body in gateway.receiver:       # ends when the gateway says that no more comes
        work(body)                      # done, when the next is asked for

or in batches:

    while (bodies := receiver.take(100)) is not None:
        work_on_all(bodies)
        receiver.done()

A message is acknowledged in its queue after ``done``, and not before all items that the rank sent
before ``done`` are stored. If the rank dies, others get its unfinished messages.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from weft.errors import GatewayFailed
from weft.limits import check_range

from .fanout_ring import COMING, FAILED, FanReader
from .liveness import RankLiveness
from .negotiation import AHEAD_MAX

#: Poll interval of a rank without work.
IDLE_SECONDS: Final = 0.0005
#: Polls between two checks of the liveness connection, which cost a system call.
POLLS: Final = 40


class Receiver:
    """A rank that receives. Not for use by two threads at once."""

    def __init__(self, reader: FanReader, liveness: RankLiveness) -> None:
        self._reader = reader
        self._liveness = liveness
        self._here: deque[bytes] = deque()
        self._out = 0

    def take(self, count_max: int = 1, timeout_s: float | None = None) -> list[bytes] | None:
        """Returns up to ``count_max`` message bodies; waits for the first one.

        The wait lasts ``timeout_s`` seconds at most; None: no limit. An empty list: none came in
        time. None: no more messages come. Raises GatewayFailed if the gateway has failed or ended.
        """
        check_range("count_max", count_max, 1, AHEAD_MAX)
        if not self._here and not self._fetch(timeout_s):
            return None
        count = min(count_max, len(self._here))
        self._out += count
        return [self._here.popleft() for _ in range(count)]

    def done(self) -> None:
        """Reports every message taken so far as done."""
        if self._out:
            self._reader.done(self._out)
            self._out = 0

    def __iter__(self) -> Iterator[bytes]:
        while bodies := self.take(1):
            yield bodies[0]
            self.done()

    def close(self) -> None:
        """Takes no more: unfinished messages of the rank go to others."""
        self._reader.close()

    def _fetch(self, timeout_s: float | None) -> bool:
        """Waits for messages; False if no more come."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        polls = 0
        while True:
            # In this order: once the state says that no more comes, all earlier messages are here.
            state = self._reader.state()
            self._here.extend(self._reader.take())
            if self._here:
                return True
            if state == FAILED:
                raise GatewayFailed("the gateway stopped: see the error of the gateway's rank")
            if state != COMING:
                return False
            if deadline is not None and time.monotonic() > deadline:
                return True
            polls += 1
            if polls % POLLS == 0:
                self._liveness.poll()
                if self._liveness.gateway_gone:
                    raise GatewayFailed("the gateway's process has ended")
            time.sleep(IDLE_SECONDS)
