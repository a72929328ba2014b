"""The window on MPI-3 one-sided communication: the paper's "pure MPI" (section 2.8) between
machines, its MPI with shared memory inside one.

``Win.Allocate`` makes the memory, one ``Lock_all`` opens a shared access epoch for the lifetime of
the window, and flushes complete operations. No rank ever waits in MPI for another, except in the
collective ``allocate`` and ``free``.

- Words are accessed with the accumulate family, which MPI makes atomic per element: a load is
  ``Fetch_and_op(NO_OP)``, a store is ``Fetch_and_op(REPLACE)``. Plain Put and Get are not atomic
  and carry only item data.
- Loads, stores, puts and gets in a rank's own memory, and in the memory of ranks on the same
  machine (``Win.Shared_query`` reports them), are direct. Direct access requires the unified memory
  model (checked at the start), words that the processor reads and writes whole, and a memory
  barrier, ``Win.Sync``, on the right sides: a store is ordered after all earlier and before all
  later operations, a load before all later operations. Direct access costs a tenth: the expensive
  part of MPICH is not the memory but the flush, in which the rank yields its core
  (``sched_yield``). The counts do not change, since they describe the algorithm: an operation on
  another rank's memory counts as remote.
- Fetch-adds and compare-swaps always go through MPI, also on a rank's own memory, since only MPI
  knows how it makes the operations of other ranks atomic.
- ``Lock_all`` with MODE_NOCHECK: no rank of these algorithms ever takes an exclusive lock.
- Progress (promise 6). A rank without shared memory reaches this rank by messages, which MPICH
  processes when this process enters MPI. So a direct load is preceded by ``Iprobe``, the cheapest
  call that polls the network (0.3 to 0.5 us, twice the price of a direct load). If all ranks share
  memory there is nothing to poll, and the probe is left out. ``Win.Shared_query`` tells the two
  cases apart, and needs at least one word in every segment for that. While a rank computes and
  makes no calls, a thread probes in its place (``progress.py``).
- Loss (promise 7). Over TCP, MPICH fails an operation that begins after the target's death with an
  error, which becomes ``RankLost`` here. An operation in flight at the time of the death never
  completes, and a flush would wait for ever. So ``load``, ``store``, ``fetch_add`` and ``get`` on
  ranks without shared memory wait for their own request, and poll ``is_dead`` meanwhile, if the
  creator of the window has set it. After some tests they sleep between the next ones, because
  ranks often share cores, and the target needs one to answer. MPI has no such request for
  compare-and-swap and for the remote completion of a put: these wait in a flush.
"""

from __future__ import annotations

import platform
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from mpi4py import MPI

from weft.errors import RankLost, Unavailable, UsageError

from .progress import ProgressThread, poll
from .window import WORD_BYTES, Counts

# Looked up once: every operation uses them.
_SUM, _NO_OP, _REPLACE = MPI.SUM, MPI.NO_OP, MPI.REPLACE

#: Other processors may read the words of a range in any order: there each word needs a barrier.
_READS_IN_ORDER: Final = platform.machine().lower() in ("x86_64", "amd64")

#: Sleep between polls of a rank in a collective call: MPI itself would spin, and ranks often share
#: cores.
WAIT_SLEEP_S: Final = 0.0005


#: Tests of an operation in flight before the rank sleeps between two of them. A network answers
#: within these tests if the target runs. If not, the target may need this rank's core: a rank that
#: spun here for its whole time slice made an operation between 8 ranks on 2 cores take 1.2 ms.
TESTS_AWAKE: Final = 50
#: The sleep between two of the further tests. The rank serves no operation of others meanwhile.
OPERATION_SLEEP_S: Final = 0.00005
#: Tests of an operation in flight between two calls of ``is_dead``.
TESTS_PER_POLL: Final = 200


def wait_for_all(comm: MPI.Intracomm, going_on: Callable[[], bool] = lambda: True) -> bool:
    """A barrier that yields the core to the ranks still at work.

    Returns False if ``going_on`` returned False and the barrier was given up.
    """
    if not going_on():
        return False  # in a collective call with a dead rank MPICH may crash, not just wait
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
    """The segment of a rank with memory mapped here too; None if not mapped, or empty."""
    try:
        memory, _ = win.Shared_query(rank)
    except MPI.Exception:
        return None  # before MPI 4.1 only windows made by Allocate_shared can be queried
    return memory.cast("B") if memory.nbytes else None


