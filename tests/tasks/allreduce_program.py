"""An MPI program: the sum over all ranks, printed by each with its host."""

from __future__ import annotations

import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(int(sys.argv[1]) * (world.rank + 1))
print(f"rank {world.rank} of {world.size}: {total}\n", end="", flush=True)
