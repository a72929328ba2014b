"""The result of `weft bench --kv` as tables with units, as JSON, and as a plot."""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import Any, Final

from weft.client.cli import output
from weft.proto import wire

from .machine import Machine
from .plan import BenchPlan
from .report import floor_rows, node_json, setting_rows
from .table_phases import BATCHES_IN_FLIGHT, IN_FLIGHT, INSERT, INSERT_MANY, LOOKUP, LOOKUP_MANY
from .table_rounds import CLIENTS, TableFigures

_TITLES: Final = {
    INSERT_MANY: f"insert_many, {BATCHES_IN_FLIGHT} in flight per client",
    LOOKUP_MANY: f"lookup_many, {BATCHES_IN_FLIGHT} in flight per client",
    INSERT: f"insert, {IN_FLIGHT} in flight per client",
    LOOKUP: f"lookup, {IN_FLIGHT} in flight per client",
}


@dataclass(frozen=True)
class TableReport:
    plan: BenchPlan
    machine: Machine
    #: The node's status at the start of the run.
    node: wire.StatusInfo
    own: bool
    servers: str
    result: TableFigures

    def as_json(self) -> dict[str, Any]:
        result = dataclasses.asdict(self.result)
        return {
            "node": node_json(self.node, self.servers, own=self.own),
            "machine": dataclasses.asdict(self.machine),
            "plan": dataclasses.asdict(self.plan) | {"clients": CLIENTS, "in_flight": IN_FLIGHT},
            **result,
        }

    def show(self) -> None:
        plan = self.plan
        text = (
            f"{plan.messages:,} keys with values of {plan.size} bytes, {CLIENTS} client processes, "
            f"{plan.batch:,} keys a batch, {plan.samples:,} timed calls; medians of {plan.repeat}"
        )
        output.facts(setting_rows(self.node, self.machine, self.servers, text, own=self.own))
        output.table(("what", "figure", "unit"), self._figures(), right=("figure",))

    def _figures(self) -> list[tuple[str, str, str]]:
        rows = floor_rows(self.result.floors, self.node)
        for name, title in _TITLES.items():
            rate = self.result.rates[name]
            rows.append((title, f"{rate.keys_per_s:,.0f}", "keys/s"))
            rows.append(("  node's CPU", f"{rate.server_cpu_us:,.2f}", "µs/key"))
            rows.append(("  clients' CPU", f"{rate.client_cpu_us:,.2f}", "µs/key"))
        for name, percentiles in self.result.latency_us.items():
            rows += [
                (f"{name} {rank.replace('p99_9', 'p99.9')}", f"{taken:,.0f}", "µs")
                for rank, taken in dataclasses.asdict(percentiles).items()
            ]
        return rows

    def draw(self, path: str) -> None:
        importlib.import_module("matplotlib").use("Agg")
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
        rates = self.result.rates
        bars = left.bar(list(rates), [rate.keys_per_s for rate in rates.values()])
        left.bar_label(bars, fmt="{:,.0f}")
        left.set(ylabel="keys/s", yscale="log", title=f"{CLIENTS} client processes")
        for name, percentiles in self.result.latency_us.items():
            figures = dataclasses.asdict(percentiles)
            ranks = [rank.replace("p99_9", "p99.9") for rank in figures]
            right.plot(ranks, list(figures.values()), marker="o", label=name)
        right.set(ylabel="µs", yscale="log", title="one synchronous caller")
        right.legend()
        figure.suptitle(
            f"weft {self.node.version}, the table, durability {self.node.durability}, "
            f"{self.plan.size}-byte values, {self.machine.cores} cores"
        )
        figure.savefig(path, dpi=120)
        pyplot.close(figure)
