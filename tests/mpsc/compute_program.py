"""Rank 0 makes operations on the memory of rank 1, which computes and makes no MPI call meanwhile.

Rank 1 waits for a file that rank 0 writes after its operations, so the job ends only if the
operations complete without rank 1. Then rank 1 stops its progress thread and makes no call for
SILENT_S: rank 0 waits for its next operation, and must leave its core to others meanwhile.
Usage: compute_program.py FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mpi4py import MPI

from weft.mpsc.mpi import MpiWindow

WAIT_S = 20.0
SILENT_S = 1.0


def main(folder: Path) -> None:
    window = MpiWindow(MPI.COMM_WORLD, 64)
    window.wait_for_all()
    done = folder / "done"
    if window.rank == 0:
        assert window.fetch_add(1, 3, 5) == 0
        assert window.load(1, 3) == 5
        done.touch()
    else:
        deadline = time.monotonic() + WAIT_S
        while not done.exists():
            if time.monotonic() > deadline:
                print("operations on the memory of a computing rank do not complete", flush=True)
                MPI.COMM_WORLD.Abort(1)
            time.sleep(0.01)
    wait_for_the_silent(window)
    window.free()


def wait_for_the_silent(window: MpiWindow) -> None:
    window.wait_for_all()
    if window.rank == 1:
        window._progress.stop()
        time.sleep(SILENT_S)
        return
    time.sleep(SILENT_S / 4)  # rank 1 has left MPI
    began, began_cpu = time.monotonic(), time.thread_time()
    assert window.load(1, 3) == 5
    waited, busy = time.monotonic() - began, time.thread_time() - began_cpu
    print(f"waited {waited:.3f} s, computed {busy:.3f} s", flush=True)
    assert waited < SILENT_S / 2 or busy < waited / 4, "a waiting rank keeps its core"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
