"""One rank of the simulation: draws samples and sends them, one batch of samples per message.

mpiexec -n 4 weft mpi-gateway --queue samples -- python simulate.py --samples 200000
"""

from __future__ import annotations

import argparse

import numpy as np
from option import BATCH, BATCH_BYTES, Call

import weft.mpsc

#: Messages per call to the gateway.
RUN = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200_000, help="of all ranks together")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with weft.mpsc.open() as gateway:
        rank, ranks = gateway.comm.Get_rank(), gateway.comm.Get_size()
        dice = np.random.default_rng([options.seed, rank])
        batches = options.samples // BATCH
        mine = batches // ranks + (rank < batches % ranks)
        for start in range(0, mine, RUN):
            count = min(RUN, mine - start)
            raw = Call().sample(dice, count * BATCH).astype("<f8").tobytes()
            gateway.sender.send_many(
                [raw[at : at + BATCH_BYTES] for at in range(0, len(raw), BATCH_BYTES)]
            )
        gateway.sender.flush()
        print(f"rank {rank}: {mine * BATCH:,} samples are stored", flush=True)


if __name__ == "__main__":
    main()
