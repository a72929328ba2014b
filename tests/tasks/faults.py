"""Tasks under faults: ``python -m tests.tasks.faults`` (``make tasks-faults``).

Worker processes kill themselves at labelled points, supervisors and nodes are killed from outside,
all with SIGKILL, while tasks with effects, chains and once="start" run. Then every promise is
checked: each effect happened exactly once, each task has one result, no function of once="start"
began twice, and each of its losses is reported.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import weft
from weft import tasks
from weft.tasks.testing import WorkerProcess, worker_process
from weft.testing import Cluster, cluster

ROOT: Final = Path(__file__).resolve().parents[2]
APP: Final = "tests.tasks.faults_app:app"


class Faults:
    """Supervisors and nodes, killed and started again in turn until the tasks have ended."""

    def __init__(self, nodes: Cluster, count: int, supervisors: int, draw: random.Random) -> None:
        self._nodes = nodes
        self._count = count
        self._draw = draw
        self._ends: list[ExitStack] = []
        self.workers: list[WorkerProcess] = []
        self.kills: Counter[str] = Counter()
        self.log: list[str] = []
        for number in range(supervisors):
            self._ends.append(ExitStack())
            self.workers.append(self._start(number))

    def _start(self, number: int) -> WorkerProcess:
        made = worker_process(
            APP, self._nodes.servers, "-c", "2", "--log-level", "WARNING", folder=ROOT
        )
        return self._ends[number].enter_context(made)

    def step(self) -> None:
        """Kills one thing, and starts it again."""
        if self._draw.random() < 0.5:
            number = self._draw.randrange(len(self.workers))
            self.log += self.workers[number].log
            self.workers[number].kill()
            self._ends[number].close()
            self.workers[number] = self._start(number)
            self.kills["supervisor"] += 1
        else:
            number = self._draw.randrange(self._count)
            self._nodes.kill(number)
            time.sleep(self._draw.uniform(0, 1.5))
            self._nodes.start(number)
            if self._count > 1:
                self._nodes.recovered()
            self.kills["node"] += 1

    def close(self) -> None:
        for number, worker in enumerate(self.workers):
            worker.stop()
            self.log += worker.log
            self._ends[number].close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--start-tasks", type=int, default=2_000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--supervisors", type=int, default=2)
    parser.add_argument("--pause", type=float, default=6.0, help="seconds between kills")
    parser.add_argument("--kill-s", type=float, default=180.0, help="how long to kill")
    parser.add_argument("--minutes", type=float, default=30.0, help="the longest run")
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
    client = app.client
    client.create_queue("faults.effects")
    effects = given.tasks * 9 // 10
    began = time.monotonic()
    futures = [
        *faults_app.effect.map(range(effects)),
        *faults_app.chain.map(range(effects, given.tasks)),
    ]
    starts = faults_app.start.map(range(given.start_tasks))
    faults = Faults(nodes, given.nodes, given.supervisors, draw)
    deadline = began + given.minutes * 60
    done = 0
    next_kill = time.monotonic() + given.pause
    waiting = [*futures, *starts]
    while waiting and time.monotonic() < deadline:
        try:
            tasks.gather(waiting[:4096], timeout=1, return_exceptions=True)
            done += len(waiting[:4096])
            waiting = waiting[4096:]
        except (weft.DeadlineExceeded, weft.Unavailable):
            pass
        killing = time.monotonic() - began < given.kill_s
        if killing and time.monotonic() >= next_kill and waiting:
            faults.step()
            next_kill = time.monotonic() + given.pause
            print(f"{time.monotonic() - began:6.1f} s: {done} ended, kills {dict(faults.kills)}")
    took = time.monotonic() - began
    drained(client, deadline)
    faults.close()
    points = Counter(line.split(": ")[1] for line in faults.log if line.startswith("fault: "))
    print(f"took {took:.1f} s; killed: {dict(points + faults.kills)}")
    errors = checked(client, futures, starts, given, len(waiting))
    for error in errors:
        print(f"WRONG: {error}")
    app.close()
    print("failed" if errors else "every effect happened once, and nothing hangs")
    return 1 if errors else 0


def drained(client: weft.Client, deadline: float) -> None:
    """The chained tasks have ended, too."""
    queue = client.queue("faults.default")
    while time.monotonic() < deadline:
        stats = queue.stats()
        if not stats.ready + stats.leased + stats.delayed:
            return
        time.sleep(0.2)


def checked(
    client: weft.Client,
    futures: list[tasks.Future],
    starts: list[tasks.Future],
    given: argparse.Namespace,
    waiting: int,
) -> list[str]:
    errors = [f"{waiting} tasks hang"] if waiting else []
    queue, seen = client.queue("faults.effects"), Counter[int]()
    while batch := queue.pop_many(10_000, wait_ms=500):
        seen.update(int(message.body) for message in batch)
        queue.ack_many(batch)
    missing = given.tasks - len(seen)
    twice = [n for n, count in seen.items() if count > 1]
    if missing:
        errors.append(f"{missing} effects are missing")
    if twice:
        errors.append(f"{len(twice)} effects happened more than once, such as {twice[:5]}")
    if waiting:
        return errors
    results = tasks.gather(futures, timeout=60, return_exceptions=True)
    wrong = [n for n, result in enumerate(results) if result != n]
    if wrong:
        errors.append(f"{len(wrong)} results are wrong, such as {results[wrong[0]]!r}")
    began = client.kv.lookup_many(f"faults/started/{n}" for n in range(len(starts)))
    again = [key for key, value in began.items() if value != b"x"]
    if again:
        errors.append(f'{len(again)} tasks with once="start" began twice, such as {again[:5]}')
    ends = tasks.gather(starts, timeout=60, return_exceptions=True)
    lost = sum(isinstance(end, weft.WorkerLost) for end in ends)
    print(f'once="start": {len(ends) - lost} have results, {lost} are reported as lost')
    for n, end in enumerate(ends):
        if end != n and not isinstance(end, weft.WorkerLost):
            errors.append(f"start {n} ended with {end!r}")
        if end == n and f"faults/started/{n}" not in began:
            errors.append(f"start {n} has a result and never began")
    return errors


if __name__ == "__main__":
    sys.exit(main())
