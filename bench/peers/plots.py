"""The plots of a run: throughput, latency curves, processor time per message."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Final

from .result import FLOOR, Results
from .workloads import BY_NAME as WORKLOADS

#: Workload and figure of each bar chart of rates.
_RATES: Final = (
    ("W1", "rate"), ("W2", "push_rate"), ("W2", "pop_rate"), ("W5", "rate"), ("W6", "rate"),
    ("W8", "rate"),
)  # fmt: skip


def why_none() -> str:
    """The reason why `draw` drew no plot."""
    if importlib.util.find_spec("matplotlib") is None:
        return "matplotlib is not installed"
    return "these workloads have none"


def draw(results: Results, folder: Path) -> list[Path]:
    """Draws the plots that have data; none without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    made = []
    for name, has, paint in (
        ("throughput", any(results.systems(each) for each, _ in _RATES), _throughput),
        ("latency", bool(results.systems("W3")), _latency),
        ("cpu", bool(results.systems("W1")), _cpu),
    ):
        if has:
            figure = paint(pyplot, results)
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=100)
            pyplot.close(figure)
            made.append(path)
    return made


def _throughput(pyplot: Any, results: Results) -> Any:
    shown = [(name, figure) for name, figure in _RATES if results.systems(name)]
    size = (11, 3.2 * len(shown))
    figure, panes = pyplot.subplots(
        len(shown), 1, figsize=size, layout="constrained", squeeze=False
    )
    for (name, rate), pane in zip(shown, panes[:, 0], strict=True):
        systems, spreads = [], []
        for system in results.systems(name):
            spread = results.spread(name, system, rate)
            if spread is not None:
                systems.append(system)
                spreads.append(spread)
        medians = [each.median for each in spreads]
        errors = [
            [each.median - each.low for each in spreads],
            [each.high - each.median for each in spreads],
        ]
        pane.barh(systems, medians, xerr=errors, color=[_colour(each) for each in systems])
        pane.invert_yaxis()
        what = rate.replace("_", " ")
        pane.set(xlabel="messages/s", xscale="log")
        pane.set_title(f"{name} ({what}): {WORKLOADS[name].title}", fontsize=9)
    return figure


def _latency(pyplot: Any, results: Results) -> Any:
    figure, panes = pyplot.subplots(1, 2, figsize=(13, 5), layout="constrained")
    for what, pane in zip(("push", "pop_ack"), panes, strict=True):
        for system in results.systems("W3"):
            if system == FLOOR:
                continue
            taken = sorted(
                sample
                for measurement in results.of("W3", system)
                for sample in measurement.samples[what]
            )
            shares = [(number + 1) / len(taken) for number in range(len(taken))]
            width = 2.4 if system.startswith("weft") else 1.2
            pane.plot(taken, shares, label=system, linewidth=width)
        title = "push" if what == "push" else "pop and ack"
        pane.set(xscale="log", xlabel="µs", ylabel="share of calls", title=f"W3: {title}")
        pane.grid(visible=True, alpha=0.3)
    panes[0].legend(fontsize=8)
    return figure


def _cpu(pyplot: Any, results: Results) -> Any:
    figure, pane = pyplot.subplots(figsize=(11, 4), layout="constrained")
    systems = results.systems("W1")
    left = [0.0] * len(systems)
    for figure_name, title in (("server_cpu_us", "server"), ("client_cpu_us", "clients")):
        spreads = [results.spread("W1", system, figure_name) for system in systems]
        values = [each.median if each is not None else 0.0 for each in spreads]
        pane.barh(systems, values, left=left, label=title)
        left = [start + value for start, value in zip(left, values, strict=True)]
    pane.invert_yaxis()
    pane.set(xlabel="processor time, µs/message", xscale="symlog", title="W1: CPU for each message")
    pane.legend()
    return figure


def _colour(system: str) -> str:
    return "tab:orange" if system.startswith("weft") else "tab:blue"
