"""A thread that drives MPI's progress while its rank computes.

Where two ranks share no memory, MPICH executes an operation on a rank's memory in the rank's own
process, while the process is inside MPI (``window.py``, promise 6). A rank that computes for a
minute between two calls would block every rank that reads its ring for a minute: the dequeuer, and
through the dequeuer all others. The thread enters MPI in the rank's place, every ``POLL_S``.

The thread only probes: it receives nothing and changes nothing, so no lock against the window's own
calls is needed, but MPI must be initialized for several threads (mpi4py does so by default). The
thread stops before MPI is finalized. A computation in C that holds Python's global interpreter lock
stops the thread, too.
"""

from __future__ import annotations

import atexit
import threading
from typing import Final

from mpi4py import MPI

#: An operation on a computing rank's memory waits about this long, in seconds.
POLL_S: Final = 0.001
#: The thread ends within a few polls, unless the network hangs. Then the process ends without it.
_JOIN_S: Final = 5.0


class ProgressThread:
    """Probes a communicator until stopped. ``start`` returns False where MPI forbids the thread."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft-mpi-progress", daemon=True)

    def start(self) -> bool:
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            return False
        atexit.register(self.stop)
        self._thread.start()
        return True

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)
        atexit.unregister(self.stop)

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            poll(self._comm)


def poll(comm: MPI.Intracomm) -> None:
    """Enters MPI once. The error of a dead rank surfaces at the next operation on the rank."""
    try:
        comm.Iprobe()
    except MPI.Exception:
        return
