"""A queue among the ranks of an MPI job.

    with weft.mpsc.create(MPI.COMM_WORLD, item_bytes=128) as job:
        if job.dequeuer is not None:
            while not job.dequeuer.drained():
                handle(job.dequeuer.dequeue_many(4096))
        else:
            job.enqueuer.enqueue(b"...")
            job.enqueuer.close()

Creating and freeing a job are collective; nothing in between is.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from weft.errors import MissingExtra

from .algorithms import algorithm_named
from .queue import Dequeuer, Enqueuer
from .shape import Shape

if TYPE_CHECKING:
    from mpi4py import MPI

    from .mpi import MpiWindow


class Job:
    """One rank's part in a queue: either an enqueuer, or the dequeuer."""

    def __init__(
        self, window: MpiWindow, shape: Shape, enqueuer: Enqueuer | None, dequeuer: Dequeuer | None
    ) -> None:
        self.window = window
        self.shape = shape
        self._enqueuer = enqueuer
        self.dequeuer = dequeuer

    @property
    def enqueuer(self) -> Enqueuer:
        assert self._enqueuer is not None, "the dequeuer's rank does not enqueue"
        return self._enqueuer

    def close(self) -> None:
        """Collective: closes the enqueuer, waits for all ranks and frees the memory."""
        if self._enqueuer is not None:
            self._enqueuer.close()
        self.window.free()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error the other ranks may never come: do not wait for them, let MPI abort.
        if kind is None:
            self.close()


def create(
    comm: MPI.Intracomm,
    *,
    algorithm: str = "slotqueue",
    dequeuer: int = 0,
    capacity: int = 1024,
    item_bytes: int = 64,
    variable: bool = False,
    direct: bool = True,
) -> Job:
    """Collective: creates a queue among the ranks of ``comm``, all with the same arguments.

    With ``direct`` off, ranks of one machine reach each other as ranks of two do: through MPI
    alone.
    """
    try:
        from .mpi import MpiWindow
    except ImportError as error:
        raise MissingExtra(f"queues over MPI need weft[mpi]: pip install it ({error})") from error
    made = algorithm_named(algorithm)
    shape = Shape(comm.Get_size(), dequeuer, capacity, item_bytes, variable)
    window = MpiWindow(comm, made.segment_bytes(shape, comm.Get_rank()), direct)
    if window.rank == dequeuer:
        job = Job(window, shape, None, made.dequeuer(window, shape))
    else:
        job = Job(window, shape, made.enqueuer(window, shape), None)
    window.wait_for_all()
    return job
