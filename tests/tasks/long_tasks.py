"""Long tasks run once: ``python -m tests.tasks.long_tasks``.

Two campaigns, with the figures on standard output and exit code 1 for a broken promise:

- ``rolling``: three nodes are stopped and started one after the other while tasks of 60 s run;
- ``held``: a task holds the interpreter's lock for 90 s with leases of 30 s.

CI runs a short form of each (test_long_tasks).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tests.tasks import slow
from weft import tasks
from weft.tasks.testing import worker_process
from weft.testing import Cluster, cluster

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.tasks.slow:app"
LEASE_MS = 30_000


def rolling(count: int, seconds: float, lease_ms: int = LEASE_MS) -> list[int]:
    """Restarts three nodes in turn while the tasks run; returns the starts of each task."""
    with cluster(3, durability="os") as nodes:
        nodes.settled()
        slow.app.connect(nodes.servers)
        client = slow.app.client
        client.create_queue("slow.default", lease_ms=lease_ms)
        with worker_process(APP, nodes.servers, "-c", str(count), folder=ROOT) as worker:
            worker.logged("takes")
            futures = [slow.nap.submit(number, seconds) for number in range(count)]
            wait_for_starts(count)
            began = time.monotonic()
            restart_all(nodes)
            print(f"three nodes restarted in {time.monotonic() - began:.1f} s")
            client.kv.insert("slow/go", b"")
            attempts = tasks.gather(futures, timeout=seconds + 120)
            starts = counted(count)
            assert worker.stop() == 0
        slow.app.close()
    print(f"{count} tasks of {seconds:g} s or more: attempts {attempts}, starts {starts}")
    return starts


def restart_all(nodes: Cluster) -> None:
    for number in range(3):
        nodes.stop(number)
        nodes.recovered()
        nodes.start(number)
        nodes.settled()


def held(seconds: int, lease_ms: int = LEASE_MS) -> list[int]:
    """One task holds the interpreter's lock; returns its starts."""
    with cluster(1, durability="os") as nodes:
        slow.app.connect(nodes.servers)
        slow.app.client.create_queue("slow.default", lease_ms=lease_ms)
        with worker_process(APP, nodes.servers, "-c", "2", folder=ROOT) as worker:
            worker.logged("takes")
            began = time.monotonic()
            attempt = slow.hold.submit(0, seconds).result(seconds + 120)
            took = time.monotonic() - began
            starts = counted(1)
            assert worker.stop() == 0
        slow.app.close()
    print(f"the lock held for {took:.1f} s, lease {lease_ms} ms: attempt {attempt}, {starts=}")
    return starts


def wait_for_starts(count: int) -> None:
    deadline = time.monotonic() + 60
    while counted(count) != [1] * count:
        assert time.monotonic() < deadline, counted(count)
        time.sleep(0.05)


def counted(count: int) -> list[int]:
    keys = [f"slow/starts/{number}" for number in range(count)]
    found = slow.app.client.kv.lookup_many(keys)
    return [len(found.get(key) or b"") for key in keys]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("campaign", nargs="*", choices=["rolling", "held", []], default=[])
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=0, help="of a task; 60 and 90 by default")
    given = parser.parse_args()
    chosen = given.campaign or ["rolling", "held"]
    starts: list[int] = []
    if "rolling" in chosen:
        starts += rolling(given.tasks, given.seconds or 60)
    if "held" in chosen:
        starts += held(given.seconds or 90)
    once = all(each == 1 for each in starts)
    print("each task has started once" if once else "a task has started more than once")
    return 0 if once else 1


if __name__ == "__main__":
    raise SystemExit(main())
