"""The result as tables with units and as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from weft.client.cli import output
from weft.proto import wire

from . import plot
from .floors import Floors
from .machine import Machine
from .plan import BenchPlan
from .rounds import Result


@dataclass(frozen=True)
class Report:
    plan: BenchPlan
    machine: Machine
    #: The node's status at the start of the run.
    node: wire.StatusInfo
    own: bool
    servers: str
    result: Result

    def as_json(self) -> dict[str, Any]:
        result = dataclasses.asdict(self.result)
        rounds = result.pop("rounds")
        return {
            "node": node_json(self.node, self.servers, own=self.own),
            "machine": dataclasses.asdict(self.machine),
            "plan": dataclasses.asdict(self.plan),
            **result,
            "push_floor_us": self.result.push_floor_us,
            "push_to_floor": self.result.push_to_floor,
            "rounds": rounds,
        }

    def draw(self, path: str) -> None:
        plot.draw(self, path)

    def show(self) -> None:
        plan = self.plan
        text = (
            f"{plan.messages:,} messages of {plan.size} bytes in batches of {plan.batch:,}, "
            f"{plan.samples:,} timed calls; medians of {plan.repeat}"
        )
        output.facts(setting_rows(self.node, self.machine, self.servers, text, own=self.own))
        output.table(("what", "figure", "unit"), self._figures(), right=("figure",))

    def _figures(self) -> list[tuple[str, str, str]]:
        floors = floor_rows(self.result.floors, self.node)
        return [*floors, *self._throughput(), *self._latency(), *self._memory()]

    def _throughput(self) -> list[tuple[str, str, str]]:
        moved = self.result.throughput
        return [
            ("throughput: pushed, delivered, acked", f"{moved.messages_per_s:,.0f}", "messages/s"),
            ("throughput: wall time", f"{moved.seconds:,.2f}", "s"),
            ("node's CPU", f"{moved.server_cpu_us:,.2f}", "µs/message"),
            ("producer's CPU", f"{moved.producer_cpu_us:,.2f}", "µs/message"),
            ("consumer's CPU", f"{moved.consumer_cpu_us:,.2f}", "µs/message"),
            ("node's writes", f"{moved.commits:,}", "commits"),
        ]

    def _latency(self) -> list[tuple[str, str, str]]:
        rows = [
            (f"{what} {name.replace('p99_9', 'p99.9')}", f"{taken:,.0f}", "µs")
            for what, percentiles in (
                ("push", self.result.latency.push_us),
                ("pop and ack", self.result.latency.pop_ack_us),
            )
            for name, taken in dataclasses.asdict(percentiles).items()
        ]
        put = "synced put" if is_synced(self.node) else "put"
        ratio = self.result.push_to_floor
        rows.append(
            (f"push p50 against 2 round trips + 1 {put}", _or_none(ratio, digits=2), "times")
        )
        return rows

    def _memory(self) -> list[tuple[str, str, str]]:
        held = self.result.memory
        if held is None:
            return []
        rows = [
            ("memory: before", f"{held.rss_before_bytes / 2**20:,.1f}", "MiB"),
            (f"memory: {held.ready:,} waiting", f"{held.rss_after_bytes / 2**20:,.1f}", "MiB"),
            ("memory for each waiting message", f"{held.bytes_per_message:,.1f}", "bytes"),
        ]
        if held.restart_s is not None and held.rss_restarted_bytes is not None:
            rows += [
                ("restart with these messages", f"{held.restart_s:,.2f}", "s"),
                ("start of an empty node", _or_none(held.empty_start_s, digits=2), "s"),
                ("memory after the restart", f"{held.rss_restarted_bytes / 2**20:,.1f}", "MiB"),
            ]
        return rows


def is_synced(node: wire.StatusInfo) -> bool:
    return node.durability == "disk"


def node_json(node: wire.StatusInfo, servers: str, *, own: bool) -> dict[str, Any]:
    return {
        "id": node.node,
        "version": node.version,
        "durability": node.durability,
        "own": own,
        "servers": servers,
    }


def setting_rows(
    node: wire.StatusInfo, machine: Machine, servers: str, plan: str, *, own: bool
) -> list[tuple[str, str]]:
    kept = "fsynced before it is acknowledged" if is_synced(node) else "in the page cache only"
    versions = {"Python": machine.python, **machine.versions}
    return [
        ("node", f"{node.version}, {'started for this run' if own else servers}"),
        ("durability", f"{node.durability}: a write is {kept}"),
        ("plan", plan),
        ("machine", f"{machine.cores} cores, {machine.cpu}, Linux {machine.kernel}"),
        ("load average", " ".join(f"{load:.2f}" for load in machine.load_average)),
        ("versions", ", ".join(f"{name} {number}" for name, number in versions.items())),
    ]


def floor_rows(floors: Floors, node: wire.StatusInfo) -> list[tuple[str, str, str]]:
    put = "LevelDB synced put" if is_synced(node) else "LevelDB put"
    return [
        ("floor: ZeroMQ round trip", f"{floors.zmq_round_trip_us:,.1f}", "µs"),
        (f"floor: {put}", _or_none(floors.leveldb_put_us), "µs"),
        ("floor: append and fdatasync", f"{floors.fdatasync_append_us:,.1f}", "µs"),
    ]


def _or_none(figure: float | None, digits: int = 1) -> str:
    return "not installed" if figure is None else f"{figure:,.{digits}f}"
