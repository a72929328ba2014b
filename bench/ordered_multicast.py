"""The latency of a multicast to several ordered queues beside that of a push, on three real nodes.

    python -m bench.ordered_multicast --seconds 5

Pushes to one ordered queue and multicasts to two ordered queues take turns, one at a time, so both
meet the same machine. The nodes run on this machine: figures are of its disk and processors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Final

import weft
from weft.testing import cluster

#: Calls before the first one that counts.
_WARM_UP: Final = 20


def measure(client: weft.Client, seconds: float, destinations: int) -> dict[str, float]:
    """Medians in milliseconds, and the ratio."""
    queues = [f"ordered-{number}" for number in range(destinations)]
    for name in queues:
        client.create_queue(name, ordered=True)
    one = client.queue(queues[0])
    calls: dict[str, Callable[[], object]] = {
        "push": lambda: one.push(b"x"),
        "multicast": lambda: client.multicast(b"x", queues=queues),
    }
    took: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_WARM_UP):
        for call in calls.values():
            call()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            took[name].append((time.perf_counter() - begun) * 1000)
    medians = {f"{name} p50 ms": statistics.median(times) for name, times in took.items()}
    ratio = medians["multicast p50 ms"] / medians["push p50 ms"]
    return {**medians, "ratio": ratio, "calls": float(len(took["push"]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--destinations", type=int, default=2, help="2 or more ordered queues")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.destinations < 2:
        parser.error("--destinations must be 2 or more")
    with cluster(nodes=3) as nodes, nodes.client() as client:
        found = measure(client, options.seconds, options.destinations)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:20} {value:10.3f}")


if __name__ == "__main__":
    main()
