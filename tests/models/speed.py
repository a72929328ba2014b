"""`python -m tests.models.speed`: the processor time of a million simulated objects, paper 1.

The bound is 20 s for each load. A program and not a test: it depends on the machine.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from weft.models.johnson import homogeneous
from weft.models.johnson_sim import simulate

OBJECTS: Final = 1_000_000
CPU_S_MAX: Final = 20.0
#: Consumers of 100 producers, and the bound of hops.
CASES: Final = ((50, 3), (100, 3), (200, 10))


def main() -> int:
    late = 0
    for consumers, hops in CASES:
        model = homogeneous(100, consumers, max_hops=hops)
        began = time.process_time()
        run = simulate(model, OBJECTS, seed=1)
        took = time.process_time() - began
        late += took >= CPU_S_MAX
        print(f"load {consumers / 100:g}, h_max {hops}: {took:.1f} s, W {run.wait:.2f}", flush=True)
    return late


if __name__ == "__main__":
    sys.exit(main())
