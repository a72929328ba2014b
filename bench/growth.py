"""The cost of growth: what a message costs in a cluster of 1, 2, 4, 8, 16 real nodes.

    python bench/growth.py [--nodes 1,2,4,8,16] [--messages 200000] [--batch 1000] [--json FILE]

All nodes run on this machine, so this says nothing about throughput: it counts. For each size the
cluster is started and let settle; then the same messages are pushed, popped and acked through one
Python client, and three things are read before and after: the CPU time of all node processes, what
nodes have said to each other (messages and bytes), and how many calls the client made. What the
cluster spends on itself (pings, plans) is measured over the same time without load, and taken off.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import weft
from weft.testing import Cluster, cluster

QUEUE = "growth"


@dataclass
class Used:
    """What a cluster has used up so far."""

    cpu_us: float
    messages: int
    bytes: int
    at: float

    def since(self, before: Used) -> Used:
        return Used(
            self.cpu_us - before.cpu_us,
            self.messages - before.messages,
            self.bytes - before.bytes,
            self.at - before.at,
        )


@dataclass
class Cost:
    """For one size of cluster: CPU and bytes per message, messages on the wire per batch."""

    nodes: int
    messages: int
    push_cpu_us: float
    pop_cpu_us: float
    push_wire: float
    pop_wire: float
    wire_bytes: float
    idle_cpu_share: float
    seconds: float


def cpu_us(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def used(made: Cluster, nodes: int) -> Used:
    statuses = []
    for number in range(nodes):
        with weft.connect(made.node(number).grpc) as client:
            statuses.append(client.status())
    return Used(
        sum(cpu_us(made.node(number).pid) for number in range(nodes)),
        sum(status.peer_messages for status in statuses),
        sum(status.peer_bytes for status in statuses),
        time.monotonic(),
    )


def batches(messages: int, size: int) -> Iterator[list[bytes]]:
    body = b"x" * 128
    for first in range(0, messages, size):
        yield [body] * min(size, messages - first)


def measure(nodes: int, messages: int, batch: int) -> Cost:
    began = time.monotonic()
    with cluster(nodes, durability="os") as made:
        if nodes > 1:
            made.settled(180)
        with weft.connect(made.servers) as client:
            client.create_queue(QUEUE)
            queue = client.queue(QUEUE)
            for bodies in batches(10 * batch, batch):  # connections, caches, first looks
                queue.push_many(bodies)
            while got := queue.pop_many(batch):
                queue.ack_many(got)
            resting = used(made, nodes)
            time.sleep(5)
            idle = used(made, nodes).since(resting)

            before = used(made, nodes)
            for bodies in batches(messages, batch):
                queue.push_many(bodies)
            pushed = used(made, nodes)
            left = messages
            while left:
                got = queue.pop_many(batch, wait_ms=1000)
                queue.ack_many(got)
                left -= len(got)
            popped = used(made, nodes)
    push, pop = pushed.since(before), popped.since(pushed)
    count = -(-messages // batch)
    return Cost(
        nodes, messages,
        (push.cpu_us - idle.cpu_us * push.at / idle.at) / messages,
        (pop.cpu_us - idle.cpu_us * pop.at / idle.at) / messages,
        (push.messages - idle.messages * push.at / idle.at) / count,
        (pop.messages - idle.messages * pop.at / idle.at) / count,
        (push.bytes + pop.bytes - idle.bytes * (push.at + pop.at) / idle.at) / messages,
        idle.cpu_us / 1e6 / idle.at,
        time.monotonic() - began,
    )  # fmt: skip


def table(costs: list[Cost]) -> str:
    lines = [
        "| nodes | CPU us/message, push | pop and ack | wire messages/batch, push | pop and ack | "
        "bytes on the wire/message | cores used at rest |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {c.nodes} | {c.push_cpu_us:.2f} | {c.pop_cpu_us:.2f} | {c.push_wire:.1f} | "
        f"{c.pop_wire:.1f} | {c.wire_bytes:.0f} | {c.idle_cpu_share:.2f} |"
        for c in costs
    ]
    return "\n".join(lines)


def verdict(costs: list[Cost]) -> str:
    """Flat within 15 % from two nodes on?"""
    many = [cost for cost in costs if cost.nodes >= 2]
    if len(many) < 2:
        return "one size alone says nothing of growth"
    words = []
    for name in ("push_cpu_us", "pop_cpu_us", "push_wire", "pop_wire"):
        values = [getattr(cost, name) for cost in many]
        middle = statistics.median(values)
        spread = max(abs(value / middle - 1) for value in values) if middle else 0.0
        words.append(f"{name} {'flat' if spread <= 0.15 else 'not flat'} ({spread:+.0%} at most)")
    return "from two nodes on: " + ", ".join(words)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", default="1,2,4,8,16", help="sizes, with commas")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    asked = parser.parse_args()
    costs = []
    for nodes in map(int, asked.nodes.split(",")):
        print(f"{nodes} nodes ...", file=sys.stderr, flush=True)
        costs.append(measure(nodes, asked.messages, asked.batch))
    print(table(costs))
    print(verdict(costs))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    if asked.json:
        asked.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
