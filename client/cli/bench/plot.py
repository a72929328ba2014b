"""A plot of the result: throughput per round, and latencies with the floor."""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

from weft.errors import MissingExtra

if TYPE_CHECKING:
    from .report import Report


def check() -> None:
    """Raises MissingExtra before a long run instead of after it."""
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise MissingExtra("--plot needs matplotlib: pip install matplotlib") from None


def draw(report: Report, path: str) -> None:
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    _throughput(left, report)
    _latency(right, report)
    figure.suptitle(
        f"weft {report.node.version}, durability {report.node.durability}, "
        f"{report.plan.size}-byte messages, {report.machine.cores} cores"
    )
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _throughput(axes: Any, report: Report) -> None:
    rates = [one.throughput.messages_per_s for one in report.result.rounds]
    axes.bar([str(number) for number in range(1, len(rates) + 1)], rates)
    axes.axhline(report.result.throughput.messages_per_s, linestyle="--", label="median")
    axes.set(xlabel="round", ylabel="messages/s", title="pushed, delivered and acked")
    axes.legend()


def _latency(axes: Any, report: Report) -> None:
    latency = report.result.latency
    for name, taken in (("push", latency.push_us), ("pop and ack", latency.pop_ack_us)):
        figures = dataclasses.asdict(taken)
        names = [key.replace("p99_9", "p99.9") for key in figures]
        axes.plot(names, list(figures.values()), marker="o", label=name)
    if report.result.push_floor_us is not None:
        axes.axhline(report.result.push_floor_us, linestyle="--", label="2 round trips + 1 put")
    axes.set(ylabel="µs", yscale="log", title="one synchronous caller")
    axes.legend()
