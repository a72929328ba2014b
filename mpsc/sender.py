"""A rank's path into a durable queue.

Only the gateway writes the word ``OWN`` of the sender's own segment, which Sweepqueue leaves
unused. The word is the watermark w, the number of the sender's stored items; or -1 - w once the
gateway has failed and w will not grow any more. So a sender learns of both by one read of its own
memory. The liveness connection reports the end of the gateway's process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from weft.errors import DeadlineExceeded, GatewayFailed

from .job import Job
from .liveness import RankLiveness
from .shape import OWN

#: Poll interval of a flush, and of a send into a full ring.
IDLE_SECONDS: Final = 0.0005
#: Default time limit of flush and send.
WAIT_SECONDS: Final = 60.0


def watermark(stored: int, failed: bool) -> int:
    """The value that the gateway writes into OWN."""
    return -1 - stored if failed else stored


class Sender:
    """A rank that sends. Not for use by two threads at once."""

    def __init__(self, job: Job, liveness: RankLiveness) -> None:
        self._job = job
        self._liveness = liveness
        self._sent = 0

    def send(self, item: bytes, timeout_s: float = WAIT_SECONDS) -> None:
        """Hands an item to the gateway; waits while the ring is full."""
        if self._job.window.load(self._job.window.rank, OWN) < 0:
            raise self._failed()
        if self._job.enqueuer.enqueue(item):
            self._sent += 1
        else:
            self.send_many([item], timeout_s)

    def send_many(self, items: Sequence[bytes], timeout_s: float = WAIT_SECONDS) -> None:
        """Hands many items over, in order; waits while the ring is full."""
        deadline = time.monotonic() + timeout_s
        done = 0
        while done < len(items):
            if self._job.window.load(self._job.window.rank, OWN) < 0:
                raise self._failed()
            taken = self._job.enqueuer.enqueue_many(items[done:])
            done += taken
            self._sent += taken
            if not taken:
                self._check_gateway(deadline, f"the gateway took {done} of {len(items)} items")

    def durable(self) -> int:
        """The number of the sender's items that are stored by now."""
        word = self._job.window.load(self._job.window.rank, OWN)
        return word if word >= 0 else -1 - word

    def flush(self, timeout_s: float = WAIT_SECONDS) -> None:
        """Returns when everything sent so far is stored durably."""
        deadline = time.monotonic() + timeout_s
        window = self._job.window
        while (word := window.load(window.rank, OWN)) < self._sent:
            if word < 0 and self.durable() < self._sent:
                raise self._failed()
            if word < 0:
                return
            self._check_gateway(deadline, f"{word} of {self._sent} items are stored")

    def close(self) -> None:
        """Flushes, and sends no more."""
        self.flush()
        self._job.enqueuer.close()

    def _check_gateway(self, deadline: float, so_far: str) -> None:
        self._liveness.poll()
        if self._liveness.gateway_gone:
            raise self._failed("its process has ended")
        if time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"{so_far}: does its cluster answer? A larger timeout_s waits longer"
            )
        time.sleep(IDLE_SECONDS)

    def _failed(self, why: str = "a push failed: see the gateway rank's error") -> GatewayFailed:
        return GatewayFailed(
            f"the gateway, rank {self._job.shape.dequeuer}, stopped ({why}): {self.durable()} of "
            f"this rank's {self._sent} items are stored"
        )
