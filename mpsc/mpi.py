"""The window on MPI-3 one-sided communication, as in the paper's "pure MPI" (section 2.8).

``Win.Allocate`` makes the memory, one ``Lock_all`` opens a shared access epoch that lasts as
long as the window, and flushes complete operations. No rank ever waits in MPI for another,
except in the collective ``allocate`` and ``free``.

- Words are reached with the accumulate family, which MPI makes atomic per element: a load is
  ``Fetch_and_op(NO_OP)``, a store is ``Fetch_and_op(REPLACE)``. Plain Put and Get are not atomic
  and carry only item data.
- A rank's own words are read and written directly. That asks for the unified memory model
  (checked at the start) and for a memory barrier, ``Win.Sync``, on the right side: a store comes
  after all that was done before it, a load before all that is done after it. Its own fetch-adds
  and compare-swaps go through MPI, since only MPI knows how the others' are made atomic.
- ``Lock_all`` with MODE_NOCHECK: no rank of these algorithms ever takes an exclusive lock.
"""

from __future__ import annotations

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


class MpiWindow:
    """One rank's view of memory that all ranks of a communicator allocated together."""

    def __init__(self, comm: MPI.Intracomm, size_bytes: int) -> None:
        """Collective: every rank calls it, each with the size of its own segment."""
        self.rank = comm.Get_rank()
        self.counts = Counts()
        self._comm = comm
        with _mapped("allocate a window"):
            self._win = MPI.Win.Allocate(size_bytes, WORD_BYTES, MPI.INFO_NULL, comm)
            if self._win.model != MPI.WIN_UNIFIED:
                raise UsageError(
                    "this MPI keeps separate public and private windows; Weft needs unified ones: "
                    "use MPICH 4 or Open MPI 5 on a cache-coherent machine"
                )
            self._bytes = self._win.tomemory().cast("B")
            self._bytes[:] = bytes(len(self._bytes))
            self._words = self._bytes.cast("q") if size_bytes else memoryview(array("q"))
            self._win.Lock_all(MPI.MODE_NOCHECK)
        self._operand = array("q", [0])
        self._expected = array("q", [0])
        self._result = array("q", [0])
        self._operand_spec = [self._operand, 1, MPI.INT64_T]
        self._expected_spec = [self._expected, 1, MPI.INT64_T]
        self._result_spec = [self._result, 1, MPI.INT64_T]

    def load(self, target: int, word: int) -> int:
        win = self._win
        if target == self.rank:
            self.counts.local += 1
            value = self._words[word]
            win.Sync()
            return value
        self.counts.remote += 1
        win.Fetch_and_op(self._operand_spec, self._result_spec, target, word, _NO_OP)
        win.Flush(target)
        return self._result[0]

    def load_range(self, target: int, word: int, count: int) -> list[int]:
        if target != self.rank:
            return [self.load(target, word + at) for at in range(count)]
        self.counts.local += count
        values = self._words[word : word + count].tolist()
        self._win.Sync()
        return values

    def store(self, target: int, word: int, value: int) -> None:
        win = self._win
        if target == self.rank:
            self.counts.local += 1
            win.Sync()
            self._words[word] = value
            return
        self.counts.remote += 1
        self._operand[0] = value
        # With a result that nobody reads: cheaper here than Accumulate, and as atomic.
        win.Fetch_and_op(self._operand_spec, self._result_spec, target, word, _REPLACE)
        win.Flush(target)

    def fetch_add(self, target: int, word: int, delta: int) -> int:
        if target == self.rank:
            self.counts.local += 1
        else:
            self.counts.remote += 1
        self._operand[0] = delta
        win = self._win
        win.Fetch_and_op(self._operand_spec, self._result_spec, target, word, _SUM)
        win.Flush(target)
        return self._result[0]

    def compare_swap(self, target: int, word: int, expected: int, desired: int) -> int:
        self._count(target)
        self._operand[0] = desired
        self._expected[0] = expected
        self._win.Compare_and_swap(
            self._operand_spec, self._expected_spec, self._result_spec, target, word
        )
        self._win.Flush(target)
        return self._result[0]

    def put(self, target: int, word: int, data: bytes) -> None:
        if target == self.rank:
            self.counts.local += 1
            start = word * WORD_BYTES
            self._bytes[start : start + len(data)] = data
            return
        self.counts.remote += 1
        self._win.Put([data, len(data), MPI.BYTE], target, (word, len(data), MPI.BYTE))

    def get(self, target: int, word: int, size: int) -> bytearray:
        if target == self.rank:
            self.counts.local += 1
            start = word * WORD_BYTES
            return bytearray(self._bytes[start : start + size])
        into = bytearray(size)
        self.get_into(target, word, memoryview(into))
        return into

    def get_into(self, target: int, word: int, into: memoryview) -> None:
        size = into.nbytes
        if target == self.rank:
            self.counts.local += 1
            start = word * WORD_BYTES
            into.cast("B")[:] = self._bytes[start : start + size]
            return
        self.counts.remote += 1
        self._win.Get([into, size, MPI.BYTE], target, (word, size, MPI.BYTE))

    def flush(self, target: int) -> None:
        if target == self.rank:
            self._win.Sync()
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
            self._words.release()
            self._bytes.release()
            self._win.Free()

    def _count(self, target: int) -> None:
        if target == self.rank:
            self.counts.local += 1
        else:
            self.counts.remote += 1
