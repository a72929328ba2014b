"""The run: per round, floors alternating with latencies, then throughput; finally the medians."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Protocol

from . import floors, latency, memory, workload
from .call_timer import in_turn
from .floors import Floors
from .latency import Latency
from .memory import Memory
from .own_node import OwnNode
from .plan import WARM_UP, BenchPlan
from .workload import Throughput

if TYPE_CHECKING:
    from weft import Client


class Watcher(Protocol):
    """Receives the progress of a run."""

    def phase(self, text: str, total: int | None = None) -> None: ...

    def advance(self, done: int) -> None: ...


@dataclass(frozen=True)
class Round:
    floors: Floors
    latency: Latency
    throughput: Throughput


@dataclass(frozen=True)
class Result:
    """Medians over the rounds."""

    floors: Floors
    latency: Latency
    throughput: Throughput
    memory: Memory | None
    rounds: list[Round]

    @property
    def push_floor_us(self) -> float | None:
        return self.floors.push_us

    @property
    def push_to_floor(self) -> float | None:
        """The median of the per-round ratios; both sides of a ratio are from the same minute."""
        ratios = [
            one.latency.push_us.p50 / one.floors.push_us
            for one in self.rounds
            if one.floors.push_us is not None
        ]
        return median(ratios) if ratios else None


def run(
    plan: BenchPlan, client: Client, servers: str, own: OwnNode | None, watcher: Watcher
) -> Result:
    with folder_of(own) as folder:
        sync = client.status().durability == "disk"
        rounds = [
            _round(plan, client, servers, folder, number, watcher, sync=sync)
            for number in range(1, plan.repeat + 1)
        ]
    held = None
    if plan.ready:
        watcher.phase(f"memory with {plan.ready:,} waiting messages")
        held = _memory(plan, client, servers, own)
    return Result(
        Floors.median([one.floors for one in rounds]),
        Latency.median([one.latency for one in rounds]),
        Throughput.median([one.throughput for one in rounds]),
        held,
        rounds,
    )


def _round(
    plan: BenchPlan,
    client: Client,
    servers: str,
    folder: Path,
    number: int,
    watcher: Watcher,
    *,
    sync: bool,
) -> Round:
    title = f"round {number} of {plan.repeat}: "
    watcher.phase(title + "latency")
    with _queue(client) as name, floors.opened(plan.size, folder, sync=sync) as raw:
        calls = raw | latency.calls(plan.size, client.queue(name))
        taken = in_turn(calls, plan.samples, min(WARM_UP, plan.samples))
    watcher.phase(title + "throughput", plan.messages)
    with _queue(client) as name:
        moved = workload.measure(plan, client, servers, name, watcher.advance)
    return Round(Floors.of(taken), Latency.of(taken), moved)


def _memory(plan: BenchPlan, client: Client, servers: str, own: OwnNode | None) -> Memory:
    if own is not None:
        return memory.measure_own(plan, own, _name())
    with _queue(client) as name:
        return memory.measure_running(plan, client, servers, name)


def _name() -> str:
    return f"weft-bench-{secrets.token_hex(6)}"


@contextmanager
def _queue(client: Client) -> Iterator[str]:
    """A queue for one round, deleted afterwards."""
    name = _name()
    client.create_queue(name)
    try:
        yield name
    finally:
        client.delete_queue(name)


@contextmanager
def folder_of(own: OwnNode | None) -> Iterator[Path]:
    """The folder for disk floors: beside the data of ``own``, or else under the current one."""
    if own is not None:
        yield own.folder
        return
    folder = Path(tempfile.mkdtemp(prefix=".weft-bench-", dir=Path.cwd()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
