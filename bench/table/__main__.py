"""The hash table beside Redis and etcd, in one run: ``python -m bench.table``.

Two client processes insert and look up all keys in batches, and a tenth of the keys by single calls
with 128 in flight; one more client times single calls. The systems take turns in every round, and
the table shows medians over the rounds. All data is deleted with its folder. A system that is not
installed is named and skipped; as root on Debian the benchmark installs it, unless --no-fetch.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench.peers.fetch import Missing
from bench.peers.process import ServerFailed
from bench.peers.server import Server
from weft.client.cli.bench.child import Child
from weft.client.cli.bench.latency import Percentiles
from weft.client.cli.bench.table_phases import INSERT, LOOKUP, PHASES, TableTask
from weft.client.cli.bench.table_rounds import CLIENTS, SINGLES_SHARE, rate_of

from .systems import ALL, BY_NAME, System

WORKER = "bench.table.worker"
#: The paper's ZHT, operations per second of a node (figures of chapter 2).
ZHT_PER_S = 12_700


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.table", description=__doc__)
    parser.add_argument("--systems", default=",".join(each.name for each in ALL),
                        help="names, comma-separated (default: %(default)s)")  # fmt: skip
    parser.add_argument("--keys", type=int, default=100_000, help="of all clients (100,000)")
    parser.add_argument("--size", type=int, default=128, help="bytes of a value (128)")
    parser.add_argument("--batch", type=int, default=1000, help="keys of a batch (1,000)")
    parser.add_argument("--rounds", type=int, default=3, help="medians over so many (3)")
    parser.add_argument("--samples", type=int, default=1000, help="timed calls (1,000)")
    parser.add_argument("--no-fetch", action="store_true", help="install nothing")
    parser.add_argument("--json", type=Path, help="write the figures of every round here, too")
    asked = parser.parse_args()
    names = asked.systems.split(",")
    if unknown := [name for name in names if name not in BY_NAME]:
        parser.error(f"no system {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    if min(asked.keys, asked.batch, asked.rounds, asked.samples) < 1 or asked.size < 0:
        parser.error("keys, batch, rounds and samples are 1 or more, the size is 0 or more")
    # The worker processes import this package from here.
    root, known = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *([known] if known else [])])
    with tempfile.TemporaryDirectory(prefix=".weft-bench-", dir=".") as folder, ExitStack() as ends:
        servers: dict[str, Server] = {}
        for system in (BY_NAME[name] for name in names):
            try:
                system.install(may_fetch=not asked.no_fetch)
                place = Path(folder).absolute() / system.name
                place.mkdir()
                server = ends.enter_context(system.server(place))
                server.start()
                servers[system.name] = server
            except (Missing, ServerFailed) as why:
                print(f"left out: {system.name}: {why}", file=sys.stderr)
        results: dict[str, list[dict[str, Any]]] = {name: [] for name in servers}
        for number in range(asked.rounds):
            for name, server in servers.items():
                print(f"round {number + 1} of {asked.rounds}: {name}", file=sys.stderr)
                results[name].append(_round(BY_NAME[name], server, asked))
        versions = {name: server.version() for name, server in servers.items()}
    print(_markdown(results, versions, asked))
    if asked.json:
        asked.json.write_text(json.dumps({"versions": versions, "rounds": results}, indent=1))
    return 0 if results else 1


def _round(system: System, server: Server, asked: argparse.Namespace) -> dict[str, Any]:
    """Keys per second of each phase, p50 of single calls, and the servers' CPU per key."""
    keys = max(1, asked.keys // CLIENTS)
    common = {"system": system.name, "address": server.address}
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        children = []
        token = secrets.token_hex(4)
        for number in range(CLIENTS):
            singles = max(1, keys // SINGLES_SHARE)
            task = TableTask("", f"{token}/{number}", keys, singles, asked.size, asked.batch)
            told = common | {"task": msgspec.to_builtins(task)}
            children.append(stack.enter_context(Child(WORKER, told)))
        for phase in PHASES:
            for child in children:
                child.read()
            before = server.usage().cpu_s
            for child in children:
                child.go()
            ends = [child.read() for child in children]
            rate = rate_of(ends, int((server.usage().cpu_s - before) * 1e6))
            found[phase] = rate.keys_per_s
            found[f"{phase} server us"] = rate.server_cpu_us
    with Child(WORKER, common | {"samples": asked.samples, "size": asked.size}) as child:
        child.read()
        child.go()
        taken = child.read()
        for name in (INSERT, LOOKUP):
            found[f"{name} p50"] = Percentiles.of(taken[name]).p50
    return found


def _markdown(
    results: dict[str, list[dict[str, Any]]], versions: dict[str, str], asked: argparse.Namespace
) -> str:
    head = ("insert_many, keys/s", "lookup_many, keys/s", "insert, /s", "lookup, /s",
            "insert p50, µs", "lookup p50, µs")  # fmt: skip
    keys = (*PHASES, f"{INSERT} p50", f"{LOOKUP} p50")
    lines = [
        f"{asked.keys:,} keys, values of {asked.size} bytes, batches of {asked.batch:,}, "
        f"{CLIENTS} client processes; medians of {asked.rounds}. ZHT in paper 4: {ZHT_PER_S:,} "
        "operations/s a node.",
        "",
        f"| system | a confirmed write is | {' | '.join(head)} |",
        "|---" * (len(head) + 2) + "|",
    ]
    for name, rounds in results.items():
        figures = [f"{median(one[key] for one in rounds):,.0f}" for key in keys]
        durability = BY_NAME[name].durability
        lines.append(f"| {name} ({versions[name]}) | {durability} | {' | '.join(figures)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
