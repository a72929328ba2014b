"""`weft bench --kv`: floors in turn with latencies, then all phases; medians over the rounds."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft import limits

from . import floors
from .call_timer import Call, in_turn
from .child import Child
from .floors import Floors
from .latency import Percentiles
from .own_node import OwnNode
from .plan import WARM_UP, BenchPlan
from .rounds import Watcher, folder_of
from .table_phases import INSERT, LOOKUP, PHASES, TableTask

if TYPE_CHECKING:
    from weft import Client

#: Client processes. One is limited by its own processor time before the node is.
CLIENTS: Final = 2
#: One in so many keys is written and read by a call of its own as well.
SINGLES_SHARE: Final = 10


@dataclass(frozen=True)
class Rate:
    """One phase. CPU times are microseconds per key."""

    keys_per_s: float
    server_cpu_us: float
    client_cpu_us: float

    @classmethod
    def median(cls, rates: Sequence[Rate]) -> Rate:
        return cls(
            median(one.keys_per_s for one in rates),
            median(one.server_cpu_us for one in rates),
            median(one.client_cpu_us for one in rates),
        )


@dataclass(frozen=True)
class TableRound:
    floors: Floors
    #: By operation: `insert` and `lookup`, one synchronous caller.
    latency_us: dict[str, Percentiles]
    #: By phase.
    rates: dict[str, Rate]


@dataclass(frozen=True)
class TableFigures:
    """Medians over the rounds."""

    floors: Floors
    latency_us: dict[str, Percentiles]
    rates: dict[str, Rate]
    rounds: list[TableRound]


def run(
    plan: BenchPlan, client: Client, servers: str, own: OwnNode | None, watcher: Watcher
) -> TableFigures:
    with folder_of(own) as folder:
        sync = client.status().durability == "disk"
        rounds = []
        for number in range(1, plan.repeat + 1):
            title = f"round {number} of {plan.repeat}: "
            watcher.phase(title + "latency")
            with _key(client) as key, floors.opened(plan.size, folder, sync=sync) as raw:
                calls = raw | _calls(client, key, plan.size)
                taken = in_turn(calls, plan.samples, min(WARM_UP, plan.samples))
            latency = {name: Percentiles.of(taken[name]) for name in (INSERT, LOOKUP)}
            rates = _rates(plan, client, servers, lambda name: watcher.phase(title + name))  # noqa: B023
            rounds.append(TableRound(Floors.of(taken), latency, rates))
    return TableFigures(
        Floors.median([one.floors for one in rounds]),
        {
            name: Percentiles.median([one.latency_us[name] for one in rounds])
            for name in (INSERT, LOOKUP)
        },
        {name: Rate.median([one.rates[name] for one in rounds]) for name in PHASES},
        rounds,
    )


def _rates(
    plan: BenchPlan, client: Client, servers: str, on_phase: Callable[[str], None]
) -> dict[str, Rate]:
    """Runs all phases in all client processes; a phase begins when every client is ready."""
    keys = max(1, plan.messages // CLIENTS)
    singles = max(1, keys // SINGLES_SHARE)
    rates: dict[str, Rate] = {}
    with ExitStack() as stack:
        prefix = stack.enter_context(_prefix(client))
        children = []
        for number in range(CLIENTS):
            task = TableTask(servers, f"{prefix}{number}", keys, singles, plan.size, plan.batch)
            child = Child("weft.client.cli.bench.table_worker", msgspec.to_builtins(task))
            children.append(stack.enter_context(child))
        for name in PHASES:
            for child in children:
                child.read()
            on_phase(name)
            before = client.status().cpu_us
            for child in children:
                child.go()
            ends = [child.read() for child in children]
            rates[name] = rate_of(ends, client.status().cpu_us - before)
    return rates


def rate_of(ends: Sequence[dict[str, Any]], server_cpu_us: int) -> Rate:
    count = sum(end["keys"] for end in ends)
    taken_ns = max(end["end_ns"] for end in ends) - min(end["start_ns"] for end in ends)
    client_cpu_us = sum(end["cpu_us"] for end in ends)
    return Rate(count / (taken_ns / 1e9), server_cpu_us / count, client_cpu_us / count)


def _calls(client: Client, key: str, size: int) -> dict[str, Call]:
    value = os.urandom(size)
    return {
        INSERT: lambda: client.kv.insert(key, value),
        LOOKUP: lambda: client.kv.lookup(key),
    }


@contextmanager
def _prefix(client: Client) -> Iterator[str]:
    """The start of the keys of one run, which are removed afterwards."""
    prefix, more = f"weft-bench-{secrets.token_hex(6)}/", True
    try:
        yield prefix
    finally:
        while more:
            page = client.kv.scan(prefix, limit=limits.TABLE_SCAN_MAX)
            client.kv.remove_many([entry.key for entry in page])
            more = page.more


@contextmanager
def _key(client: Client) -> Iterator[str]:
    key = f"weft-bench-{secrets.token_hex(6)}"
    try:
        yield key
    finally:
        client.kv.remove(key)
