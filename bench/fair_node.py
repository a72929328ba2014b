"""The credit scheduler of a real node: shares of saturated queues, and a quiet queue's latency.

The node is saturated by pre-encoded pushes from another process (`fair_sender.py`). The rates are
rates of the node's time: what the node has charged to each queue, compared with weighted max-min
fairness. A latency is the time from a push to its answer; "off" is a node that runs every request
in the round of its arrival.
"""

from __future__ import annotations

import math
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import weft
from weft.models.shares import max_min_rates
from weft.node_process import NodeProcess, free_ports
from weft.testing import cluster

from .fair_sender import Load, run

#: Queues of a configuration.
QUEUES: Final = 10
#: Unanswered pushes of a queue that is to have work all the time.
WINDOW: Final = 200
_SIZES: Final = (500, 30_000)
#: Nodes of the cluster that is flooded.
FLOODED: Final = 3
#: Sizes of the comparison of charges with costs.
COST_SIZES: Final = (500, 3_000, 10_000, 30_000)
#: Pushes per second to the quiet queue.
QUIET_RATE: Final = 100.0
_START_S: Final = 60.0


@contextmanager
def node(*, scheduled: bool = True) -> Iterator[NodeProcess]:
    folder = Path(tempfile.mkdtemp(prefix="weft-fair-"))
    within = () if scheduled else (sys.executable, "-m", "bench.unscheduled_node")
    made = NodeProcess(folder / "node", folder / "log", free_ports(), within=within)
    try:
        made.spawn({"durability": "os"})
        made.await_serving(_START_S)
        yield made
    finally:
        made.kill()
        shutil.rmtree(folder, ignore_errors=True)


