"""The submitter of `tests.tasks.locality`, in a network namespace: prints one line of JSON."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter

from tests.tasks import near
from weft import tasks
from weft.tasks.heartbeat import WorkerBeat, beats_of
from weft.tasks.sites.site_table import sites_of

#: Large enough that a fetch is seen, small enough that the network is not measured.
BLOCK_BYTES = 256 << 10
BLOCKS = 6
TIMEOUT_S = 120


def main(servers: str, count: int, seconds: float, *sites: str) -> None:
    near.app.connect(servers)
    while {beat.site for beat in beats_of(near.app.client, "near") if beat.blocks} < set(sites):
        time.sleep(0.1)
    blocks = {
        site: tasks.gather(
            [near.make.with_options(near=site).submit(n, BLOCK_BYTES) for n in range(BLOCKS)],
            timeout=TIMEOUT_S,
        )
        for site in sites
    }
    shuffled = [blocks[site][n % BLOCKS] for n in range(count // len(sites)) for site in sites]
    random.Random(1).shuffle(shuffled)
    skewed = [blocks[sites[0]][n % BLOCKS] for n in range(count)]
    said = {
        "balanced": run(shuffled, seconds, len(sites)),
        "one site": run(skewed, seconds, len(sites)),
        "made at": {site: Counter(b.site for b in some) for site, some in blocks.items()},
    }
    loads = sites_of(counted(len(shuffled) + len(skewed)), [])
    said["counts"] = {name: load.as_json() for name, load in loads.items()}
    near.app.close()
    print(json.dumps(said))


def counted(least: int) -> list[WorkerBeat]:
    """The workers, when their heartbeats have counted so many tasks."""
    while True:
        beats = beats_of(near.app.client, "near")
        if sum(beat.counts.succeeded for beat in beats) >= least:
            return beats
        time.sleep(0.1)


def run(blocks: list[tasks.Block], seconds: float, processes: int) -> dict[str, object]:
    """Runs a task for each block; returns the share of local runs, and makespan by ideal."""
    began = time.perf_counter()
    futures = near.measure.map(blocks, seconds=seconds)
    found = tasks.gather(futures, timeout=TIMEOUT_S)
    took = time.perf_counter() - began
    assert all(size == BLOCK_BYTES for _, size in found)
    ideal = len(blocks) * seconds / processes
    local = sum(site == block.site for (site, _), block in zip(found, blocks, strict=True))
    return {
        "tasks": len(blocks), "local share": round(local / len(blocks), 3),
        "makespan s": round(took, 2), "ideal s": round(ideal, 2),
        "makespan / ideal": round(took / ideal, 3), "runs": Counter(site for site, _ in found),
    }  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
