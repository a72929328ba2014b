"""A grouped queue beside a plain one: CPU time and throughput of pushes, pops and acks in batches.

    python -m bench.grouped --groups 1000 --messages 200000

Rounds with the plain queue and with the grouped one take turns. A round pushes batches of 1,000
messages, then pops and acks all of them. A batch has `--per-batch` groups, in turn; batches of one
group are what a producer sends that collects the messages of each key. The bound is on CPU time of
node and client for each message, because clocks depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Final

import weft
from weft.testing import cluster

from .single import cpu_s

BATCH: Final = 1_000
BODY: Final = b"x" * 100
#: Of the throughput of a plain queue.
BOUND: Final = 0.5


def measure(messages: int, groups: int, per_batch: int, rounds: int) -> dict[str, float]:
    """Medians: microseconds for each message, and the ratios plain / grouped."""
    with cluster(nodes=1) as made, made.client() as client:
        pid = made.node(0).pid
        plain, grouped = client.queue("plain"), client.queue("grouped")
        client.create_queue("plain")
        client.create_queue("grouped", grouped=True)
        names = _batches_of_groups(groups, per_batch)
        work: dict[str, Callable[[], object]] = {
            "plain": lambda: plain.push_many([BODY] * BATCH),
            "grouped": lambda: grouped.push_many([BODY] * BATCH, groups=next(names)),
        }
        found: dict[str, list[float]] = {}
        for number in range(rounds + 1):
            for name, push in work.items():
                used = _round(client.queue(name), push, messages, pid)
                for what, value in used.items() if number else ():  # the first one warms up
                    found.setdefault(f"{name} {what}", []).append(value)
    medians = {name: statistics.median(values) for name, values in found.items()}
    for what in ("cpu", "wall"):
        medians[f"{what} ratio"] = medians[f"plain {what} us"] / medians[f"grouped {what} us"]
    return medians


def _round(
    queue: weft.Queue, push: Callable[[], object], messages: int, pid: int
) -> dict[str, float]:
    node, client, began = cpu_s(pid), time.process_time(), time.monotonic()
    for _ in range(messages // BATCH):
        push()
    left = messages // BATCH * BATCH
    while left:
        batch = queue.pop_many(BATCH, wait_ms=1_000)
        queue.ack_many(batch)
        left -= len(batch)
    each = 1e6 / messages
    used = cpu_s(pid) - node, time.process_time() - client
    return {
        "node us": used[0] * each,
        "cpu us": sum(used) * each,
        "wall us": (time.monotonic() - began) * each,
    }


def _batches_of_groups(groups: int, per_batch: int) -> Iterator[list[str]]:
    names = itertools.cycle(f"group-{number}" for number in range(groups))
    while True:
        some = list(itertools.islice(names, per_batch))
        yield [some[index * per_batch // BATCH] for index in range(BATCH)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000, help="in each round")
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--per-batch", type=int, default=1, help="groups in a batch of 1,000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if not (1 <= asked.per_batch <= BATCH and asked.groups > 0 < asked.rounds):
        parser.error("--per-batch is 1 to 1,000; --groups and --rounds are at least 1")
    if asked.messages < BATCH:
        parser.error(f"--messages is at least {BATCH}")
    found = measure(asked.messages, asked.groups, asked.per_batch, asked.rounds)
    if asked.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:16} {value:10.3f}")
    return 0 if found["cpu ratio"] >= BOUND else 1


if __name__ == "__main__":
    raise SystemExit(main())
