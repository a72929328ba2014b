"""The result, for people and as JSON. Every figure has its unit."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from weft.client.cli import output
from weft.proto import wire

from .machine import Machine
from .plan import BenchPlan
from .rounds import Result


@dataclass(frozen=True)
class Report:
    plan: BenchPlan
    machine: Machine
    #: The node's figures when the run began.
    node: wire.StatusInfo
    own: bool
    servers: str
    result: Result

    def as_json(self) -> dict[str, Any]:
        result = dataclasses.asdict(self.result)
        rounds = result.pop("rounds")
        return {
            "node": {
                "id": self.node.node,
                "version": self.node.version,
                "durability": self.node.durability,
                "own": self.own,
                "servers": self.servers,
            },
            "machine": dataclasses.asdict(self.machine),
            "plan": dataclasses.asdict(self.plan),
            **result,
            "push_floor_us": self.result.push_floor_us,
            "push_to_floor": self.result.push_to_floor,
            "rounds": rounds,
        }

    def show(self) -> None:
        output.facts(self._setting())
        output.table(("what", "figure", "unit"), self._figures(), right=("figure",))

    def _setting(self) -> list[tuple[str, str]]:
        machine, plan = self.machine, self.plan
        kept = "fsynced before it is acknowledged" if self.synced else "in the page cache only"
        owner = "its own, started for this run" if self.own else self.servers
        return [
            ("node", f"{self.node.version}, {owner}"),
            ("durability", f"{self.node.durability}: a push is {kept}"),
            (
                "plan",
                f"{plan.messages:,} messages of {plan.size} bytes in batches of {plan.batch:,}, "
                f"{plan.samples:,} timed calls; medians of {plan.repeat}",
            ),
            ("machine", f"{machine.cores} cores, {machine.cpu}, Linux {machine.kernel}"),
            ("load average", " ".join(f"{load:.2f}" for load in machine.load_average)),
            (
                "versions",
                ", ".join(
                    f"{name} {number}"
                    for name, number in {"Python": machine.python, **machine.versions}.items()
                ),
            ),
        ]

    @property
    def synced(self) -> bool:
        return self.node.durability == "disk"

    def _figures(self) -> list[tuple[str, str, str]]:
        return [*self._floors(), *self._throughput(), *self._latency(), *self._memory()]

    def _floors(self) -> list[tuple[str, str, str]]:
        floors = self.result.floors
        put = "LevelDB synced put" if self.synced else "LevelDB put"
        return [
            ("floor: ZeroMQ round trip", f"{floors.zmq_round_trip_us:,.1f}", "µs"),
            (f"floor: {put}", _or_none(floors.leveldb_put_us), "µs"),
            ("floor: append and fdatasync", f"{floors.fdatasync_append_us:,.1f}", "µs"),
        ]

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
        put = "synced put" if self.synced else "put"
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
                ("restart with them", f"{held.restart_s:,.2f}", "s"),
                ("start of an empty node", _or_none(held.empty_start_s, digits=2), "s"),
                ("memory after the restart", f"{held.rss_restarted_bytes / 2**20:,.1f}", "MiB"),
            ]
        return rows


def _or_none(figure: float | None, digits: int = 1) -> str:
    return "not installed" if figure is None else f"{figure:,.{digits}f}"
