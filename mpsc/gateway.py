"""The way from the ranks of an MPI job into a durable Weft queue.

    with weft.mpsc.open(MPI.COMM_WORLD, queue="events") as gateway:
        if gateway.sender is None:
            gateway.run()                        # this rank drains until all senders have closed
        else:
            gateway.sender.send(b"...")          # a few microseconds, not durable yet
            gateway.sender.flush()               # returns when all that was sent is on disk

Senders enqueue into a Sweepqueue; the gateway's rank sweeps it and pushes what it finds. When a
push has been acknowledged, so it is as durable as the cluster's setting says, the gateway writes
to every sender how many of its items that covers: the watermark. It lies in the word ``OWN`` of
the sender's own segment, which Sweepqueue leaves unused, has one writer, and is local to the one
who waits for it.

Memory is never called durable: an item that was sent and not yet covered by the watermark is
lost if the gateway dies. If a push fails, the watermark stays where it is, ``run`` raises, and
``flush`` ends with DeadlineExceeded. A push that was acknowledged is not repeated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final

from weft.client.sync import connect
from weft.errors import DeadlineExceeded

from .job import Job, create
from .shape import OWN
from .sweepqueue import SweepDequeuer

if TYPE_CHECKING:
    from mpi4py import MPI

#: How long an idle gateway, a sender without room, and a flush sleep between two looks.
IDLE_SECONDS: Final = 0.0005
#: A sender's ring; it bounds what a dead gateway can lose.
RING_CELLS: Final = 8192
#: More than one sweep ever takes, so that a sweep is always handed out whole.
SWEEP_ALL: Final = 2**31
#: What flush and send wait at most unless told otherwise.
WAIT_SECONDS: Final = 60.0


class Sender:
    """A rank that sends. Not for use by two threads at once."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sent = 0

    def send(self, item: bytes, timeout_s: float = WAIT_SECONDS) -> None:
        """Hand an item to the gateway; waits while the ring is full."""
        if self._job.enqueuer.enqueue(item):
            self._sent += 1
        else:
            self.send_many([item], timeout_s)

    def send_many(self, items: Sequence[bytes], timeout_s: float = WAIT_SECONDS) -> None:
        """Hand many items over, in order; waits while the ring is full."""
        deadline = time.monotonic() + timeout_s
        done = 0
        while done < len(items):
            taken = self._job.enqueuer.enqueue_many(items[done:])
            done += taken
            self._sent += taken
            if not taken:
                _look_again(deadline, f"the gateway took {done} of {len(items)} items")

    def durable(self) -> int:
        """How many of this sender's items are stored by now."""
        return self._job.window.load(self._job.window.rank, OWN)

    def flush(self, timeout_s: float = WAIT_SECONDS) -> None:
        """Return when everything sent so far is stored durably."""
        deadline = time.monotonic() + timeout_s
        while (durable := self.durable()) < self._sent:
            _look_again(deadline, f"{durable} of {self._sent} items are stored")


def _look_again(deadline: float, so_far: str) -> None:
    if time.monotonic() > deadline:
        raise DeadlineExceeded(f"{so_far}: is the gateway's rank alive, and its cluster?")
    time.sleep(IDLE_SECONDS)


class Gateway:
    """One rank's part: ``sender`` is None on the rank that drains."""

    def __init__(self, job: Job, queue: str, servers: str | Sequence[str] | None) -> None:
        self._job = job
        self._queue = queue
        self._servers = servers
        self.sender = Sender(job) if job.dequeuer is None else None

    def run(self) -> int:
        """On the draining rank: push until all senders have closed; how many items that were."""
        dequeuer = self._job.dequeuer
        assert isinstance(dequeuer, SweepDequeuer), "only the draining rank runs the gateway"
        pushed = 0
        with connect(self._servers) as client, client.queue(self._queue).producer() as producer:
            while not dequeuer.drained():
                items = dequeuer.dequeue_many(SWEEP_ALL)
                if items:
                    producer.send_many(items)
                    producer.flush()
                    pushed += len(items)
                    self._publish(dequeuer.taken())
                else:
                    time.sleep(IDLE_SECONDS)
        return pushed

    def abandon(self, rank: int) -> None:
        """Do not wait for a sender that died."""
        assert self._job.dequeuer is not None
        self._job.dequeuer.abandon(rank)

    def close(self) -> None:
        """Collective: the queue is left; a sender flushes first."""
        if self.sender is not None:
            self.sender.flush()
        self._job.close()

    def _publish(self, taken: list[int]) -> None:
        """The watermark of every sender, after the push that covers it was acknowledged."""
        for number, count in enumerate(taken):
            self._job.window.store(self._job.shape.rank(number), OWN, count)

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()


def open(
    comm: MPI.Intracomm,
    *,
    queue: str,
    servers: str | Sequence[str] | None = None,
    gateway: int = 0,
    item_bytes: int = 128,
    variable: bool = True,
    ring_cells: int = RING_CELLS,
) -> Gateway:
    """Collective: join the ranks of ``comm`` to a Weft queue, through the rank ``gateway``."""
    job = create(
        comm,
        algorithm="sweepqueue",
        dequeuer=gateway,
        capacity=ring_cells,
        item_bytes=item_bytes,
        variable=variable,
    )
    return Gateway(job, queue, servers)
