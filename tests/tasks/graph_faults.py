"""Graphs under faults: ``python -m tests.tasks.graph_faults`` (``make graph-faults``).

The graphs have chains, a wide fan, layers and diamonds, of 10,000 tasks together by default. Worker
processes kill themselves at labelled points, supervisors and nodes are killed from outside. At the
end every task has its result, each effect happened exactly once, and no task waits.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter

import weft
from weft.tasks.graph import Graph, GraphNode
from weft.tasks.graph_run import GraphRun
from weft.testing import Cluster, cluster

from .faults import Faults

#: Chains and layers have this length and width.
LENGTH = 50


class NumberedGraph:
    """A graph of tasks that are numbered from a first number on."""

    def __init__(self, first: int) -> None:
        from tests.tasks import faults_app

        self.graph: Graph = faults_app.app.graph()
        self.first = first
        self._task = faults_app.node

    def add(self, *parents: GraphNode) -> GraphNode:
        return self.graph.add(self._task, self.first + len(self.graph), list(parents))


def chains(made: NumberedGraph, count: int) -> None:
    for _ in range(count // LENGTH):
        last = made.add()
        for _ in range(LENGTH - 1):
            last = made.add(last)


def fan(made: NumberedGraph, count: int) -> None:
    first = made.add()
    made.add(*[made.add(first) for _ in range(count - 2)])


def layers(made: NumberedGraph, count: int) -> None:
    layer = [made.add() for _ in range(LENGTH)]
    for _ in range(count // LENGTH - 1):
        layer = [made.add(layer[n], layer[n - 1], layer[n - 2]) for n in range(LENGTH)]


def diamonds(made: NumberedGraph, count: int) -> None:
    for _ in range(count // 4):
        first = made.add()
        made.add(made.add(first), made.add(first))


def submitted(count: int) -> list[GraphRun]:
    """Graphs of all shapes with so many tasks: each shape as one graph, and diamonds alone."""
    runs: list[GraphRun] = []
    first = 0
    for shape in (chains, fan, layers, diamonds):
        made = NumberedGraph(first)
        shape(made, count // 4)
        first += len(made.graph)
        runs.append(made.graph.submit())
    return runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--supervisors", type=int, default=2)
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between kills")
    parser.add_argument("--kill-s", type=float, default=120.0, help="how long to kill")
    parser.add_argument("--rounds", type=int, default=1, help="so many times the graphs")
    parser.add_argument("--minutes", type=float, default=15.0, help="the longest run")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1 << 30)
    os.environ["WEFT_FAULTS_SEED"] = str(seed)
    print(f"seed {seed}")
    with cluster(given.nodes, durability="os") as nodes:
        if given.nodes > 1:
            nodes.settled()
        return run(nodes, given, random.Random(seed))


def run(nodes: Cluster, given: argparse.Namespace, draw: random.Random) -> int:
    from tests.tasks import faults_app

    faults_app.fate.enabled = False  # this process only submits
    app = faults_app.app
    app.connect(nodes.servers)
    app.client.create_queue("faults.effects", update=True)
    errors: list[str] = []
    faults = Faults(nodes, given.nodes, given.supervisors, draw)
    began = time.monotonic()
    deadline = began + given.minutes * 60
    for _ in range(given.rounds):
        errors += one_round(app.client, faults, given, began, deadline)
    faults.close()
    points = Counter(line.split(": ")[1] for line in faults.log if line.startswith("fault: "))
    print(f"took {time.monotonic() - began:.1f} s; killed: {dict(points + faults.kills)}")
    for error in errors:
        print(f"WRONG: {error}")
    app.close()
    print("failed" if errors else "every task ended once, and nothing waits")
    return 1 if errors else 0


def one_round(
    client: weft.Client, faults: Faults, given: argparse.Namespace, began: float, deadline: float
) -> list[str]:
    runs = submitted(given.tasks)
    tasks = sum(map(len, runs))
    next_kill = time.monotonic() + given.pause
    left = list(runs)
    while left and time.monotonic() < deadline:
        try:
            left[0].wait(0.5)
            left.pop(0)
        except (weft.DeadlineExceeded, weft.Unavailable):
            pass
        if left and time.monotonic() >= next_kill and time.monotonic() - began < given.kill_s:
            faults.step()
            next_kill = time.monotonic() + given.pause
            print(f"{time.monotonic() - began:6.1f} s: kills {dict(faults.kills)}", flush=True)
    if left:
        states = [each.progress().counts for each in left]
        return [f"{len(left)} graphs hang: {states}"]
    settled(client, deadline)
    return checked(client, runs, tasks)


def settled(client: weft.Client, deadline: float) -> None:
    """Every attempt has ended; the reapers of large graphs are delayed, and stay."""
    queue = client.queue("faults.default")
    while time.monotonic() < deadline:
        stats = queue.stats()
        if not stats.ready + stats.leased:
            return
        time.sleep(0.2)


def checked(client: weft.Client, runs: list[GraphRun], tasks: int) -> list[str]:
    errors: list[str] = []
    queue, seen = client.queue("faults.effects"), Counter[int]()
    while batch := queue.pop_many(10_000, wait_ms=500):
        seen.update(int(message.body) for message in batch)
        queue.ack_many(batch)
    if missing := tasks - len(seen):
        errors.append(f"{missing} effects are missing")
    if twice := [n for n, count in seen.items() if count > 1]:
        errors.append(f"{len(twice)} effects happened more than once, such as {twice[:5]}")
    first = 0
    for each in runs:
        wrong = [
            n for n, future in enumerate(each.futures()) if future.exception(10) is not None
            or future.result(10) != first + n
        ]  # fmt: skip
        if wrong:
            errors.append(f"{len(wrong)} tasks of {each} have a wrong result, such as {wrong[:5]}")
        first += len(each)
    if waiting := client.queue("faults.default").stats().waiting:
        errors.append(f"{waiting} tasks wait for ever")
    return errors


if __name__ == "__main__":
    sys.exit(main())