def _lost(target: int, error: MPI.Exception | str) -> RankLost:
    return RankLost(
        f"rank {target} cannot be reached, its process may have ended: call abandon({target}) to "
        f"continue without the rank (MPI error: {str(error).splitlines()[-1].strip()})",
        target,
    )


class MpiWindow:
    """One rank's view of memory that all ranks of a communicator allocated together."""

    def __init__(self, comm: MPI.Intracomm, size_bytes: int, direct: bool = True) -> None:
        """Collective: every rank calls it, each with the size of its own segment.

        With ``direct`` off, all memory of other ranks is accessed through MPI; ranks may differ in
        this setting.
        """
        self.rank = comm.Get_rank()
        self._comm = comm
        with _mapped("allocate a window"):
            size = max(size_bytes, WORD_BYTES)
            self._win = MPI.Win.Allocate(size, WORD_BYTES, MPI.INFO_NULL, comm)
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
        shared = [_shared(self._win, rank) for rank in range(comm.Get_size())]
        self._shared = [view is not None for view in shared]
        #: The segments accessed directly, by rank: the rank's own, and those on the same machine.
        self._bytes: list[memoryview | None] = shared if direct else [None] * comm.Get_size()
        self._bytes[self.rank] = memory
        #: Some rank shares no memory with this one, so its operations here need this process.
        self._polls = not all(self._shared)
        #: True if a rank's process has ended; called while an operation on the rank takes long.
        self.is_dead: Callable[[int], bool] = lambda rank: False
        #: Gets in flight, by target; only for ranks without shared memory.
        self._gets: dict[int, list[MPI.Request]] = {}
        #: Abandoned operations on dead ranks. A response may still arrive, so the requests keep
        #: alive the memory that MPI would write it to.
        self._given_up: list[MPI.Request] = []
        #: Targets of puts and gets that need a flush.
        self._unflushed: set[int] = set()
        self._progress = ProgressThread(comm)
        if self._polls:
            self._progress.start()
        self._words = [at.cast("q") if at is not None else None for at in self._bytes]
        #: The same words where a load need not poll: all, or none. One check answers both
        #: questions.
        self._quiet_words = [None] * comm.Get_size() if self._polls else self._words
        self._sync = self._win.Sync
        self._operand = array("q", [0])
        self._expected = array("q", [0])
        self._operand_spec = [self._operand, 1, MPI.INT64_T]
        self._expected_spec = [self._expected, 1, MPI.INT64_T]
        self._use_new_result()

    @property
    def counts(self) -> Counts:
        local = self._made[self.rank]
        return Counts(sum(self._made) - local, local)

    def reaches(self, target: int) -> bool:
        """True if this rank reads and writes the target's memory directly."""
        return self._words[target] is not None

    def outlives(self, target: int) -> bool:
        return self._shared[target]

    def load(self, target: int, word: int) -> int:
        self._made[target] += 1
        words = self._quiet_words[target]
        if words is not None:
            value = words[word]
            self._sync()
            return value
        return self._load_with_progress(target, word)

    def _load_with_progress(self, target: int, word: int) -> int:
        words = self._words[target]
        if words is None:
            self._fetch_and_op(target, word, _NO_OP)
            return self._result[0]
        poll(self._comm)
        value = words[word]
        self._sync()
        return value

    def load_range(self, target: int, word: int, count: int) -> list[int]:
        words = self._words[target]
        if words is None or not _READS_IN_ORDER:
            return [self.load(target, word + at) for at in range(count)]
        self._made[target] += count
        if self._polls:
            poll(self._comm)
        values = words[word : word + count].tolist()
        self._sync()
        return values

    def store(self, target: int, word: int, value: int) -> None:
        self._made[target] += 1
        words = self._words[target]
        if words is not None:
            self._sync()
            words[word] = value
            # A processor may delay a store while it reads on: First, read after Last was written,
            # would then be older than Last, and Last would be stale for the other side, too.
            self._sync()
            return
        self._operand[0] = value
        # The result is unused: cheaper here than Accumulate, and as atomic.
        self._fetch_and_op(target, word, _REPLACE)

    def fetch_add(self, target: int, word: int, delta: int) -> int:
        self._made[target] += 1
        self._operand[0] = delta
        if self._shared[target]:  # inlines ``_fetch_and_op``: a call is a tenth of the cost
            win = self._win
            win.Fetch_and_op(self._operand_spec, self._result_spec, target, word, _SUM)
            win.Flush(target)
        else:
            self._fetch_and_op(target, word, _SUM)
        return self._result[0]

    def compare_swap(self, target: int, word: int, expected: int, desired: int) -> int:
        self._made[target] += 1
        self._operand[0] = desired
        self._expected[0] = expected
        try:
            self._win.Compare_and_swap(
                self._operand_spec, self._expected_spec, self._result_spec, target, word
            )
            self._win.Flush(target)
        except MPI.Exception as error:
            raise _lost(target, error) from error
        return self._result[0]

    def put(self, target: int, word: int, data: bytes) -> None:
        self._made[target] += 1
        memory = self._bytes[target]
        if memory is not None:
            start = word * WORD_BYTES
            memory[start : start + len(data)] = data
            return
        self._unflushed.add(target)
        try:
            self._win.Put([data, len(data), MPI.BYTE], target, (word, len(data), MPI.BYTE))
        except MPI.Exception as error:
            raise _lost(target, error) from error

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
        spec = [into, size, MPI.BYTE]
        try:
            if self._shared[target]:
                self._unflushed.add(target)
                self._win.Get(spec, target, (word, size, MPI.BYTE))
            else:
                request = self._win.Rget(spec, target, (word, size, MPI.BYTE))
                self._gets.setdefault(target, []).append(request)
        except MPI.Exception as error:
            raise _lost(target, error) from error

    def flush(self, target: int) -> None:
        if self._words[target] is not None:
            self._sync()
            return
        gets = self._gets.pop(target, ())
        try:
            for request in gets:
                self._wait(request, target)
            if target in self._unflushed:
                self._unflushed.discard(target)
                self._win.Flush(target)
        except RankLost:
            self._given_up.extend(gets)
            raise
        except MPI.Exception as error:
            self._given_up.extend(gets)
            raise _lost(target, error) from error

    def _use_new_result(self) -> None:
        self._result = array("q", [0])
        self._result_spec = [self._result, 1, MPI.INT64_T]

    def _fetch_and_op(self, target: int, word: int, operation: MPI.Op) -> None:
        win, operand, result = self._win, self._operand_spec, self._result_spec
        try:
            if self._shared[target]:
                win.Fetch_and_op(operand, result, target, word, operation)
                win.Flush(target)
            else:
                where = (word, 1, MPI.INT64_T)
                request = win.Rget_accumulate(operand, result, target, where, operation)
                try:
                    self._wait(request, target)
                except RankLost:
                    self._given_up.append(request)
                    self._use_new_result()
                    raise
        except MPI.Exception as error:
            raise _lost(target, error) from error

    def _wait(self, request: MPI.Request, target: int) -> None:
        tests = 0
        while not request.Test():
            tests += 1
            if tests > TESTS_AWAKE:
                time.sleep(OPERATION_SLEEP_S)
            if tests % TESTS_PER_POLL == 0 and self.is_dead(target):
                raise _lost(target, "it has ended")

    def wait_for_all(self) -> None:
        """Collective: returns when every rank has called it."""
        wait_for_all(self._comm)

    def free(self) -> None:
        """Collective: wait for all ranks, end the epoch and free the memory."""
        wait_for_all(self._comm)
        self.release()

    def release(self) -> None:
        """Ends the epoch and frees the memory; all ranks have waited for each other already."""
        self._progress.stop()
        with _mapped("free a window"):
            self._win.Unlock_all()
            for view in (*self._words, *self._bytes):
                if view is not None:
                    view.release()
            self._win.Free()
