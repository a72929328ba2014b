"""The window on MPI-3 one-sided communication: the paper's "pure MPI" (section 2.8) between
machines, its MPI with shared memory inside one.

``Win.Allocate`` makes the memory, one ``Lock_all`` opens a shared access epoch that lasts as
long as the window, and flushes complete operations. No rank ever waits in MPI for another,
except in the collective ``allocate`` and ``free``.

- Words are reached with the accumulate family, which MPI makes atomic per element: a load is
  ``Fetch_and_op(NO_OP)``, a store is ``Fetch_and_op(REPLACE)``. Plain Put and Get are not atomic
  and carry only item data.
- Loads, stores, puts and gets in a rank's own memory, and in that of ranks on the same machine
  (``Win.Shared_query`` tells), are made directly. That asks for the unified memory model (checked
  at the start), for words that the processor reads and writes whole, and for a memory barrier,
  ``Win.Sync``, on the right sides: a store comes after all that was done before it and before all
  that is done after it, a load before all that is done after it. It is a tenth of the price: what
  costs in MPICH is not the memory but the flush, in which the rank gives up its core
  (``sched_yield``). It is counted as before, since it is the algorithm that counts: whatever is
  in another rank's memory is remote.
- Fetch-adds and compare-swaps always go through MPI, also a rank's own, since only MPI knows how
  the others' are made atomic.
- ``Lock_all`` with MODE_NOCHECK: no rank of these algorithms ever takes an exclusive lock.
"""

from __future__ import annotations

import platform
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from mpi4py import MPI

from weft.errors import Unavailable, UsageError

from .window import WORD_BYTES, Counts

# Looked up once: they are used in every operation.
_SUM, _NO_OP, _REPLACE = MPI.SUM, MPI.NO_OP, MPI.REPLACE

#: Others may read the words of a range in any order: there each needs a barrier of its own.
_READS_IN_ORDER: Final = platform.machine().lower() in ("x86_64", "amd64")

#: A rank that waits in a collective call sleeps this long between looks: MPI itself would spin, and
#: ranks often share cores.
WAIT_SLEEP_S: Final = 0.0005


def wait_for_all(comm: MPI.Intracomm, going_on: Callable[[], bool] = lambda: True) -> bool:
    """A barrier that leaves the core to the ranks that still work; False: it was given up, because
    ``going_on`` said so."""
    request = comm.Ibarrier()
    while not request.Test():
        if not going_on():
            return False
        time.sleep(WAIT_SLEEP_S)
    return True


@contextmanager
def _mapped(what: str) -> Iterator[None]:
    try:
        yield
    except MPI.Exception as error:
        raise Unavailable(f"MPI refused to {what}: {error}") from error


def _shared(win: MPI.Win, rank: int) -> memoryview | None:
    """The segment of a rank whose memory is mapped here too; None: it is not, or it is empty."""
    try:
        memory, _ = win.Shared_query(rank)
    except MPI.Exception:
        return None  # before MPI 4.1 only windows made by Allocate_shared could be asked
    return memory.cast("B") if memory.nbytes else None


