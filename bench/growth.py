"""The cost of growth: CPU time and peer traffic per message in clusters of 1 to 16 real nodes.

    python bench/growth.py [--nodes 1,2,4,8,16] [--learners 1] [--rounds 3] [--json FILE]

All nodes run on this machine, so the benchmark counts costs and does not measure throughput. One
Python client runs three kinds of work in alternating slices:

- *push*: push batches that stay in the queue;
- *pop*: pop and ack all of these batches;
- *flow*: push, pop and ack one batch per node, repeatedly, as with consumers that keep up.

Every node gets the same load in a cluster of any size (`--rate` batches a second). A rarely called
process costs more per call, because its memory has left the processor's caches; a fixed load per
node keeps this effect of the machine out of the comparison.

Before and after each slice the benchmark reads the CPU time of all node processes (per thread, in
nanoseconds) and the peer messages and bytes of all nodes. A slice includes late work, such as the
copies to learners. The cost of the idle cluster is measured before each slice and subtracted. Pings
go to every node five times a second regardless of load and are not counted as messages.

Sizes take turns, and every round starts each size anew; results are medians over all slices of a
size. Measuring starts when the cluster has reached its plan, because until then partitions move.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import weft
from weft.client.sync_client import Client, Queue
from weft.testing import Cluster, cluster

QUEUE = "growth"
BODY = b"x" * 128
#: Seconds for late work: longer than two pings in each direction and one poll.
LATE_S = 1.0
REST_S = 1.5
#: Seconds in which a cluster must reach its plan, and seconds of steady CPU use after that.
PLAN_S_MAX = 300.0
STILL_S = 3.0
FLAT = 0.15
#: Fewer batches would vanish in the idle cost that is subtracted, so small clusters run longer.
BATCHES_MIN = 96


@dataclass
class Used:
    """CPU time and peer traffic of a cluster, in total or within an interval of `at` seconds."""

    cpu_us: float
    messages: float
    bytes: float
    at: float

    def since(self, before: Used) -> Used:
        return Used(
            self.cpu_us - before.cpu_us,
            self.messages - before.messages,
            self.bytes - before.bytes,
            self.at - before.at,
        )

    def without(self, rest: Used) -> Used:
        """The use in excess of an idle cluster's use over the same time."""
        share = self.at / rest.at
        return Used(
            self.cpu_us - rest.cpu_us * share,
            self.messages - rest.messages * share,
            self.bytes - rest.bytes * share,
            self.at,
        )


@dataclass
class Load:
    """Batches per second and node, seconds of a slice, and messages per batch."""

    rate: float
    seconds: float
    batch: int


@dataclass
class Cost:
    """Cost of one kind of work: CPU time and bytes per message, peer messages per batch."""

    cpu_us: float
    wire: float
    bytes: float


@dataclass
class Figures:
    """Median costs of one cluster size, and the number of slices."""

    nodes: int
    learners: int
    slices: int
    push: Cost
    pop: Cost
    flow: Cost
    #: Processor cores that all nodes together use while idle.
    rest_cores: float


class Meter:
    """Reads a cluster's counters. The status calls fall outside of the CPU readings."""

    def __init__(self, made: Cluster, nodes: int, ends: ExitStack) -> None:
        self._pids = [made.node(number).pid for number in range(nodes)]
        self._clients: list[Client] = [
            ends.enter_context(weft.connect(made.node(number).grpc)) for number in range(nodes)
        ]

    def cpu_us(self) -> float:
        return sum(map(_cpu_us, self._pids))

    def slice(self, work: Callable[[], None], late_s: float) -> Used:
        """The use of ``work``, including ``late_s`` seconds of late work."""
        before, at, cpu = self._said(), time.monotonic(), self.cpu_us()
        work()
        time.sleep(late_s)
        cpu, at = self.cpu_us() - cpu, time.monotonic() - at
        after = self._said()
        return Used(cpu, after[0] - before[0], after[1] - before[1], at)

    def _said(self) -> tuple[int, int]:
        statuses = [client.status() for client in self._clients]
        return (
            sum(status.peer_messages - status.peer_pings for status in statuses),
            sum(status.peer_bytes for status in statuses),
        )


def _cpu_us(pid: int) -> float:
    """CPU time of all live threads of a process; a node's threads live as long as the process."""
    used = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            used += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue  # The thread has just ended.
    return used / 1e3


class Work:
    """The work of a slice, at an even pace."""

    def __init__(self, queue: Queue, nodes: int, load: Load) -> None:
        self._queue = queue
        self._lot = nodes
        self._batch = load.batch
        self._rate = load.rate * nodes
        self._batches = int(max(BATCHES_MIN, self._rate * load.seconds)) // nodes * nodes
        self.messages = self._batches * load.batch

    def push(self) -> None:
        for _ in self._paced(self._batches):
            self._push()

    def pop(self) -> None:
        left = self.messages
        for _ in self._paced(self._batches):
            left -= self._pop()
        while left:
            left -= self._pop()

    def flow(self) -> None:
        for _ in self._paced(self._batches // self._lot, self._lot):
            for _ in range(self._lot):
                self._push()
            left = self._lot * self._batch
            while left:
                left -= self._pop()

    def _paced(self, count: int, lot: int = 1) -> Iterator[None]:
        """Yields `count` times at the rate of `lot` batches each; never speeds up to catch up."""
        due = time.monotonic()
        for _ in range(count):
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - lot / self._rate) + lot / self._rate
            yield

    def _push(self) -> None:
        self._queue.push_many([BODY] * self._batch)

    def _pop(self) -> int:
        got = self._queue.pop_many(self._batch, wait_ms=1000)
        self._queue.ack_many(got)
        return len(got)

    def cost(self, used: Used) -> Cost:
        per_batch = used.messages / self._batches
        return Cost(used.cpu_us / self.messages, per_batch, used.bytes / self.messages)