def send(address: str, *groups: list[Load], seconds: float) -> list[list[Load]]:
    """Runs the senders, each group of loads in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(groups)) as pool:
        return pool.map(_sent, [(address, loads, seconds) for loads in groups], chunksize=1)


def _sent(task: tuple[str, list[Load], float]) -> list[Load]:
    address, loads, seconds = task
    run(address, loads, seconds)
    return loads


def saturated(configs: int, seconds: float, seed: int) -> list[float]:
    """The error of the rate vector for each random configuration, sorted."""
    rng = random.Random(seed)
    errors = []
    with node() as made, weft.connect(made.grpc) as client:
        for number in range(configs):
            shares = {f"q{number}-{at}": rng.randrange(1, 10) / 50 for at in range(QUEUES)}
            loads = []
            for name, share in shares.items():
                client.create_queue(name, share=share)
                low, high = map(math.log, _SIZES)
                size = int(math.exp(rng.uniform(low, high)))
                loads.append(Load(name, size, window=WINDOW))
            send(made.zmq, loads, seconds=seconds)
            # Charges fade within seconds, so these are mostly of the end of the run.
            used = [client.queue(name).stats().charged_us for name in shares]
            errors.append(error_of(list(shares.values()), [float(each) for each in used]))
            for name in shares:
                client.delete_queue(name)
    return sorted(errors)


def costs(seconds: float) -> list[dict[str, float | str]]:
    """What the node charges for a push, beside what a push costs, relative to each other.

    The cost is measured without the node's charges: while all queues have pushes of one size, each
    push takes an equal part of the time. The charge is of a run in which sizes compete, a queue of
    each. The node may be faster in one run than in another, so parts of the time are compared.
    """
    with node() as made, weft.connect(made.grpc) as client:
        alone = []
        for size in COST_SIZES:
            loads = _queues(client, f"alone-{size}", [size] * len(COST_SIZES))
            (done,) = send(made.zmq, loads, seconds=seconds)
            alone.append(1e6 * seconds / sum(load.done for load in done))
        loads = _queues(client, "mixed", COST_SIZES)
        (done,) = send(made.zmq, loads, seconds=seconds)
        used = [client.queue(load.queue).stats().charged_us for load in done]
    took = [load.done * cost for load, cost in zip(done, alone, strict=True)]
    return [
        {
            "bytes": float(size), "cost us": cost, "part of the time": part / sum(took),
            "charged": charged / sum(used),
            "off": charged / sum(used) / (part / sum(took)) - 1,
        }
        for size, cost, part, charged in zip(COST_SIZES, alone, took, used, strict=True)
    ]  # fmt: skip


def _queues(client: weft.Client, prefix: str, sizes: Sequence[int]) -> list[Load]:
    loads = [
        Load(f"{prefix}-{at}", size, window=WINDOW) for at, size in enumerate(sizes)
    ]  # fmt: skip
    for load in loads:
        client.create_queue(load.queue)
    return loads


def error_of(shares: list[float], used: list[float]) -> float:
    total = sum(used)
    predicted = max_min_rates(shares, [total] * len(shares), total)
    return math.dist(predicted, used) / math.hypot(*used)


def unsaturated(configs: int, seconds: float, seed: int) -> list[float]:
    """Queues that want less than the node can give: the error of served against offered rates."""
    rng = random.Random(seed)
    errors = []
    with node() as made, weft.connect(made.grpc) as client:
        for number in range(configs):
            names = [f"u{number}-{at}" for at in range(QUEUES)]
            loads = []
            for name in names:
                client.create_queue(name, share=rng.randrange(1, 10) / 100)
                loads.append(Load(name, 500, window=WINDOW, rate=rng.uniform(5, 40)))
            (done,) = send(made.zmq, loads, seconds=seconds)
            offered = [load.rate * seconds for load in done]
            served = [float(load.done) for load in done]
            errors.append(math.dist(offered, served) / math.hypot(*offered))
    return sorted(errors)


def quiet(seconds: float) -> list[dict[str, float | str]]:
    """The latency of a quiet queue alone, and beside a noisy one with and without scheduling."""
    rows: list[dict[str, float | str]] = []
    for name, scheduled, noisy in (("alone", True, 0), ("off", False, 1), ("on", True, 1)):
        with node(scheduled=scheduled) as made, weft.connect(made.grpc) as client:
            groups = [[Load("quiet", 1000, rate=QUIET_RATE)]]
            client.create_queue("quiet")
            client.create_queue("noisy")
            if noisy:
                # Batches of a hundred messages, and as many pushes under way as the node answers.
                groups.append([Load("noisy", 1000, count=100, window=WINDOW) for _ in range(4)])
            done = send(made.zmq, *groups, seconds=seconds)
            found = sorted(done[0][0].latencies_s)
            rows.append({
                "scheduling": name,
                "quiet pushes": float(len(found)),
                "noisy pushes": float(sum(load.done for loads in done[1:] for load in loads)),
                "p50 ms": 1e3 * found[len(found) // 2],
                "p90 ms": 1e3 * found[int(0.90 * (len(found) - 1))],
                "p99 ms": 1e3 * found[int(0.99 * (len(found) - 1))],
            })  # fmt: skip
    return rows


def flood(seconds: float) -> list[dict[str, float | str]]:
    """Three nodes, and a flood of one queue through each: changes of the view, suspicions as each
    node sees them, and the latency of pushes to another queue."""
    with cluster(FLOODED) as made, ExitStack() as stack:
        made.settled()
        clients = [
            stack.enter_context(weft.connect([made.node(number).grpc])) for number in range(FLOODED)
        ]
        for name in ("quiet", "noisy"):
            clients[0].create_queue(name)
        before, suspected = clients[0].view().version, 0
        versions, latencies = {before}, []
        with ThreadPoolExecutor(FLOODED) as pool:
            floods = [
                pool.submit(
                    send, made.node(number).zmq, [Load("noisy", 20_000, window=100)],
                    seconds=seconds,
                )
                for number in range(FLOODED)
            ]  # fmt: skip
            while not all(each.done() for each in floods):
                for client in clients:
                    began = time.perf_counter()
                    client.queue("quiet").push(b"x")
                    latencies.append(time.perf_counter() - began)
                    view = client.view()
                    versions.add(view.version)
                    suspected += sum(not each.alive for each in view.nodes)
            pushed = sum(load.done for each in floods for loads in each.result() for load in loads)
        latencies.sort()
    return [{
        "seconds": seconds, "noisy pushes": float(pushed), "quiet pushes": float(len(latencies)),
        "p50 ms": 1e3 * latencies[len(latencies) // 2],
        "p99 ms": 1e3 * latencies[int(0.99 * (len(latencies) - 1))],
        "changes of the view": float(max(versions) - before), "suspicions": float(suspected),
    }]  # fmt: skip
