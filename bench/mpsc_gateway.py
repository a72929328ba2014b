"""Throughput from MPI ranks to a durable queue: 3 senders, a gateway rank, one local node on disk.

    python bench/mpsc_gateway.py --messages 300000

Every sender sends an equal share of 128-byte messages in runs of 64, then waits until all are
durable. The rate is the number of messages over the time from the first sender's start to the last
sender's final watermark.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ITEM_BYTES = 128
RUN = 64
RANKS = 4
#: Timeout in seconds; the run normally takes a few seconds.
JOB_SECONDS_MAX = 120


def one_rank(server: str, share: int, folder: Path) -> None:
    from mpi4py import MPI

    import weft.mpsc

    comm = MPI.COMM_WORLD
    with weft.mpsc.open(
        comm, queue="bench", servers=server, item_bytes=ITEM_BYTES, variable=False
    ) as gateway:
        if gateway.sender is None:
            gateway.run()
            return
        items = [bytes(ITEM_BYTES)] * RUN
        start = time.monotonic_ns()
        for _ in range(share // RUN):
            gateway.sender.send_many(items)
        gateway.sender.flush()
        span = (start, time.monotonic_ns(), share // RUN * RUN)
        (folder / f"{comm.Get_rank()}.json").write_text(json.dumps(span))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rank-of", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        server, share, folder = options.rank_of
        one_rank(server, int(share), Path(folder))
        return
    import weft.testing

    mpiexec = Path(sys.executable).with_name("mpiexec")
    with weft.testing.cluster(nodes=1) as cluster, tempfile.TemporaryDirectory() as folder:
        with cluster.client() as client:
            client.create_queue("bench")
        share = options.messages // (RANKS - 1)
        command = [str(mpiexec), "-n", str(RANKS), sys.executable, __file__, "--rank-of"]
        command += [cluster.servers[0], str(share), folder]
        subprocess.run(command, check=True, timeout=JOB_SECONDS_MAX)
        spans = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
        with cluster.client() as client:
            stored = client.queue("bench").stats().ready
    count = sum(span[2] for span in spans)
    seconds = (max(span[1] for span in spans) - min(span[0] for span in spans)) / 1e9
    assert stored == count, f"{stored} of {count} messages are in the queue"
    print(json.dumps({"messages": count, "seconds": seconds, "per_s": count / seconds}))


if __name__ == "__main__":
    main()
