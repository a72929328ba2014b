"""Task graphs of null tasks: ``python -m bench.tasks.graphs``.

Real nodes with fsync (or as said), two worker processes. For each shape: the dependencies of the
graph, the time of `submit`, and the time from the call of `submit` to the last result; `edges/s` is
dependencies by the second time, submission included.

| shape    | the graph                                                                          |
|----------|------------------------------------------------------------------------------------|
| chain    | 1,000 tasks, each with the result of the one before                                |
| fan      | one task, then a wide layer, then one task with all results                        |
| layers   | layers of 250 tasks, each task after 8 tasks of the layer before, without results  |
| diamonds | many diamonds: one task, two tasks with its result, one task with both results     |
| small    | the diamonds again, each a graph of its own                                        |
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from weft.tasks.graph import Graph
from weft.tasks.testing import worker_process
from weft.testing import cluster

from .graphs_app import app, join, null, root

ROOT: Final = Path(__file__).resolve().parents[2]
WORKERS: Final = 2
CHAIN: Final = 1_000
LAYER: Final = 250
PARENTS: Final = 8
RESULT_S: Final = 300.0


def chain(g: Graph, tasks: int) -> None:
    g.chain(0, *[null] * min(tasks, CHAIN))


def fan(g: Graph, tasks: int) -> None:
    first = g.add(root)
    g.add(join, [g.add(null, first) for _ in range(tasks - 2)])


def layers(g: Graph, tasks: int) -> None:
    layer = [g.add(root) for _ in range(LAYER)]
    for _ in range(tasks // LAYER - 1):
        layer = [
            g.add(root, after=[layer[(n + step) % LAYER] for step in range(PARENTS)])
            for n in range(LAYER)
        ]


def diamonds(g: Graph, tasks: int) -> None:
    for _ in range(tasks // 4):
        first = g.add(root)
        g.add(join, [g.add(null, first), g.add(null, first)])


SHAPES: Final[dict[str, Callable[[Graph, int], None]]] = {
    "chain": chain, "fan": fan, "layers": layers, "diamonds": diamonds,
}  # fmt: skip


def measure(shape: str, tasks: int) -> dict[str, Any]:
    made: list[Graph] = []
    if shape == "small":
        for _ in range(tasks // 4):
            made.append(app.graph())
            diamonds(made[-1], 4)
    else:
        made.append(app.graph())
        SHAPES[shape](made[0], tasks)
    edges = sum(g.edges for g in made)
    began = time.perf_counter()
    runs = [g.submit() for g in made]
    submitted = time.perf_counter() - began
    for run in runs:
        progress = run.wait(RESULT_S)
        assert progress.counts["done"] == len(run), progress.counts
    took = time.perf_counter() - began
    return {
        "shape": shape,
        "tasks": sum(map(len, made)),
        "edges": edges,
        "submit_s": round(submitted, 3),
        "total_s": round(took, 3),
        "edges_per_s": round(edges / took),
        "tasks_per_s": round(sum(map(len, made)) / took),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tasks.graphs", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--durability", choices=("disk", "os"), default="disk")
    parser.add_argument("--tasks", type=int, default=10_000, help="tasks of a graph")
    parser.add_argument("--shapes", default=",".join([*SHAPES, "small"]))
    parser.add_argument("--json", type=Path, default=None, help="write the results here, too")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{given.nodes} nodes, durability {given.durability}"
    )
    with cluster(given.nodes, durability=given.durability) as nodes:
        if given.nodes > 1:
            nodes.settled()
        arguments = ("-c", str(WORKERS), "--log-level", "WARNING")
        place = "bench.tasks.graphs_app:app"
        with worker_process(place, nodes.servers, *arguments, folder=ROOT):
            app.connect(nodes.servers)
            measure("diamonds", 400)  # connections, pools and pops have grown
            for shape in given.shapes.split(","):
                row = measure(shape, given.tasks if shape != "small" else given.tasks // 10)
                rows.append(row)
                print("  ".join(f"{key}={value}" for key, value in row.items()))
                sys.stdout.flush()
            app.close()
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
