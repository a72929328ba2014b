"""The contract of every window: the promises of ``weft.mpsc.window``, as programs for two ranks.

Both ranks run each check at once, with a barrier between its phases, over zeroed segments of
``SEGMENT_WORDS`` words. Run as a program, this module is the suite of the MPI window under mpiexec,
with the memory of ranks of one machine reached directly and through MPI, and by one rank in each
way. With ``--apart`` the two ranks are expected to share no memory.
"""

from __future__ import annotations

import struct
import sys
import time
import traceback
from collections.abc import Callable
from typing import Final

from weft.mpsc import Window

SEGMENT_WORDS: Final = 64
ROUNDS: Final = 300
#: An operation that takes longer makes no progress.
PROGRESS_S: Final = 20.0

Barrier = Callable[[], None]
Check = Callable[[Window, Barrier], None]


def check_words_start_at_zero(window: Window, barrier: Barrier) -> None:
    for target in (0, 1):
        assert window.load_range(target, 0, SEGMENT_WORDS) == [0] * SEGMENT_WORDS


def check_store_is_complete_when_it_returns(window: Window, barrier: Barrier) -> None:
    window.store(1 - window.rank, 3, 40 + window.rank)
    window.store(window.rank, 4, -(2**63))
    barrier()
    assert window.load(window.rank, 3) == 41 - window.rank
    assert window.load(1 - window.rank, 4) == -(2**63)
    assert window.load_range(1 - window.rank, 3, 2) == [40 + window.rank, -(2**63)]


def check_fetch_add_loses_nothing(window: Window, barrier: Barrier) -> None:
    seen = [window.fetch_add(0, 5, 2) for _ in range(ROUNDS)]
    assert seen == sorted(set(seen)), "one rank's answers grow"
    barrier()
    assert window.load(0, 5) == 2 * 2 * ROUNDS
    barrier()
    window.fetch_add(0, 5, -2 * ROUNDS)
    barrier()
    assert window.load(0, 5) == 0


def check_compare_swap_is_atomic(window: Window, barrier: Barrier) -> None:
    won = 0
    for _ in range(ROUNDS):
        old = window.load(1, 6)
        if window.compare_swap(1, 6, old, old + 1) == old:
            won += 1
    window.fetch_add(0, 7, won)
    barrier()
    assert window.load(1, 6) == window.load(0, 7) > 0
    barrier()
    assert window.compare_swap(1, 6, -1, 99) != -1
    assert window.load(1, 6) != 99, "a swap that does not match changes nothing"


def check_put_is_there_after_flush(window: Window, barrier: Barrier) -> None:
    other = 1 - window.rank
    window.put(other, 10, b"abcdefghijk")
    window.put(window.rank, 20, struct.pack("=q", 77))
    window.flush(other)
    window.flush(window.rank)
    barrier()
    first = window.get(window.rank, 10, 11)
    second = window.get(other, 20, 8)
    window.flush(window.rank)
    window.flush(other)
    assert bytes(first) == b"abcdefghijk"
    assert struct.unpack("=q", second) == (77,)
    assert window.load(other, 20) == 77, "a word that was put can be loaded"
    third = memoryview(bytearray(24)).cast("q")
    window.get_into(window.rank, 20, third[:1])
    window.get_into(other, 20, third[1:2])
    window.flush(window.rank)
    window.flush(other)
    assert third.tolist() == [77, 77, 0]


def check_data_before_the_word_that_announces_it(window: Window, barrier: Barrier) -> None:
    """Rank 0 puts, flushes and stores; rank 1 must never see the store without the data."""
    for number in range(1, ROUNDS):
        if window.rank == 0:
            window.put(0, 30, struct.pack("=qq", number, -number))
            window.flush(0)
            window.store(1, 40, number)
            while window.load(0, 41) != number:
                time.sleep(0)
        else:
            while window.load(1, 40) != number:
                time.sleep(0)
            data = window.get(0, 30, 16)
            window.flush(0)
            assert struct.unpack("=qq", data) == (number, -number)
            window.store(0, 41, number)


def check_loads_of_the_own_memory_drive_progress(window: Window, barrier: Barrier) -> None:
    """Rank 0 makes one operation of each kind at rank 1, which only loads its own memory."""
    if window.rank == 0:
        window.put(1, 30, struct.pack("=q", 7))
        window.flush(1)
        assert window.fetch_add(1, 31, 5) == 0
        assert window.compare_swap(1, 32, 0, 6) == 0
        back = window.get(1, 30, 8)
        window.flush(1)
        assert struct.unpack("=q", back) == (7,)
        window.store(1, 33, 1)
        while window.load(0, 34) == 0:
            time.sleep(0)
        window.store(1, 35, window.load(1, 31) + window.load(1, 32))
        return
    _poll(lambda: window.load(1, 33) == 1)
    window.store(0, 34, 1)
    _poll(lambda: window.load_range(1, 35, 1) == [11])


def _poll(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PROGRESS_S
    while not done():
        assert time.monotonic() < deadline, "loads of the own memory did not drive progress"
        time.sleep(0)


def check_operations_are_counted(window: Window, barrier: Barrier) -> None:
    start = window.counts.copy()
    other = 1 - window.rank
    window.load(other, 0)
    window.fetch_add(other, 50 + window.rank, 1)
    window.compare_swap(other, 52 + window.rank, 0, 1)
    window.store(other, 54, 1)
    window.put(other, 55, b"x")
    window.get(other, 56, 4)
    window.get_into(other, 57, memoryview(bytearray(8)))
    window.flush(other)
    window.get_into(window.rank, 57, memoryview(bytearray(8)))
    window.flush(window.rank)
    window.load(window.rank, 0)
    window.load_range(window.rank, 0, 3)
    spent = window.counts.since(start)
    assert (spent.remote, spent.local) == (7, 5)


#: How the ranks of the MPI window reach each other.
WAYS: Final = ("direct", "pure", "mixed")
CHECKS: Final[dict[str, Check]] = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


def main() -> None:
    from mpi4py import MPI

    from weft.mpsc.mpi import MpiWindow, wait_for_all

    comm = MPI.COMM_WORLD
    shared = "--apart" not in sys.argv
    for way in WAYS:
        direct = {"direct": True, "pure": False, "mixed": comm.Get_rank() == 0}[way]
        for name, check in CHECKS.items():
            window = MpiWindow(comm, SEGMENT_WORDS * 8, direct)
            assert window.outlives(1 - window.rank) == shared
            assert window.reaches(1 - window.rank) == (direct and shared)
            wait_for_all(comm)
            try:
                check(window, window.wait_for_all)
            except AssertionError:
                traceback.print_exc()
                comm.Abort(1)  # the other rank may be waiting for this one
            window.free()
            print(f"passed {way} {name}", flush=True)


if __name__ == "__main__":
    main()