def reach_plan(meter: Meter, made: Cluster, nodes: int) -> None:
    """Returns when no partition moves any more: the nodes' CPU use is steady."""
    if nodes > 1:
        made.settled(PLAN_S_MAX)
    end = time.monotonic() + PLAN_S_MAX
    seen: list[float] = []
    while time.monotonic() < end:
        before, at = meter.cpu_us(), time.monotonic()
        time.sleep(STILL_S / 3)
        seen.append((meter.cpu_us() - before) / (time.monotonic() - at))
        if len(seen) > 3 and max(seen[-3:]) < 1.2 * min(seen):
            return
    raise SystemExit(f"{nodes} nodes did not come to rest within {PLAN_S_MAX:.0f} s")


def measure(
    nodes: int, learners: int, load: Load, slices: int
) -> Iterator[tuple[str, Cost, float]]:
    """(kind of work, cost, cores at rest) of each slice."""
    with ExitStack() as ends:
        made = ends.enter_context(cluster(nodes, durability="os", learners=learners))
        meter = Meter(made, nodes, ends)
        reach_plan(meter, made, nodes)
        client = ends.enter_context(weft.connect(made.servers))
        client.create_queue(QUEUE)
        work = Work(client.queue(QUEUE), nodes, load)
        work.flow()  # Warm-up: connections and caches.
        for _ in range(slices):
            for name in ("push", "pop", "flow"):
                rest = meter.slice(lambda: None, REST_S)
                used = meter.slice(getattr(work, name), LATE_S)
                yield name, work.cost(used.without(rest)), rest.cpu_us / 1e6 / rest.at


def median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(getattr(cost, f.name) for cost in costs) for f in fields(Cost)))


def table(rows: list[Figures]) -> str:
    lines = [
        "| nodes | learners | CPU us/message: push | pop and ack | flow "
        "| wire messages/batch: push | pop and ack | flow "
        "| wire bytes/message: push | pop and ack | flow | cores at rest |",
        "|---" * 12 + "|",
    ]
    for row in rows:
        kinds = (row.push, row.pop, row.flow)
        cells = [str(row.nodes), str(row.learners)]
        cells += [f"{kind.cpu_us:.2f}" for kind in kinds]
        cells += [f"{kind.wire:.1f}" for kind in kinds]
        cells += [f"{kind.bytes:.0f}" for kind in kinds]
        lines.append(f"| {' | '.join([*cells, f'{row.rest_cores:.2f}'])} |")
    return "\n".join(lines)


def verdict(rows: list[Figures]) -> list[str]:
    """Growth against two nodes, and against the smallest size with enough nodes for learners."""
    words = []
    for learners in sorted({row.learners for row in rows}):
        for least in sorted({2, 2 + learners}):
            many = [row for row in rows if row.learners == learners and row.nodes >= least]
            if len(many) > 1:
                words.append(f"{learners} learners, {_growth(many[0], many[1:])}")
    return words


def _growth(base: Figures, larger: list[Figures]) -> str:
    words = []
    for kind in ("push", "pop", "flow"):
        for what in ("cpu_us", "wire"):
            least = getattr(getattr(base, kind), what)
            most = max(getattr(getattr(row, kind), what) for row in larger)
            grown = most / least - 1 if least else 0.0
            flat = "flat" if grown <= FLAT else "NOT flat"
            words.append(f"{kind} {what} {flat} ({grown:+.0%} at most)")
    return f"against {base.nodes} nodes: {', '.join(words)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", default="1,2,4,8,16", help="sizes, with commas")
    parser.add_argument("--learners", default="0,1", help="with so many learners, with commas")
    parser.add_argument("--rate", type=float, default=6, help="batches a second for each node")
    parser.add_argument("--seconds", type=float, default=4, help="of one slice")
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--slices", type=int, default=3, help="of each kind, in one round")
    parser.add_argument("--rounds", type=int, default=3, help="every size is started so often")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    asked = parser.parse_args()
    load = Load(asked.rate, asked.seconds, asked.batch)
    sizes = [
        (nodes, learners)
        for learners in map(int, asked.learners.split(","))
        for nodes in map(int, asked.nodes.split(","))
    ]
    costs: dict[tuple[int, int], dict[str, list[Cost]]] = {size: {} for size in sizes}
    rest: dict[tuple[int, int], list[float]] = {size: [] for size in sizes}
    for number in range(asked.rounds):
        for size in sizes:
            began = time.monotonic()
            for kind, cost, cores in measure(*size, load, asked.slices):
                costs[size].setdefault(kind, []).append(cost)
                rest[size].append(cores)
            took = time.monotonic() - began
            words = f"round {number + 1}: {size[0]} nodes, {size[1]} learners, {took:.0f} s, load"
            print(words, f"{os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    rows = [
        Figures(
            *size,
            len(costs[size]["push"]),
            *(median(costs[size][kind]) for kind in ("push", "pop", "flow")),
            statistics.median(rest[size]),
        )
        for size in sizes
    ]
    print(table(rows))
    print("\n".join(verdict(rows)))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