class MpiWindow:
    """One rank's view of memory that all ranks of a communicator allocated together."""

    def __init__(self, comm: MPI.Intracomm, size_bytes: int, direct: bool = True) -> None:
        """Collective: every rank calls it, each with the size of its own segment. With ``direct``
        off, all that is another rank's is reached through MPI; ranks need not agree on it."""
        self.rank = comm.Get_rank()
        self._comm = comm
        with _mapped("allocate a window"):
            self._win = MPI.Win.Allocate(size_bytes, WORD_BYTES, MPI.INFO_NULL, comm)
            if self._win.model != MPI.WIN_UNIFIED:
                raise UsageError(
                    "this MPI keeps separate public and private windows; Weft needs unified ones: "
                    "use MPICH 4 or Open MPI 5 on a cache-coherent machine"
                )
            memory = self._win.tomemory().cast("B")
            memory[:] = bytes(len(memory))
            self._win.Lock_all(MPI.MODE_NOCHECK)
        #: Operations by target.
        self._made = [0] * comm.Get_size()
        #: The segments that this rank reaches directly, by rank: its own, and those of its machine.
        self._bytes: list[memoryview | None] = [None] * comm.Get_size()
        if direct:
            self._bytes = [_shared(self._win, rank) for rank in range(comm.Get_size())]
        self._bytes[self.rank] = memory
        self._words = [at.cast("q") if at is not None else None for at in self._bytes]
        self._sync = self._win.Sync
        self._operand = array("q", [0])
        self._expected = array("q", [0])
        self._result = array("q", [0])
        self._operand_spec = [self._operand, 1, MPI.INT64_T]
        self._expected_spec = [self._expected, 1, MPI.INT64_T]
        self._result_spec = [self._result, 1, MPI.INT64_T]

    @property
    def counts(self) -> Counts:
        local = self._made[self.rank]
        return Counts(sum(self._made) - local, local)

    def reaches(self, target: int) -> bool:
        """Whether this rank reads and writes the target's memory directly."""
        return self._words[target] is not None

    def load(self, target: int, word: int) -> int:
        self._made[target] += 1
        words = self._words[target]
        if words is not None:
            value = words[word]
            self._sync()
            return value
        win = self._win
        win.Fetch_and_op(self._operand_spec, self._result_spec, target, word, _NO_OP)
        win.Flush(target)
        return self._result[0]

    def load_range(self, target: int, word: int, count: int) -> list[int]:
        words = self._words[target]
        if words is None or not _READS_IN_ORDER:
            return [self.load(target, word + at) for at in range(count)]
        self._made[target] += count
        values = words[word : word + count].tolist()
        self._sync()
        return values

    def store(self, target: int, word: int, value: int) -> None:
        self._made[target] += 1
        words = self._words[target]
        if words is not None:
            self._sync()
            words[word] = value
            # A processor may keep a store back while it reads on: First, read after Last was
            # written, would then be older than it, and so would Last be for the other side.
            self._sync()
            return
        win = self._win
        self._operand[0] = value
        # With a result that nobody reads: cheaper here than Accumulate, and as atomic.
        win.Fetch_and_op(self._operand_spec, self._result_spec, target, word, _REPLACE)
        win.Flush(target)

    def fetch_add(self, target: int, word: int, delta: int) -> int:
        self._made[target] += 1
        self._operand[0] = delta
        win = self._win
        win.Fetch_and_op(self._operand_spec, self._result_spec, target, word, _SUM)
        win.Flush(target)
        return self._result[0]

    def compare_swap(self, target: int, word: int, expected: int, desired: int) -> int:
        self._made[target] += 1
        self._operand[0] = desired
        self._expected[0] = expected
        self._win.Compare_and_swap(
            self._operand_spec, self._expected_spec, self._result_spec, target, word
        )
        self._win.Flush(target)
        return self._result[0]

    def put(self, target: int, word: int, data: bytes) -> None:
        self._made[target] += 1
        memory = self._bytes[target]
        if memory is not None:
            start = word * WORD_BYTES
            memory[start : start + len(data)] = data
            return
        self._win.Put([data, len(data), MPI.BYTE], target, (word, len(data), MPI.BYTE))

    def get(self, target: int, word: int, size: int) -> bytearray:
        memory = self._bytes[target]
        if memory is not None:
            self._made[target] += 1
            start = word * WORD_BYTES
            return bytearray(memory[start : start + size])
        into = bytearray(size)
        self.get_into(target, word, memoryview(into))
        return into

    def get_into(self, target: int, word: int, into: memoryview) -> None:
        self._made[target] += 1
        size, memory = into.nbytes, self._bytes[target]
        if memory is not None:
            start = word * WORD_BYTES
            into.cast("B")[:] = memory[start : start + size]
            return
        self._win.Get([into, size, MPI.BYTE], target, (word, size, MPI.BYTE))

    def flush(self, target: int) -> None:
        if self._words[target] is not None:
            self._sync()
        else:
            self._win.Flush(target)

    def wait_for_all(self) -> None:
        """Collective: returns when every rank has called it."""
        wait_for_all(self._comm)

    def free(self) -> None:
        """Collective: wait for all, end the epoch and give the memory back."""
        wait_for_all(self._comm)
        self.release()

    def release(self) -> None:
        """The same for ranks that have waited for each other already."""
        with _mapped("free a window"):
            self._win.Unlock_all()
            for view in (*self._words, *self._bytes):
                if view is not None:
                    view.release()
            self._win.Free()
