"""Transactions on one node with fsync: their time beside an ack's, and a stream of them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any, Final

import weft
from weft.testing import cluster

BODY: Final = bytes(128)
BATCH: Final = 1_000
#: Threads of the stream: while one waits for its sync, the others work.
CONSUMERS: Final = 4


def measure(scale: float) -> dict[str, Any]:
    with cluster(1, durability="disk") as nodes, weft.connect(nodes.servers) as client:
        for name in ("in", "out"):
            client.create_queue(name)
        acks, commits = paired(client, max(20, int(400 * scale)))
        rate = stream(client, max(4, int(100 * scale)))
        return {
            "ack_p50_ms": round(acks * 1000, 3),
            "commit_p50_ms": round(commits * 1000, 3),
            "commit_over_ack": round(commits / acks, 3),
            "consume_transform_produce_per_s": round(rate),
        }


def paired(client: weft.Client, times: int) -> tuple[float, float]:
    """Medians of an ack, and of a transaction of an ack and a push, in turns."""
    source = client.queue("in")
    source.push_many([BODY] * 2 * times)
    acks, commits = [], []
    for number in range(2 * times):
        message = source.pop(wait_ms=10_000)
        assert message is not None
        began = time.perf_counter()
        if number % 2:
            message.ack()
            acks.append(time.perf_counter() - began)
        else:
            with client.transaction() as tx:
                tx.ack(message)
                tx.push("out", BODY)
            commits.append(time.perf_counter() - began)
    return median(acks), median(commits)


def stream(client: weft.Client, batches: int) -> float:
    """Messages a second: popped, transformed, pushed on and acknowledged, 1,000 at a time."""
    source = client.queue("in")
    for _ in range(batches):
        source.push_many([BODY] * BATCH)

    def transform() -> int:
        done = 0
        while messages := source.pop_many(BATCH):
            for lot in weft.lots(messages):
                with client.transaction() as tx:
                    tx.ack_many(lot)
                    tx.push_many("out", [message.body for message in lot])
                done += len(lot)
        return done

    with ThreadPoolExecutor(CONSUMERS) as pool:
        began = time.perf_counter()
        done = sum(each.result() for each in [pool.submit(transform) for _ in range(CONSUMERS)])
        return done / (time.perf_counter() - began)
