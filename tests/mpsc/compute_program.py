"""Rank 0 makes operations on the memory of rank 1, which computes and makes no MPI call meanwhile.

Rank 1 waits for a file that rank 0 writes after its operations, so the job ends only if the
operations complete without rank 1. Usage: compute_program.py FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mpi4py import MPI

from weft.mpsc.mpi import MpiWindow

WAIT_S = 20.0


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
    window.free()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
