"""A chart as data, and its drawing with matplotlib (the extra `models`).

Charts are computed without matplotlib, so that their values can be tested and printed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one label; `simulated` points are drawn as markers."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    simulated: bool = False
    #: The number of the curve's colour; simulation and model of the same case share it.
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """One pair of axes, with units in the labels."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    x_log: bool = False
    y_log: bool = False
    y_min: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """Groups of bars: one group per name, one bar per series."""

    title: str
    y_label: str
    names: tuple[str, ...]
    series: dict[str, tuple[float, ...]]


def require_matplotlib() -> None:
    """Raises ModuleNotFoundError before a long run instead of after it."""
    importlib.import_module("matplotlib")


def draw(picture: Chart | Bars, path: str | Path) -> None:
    """Writes a picture; the suffix of the path selects the format."""
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    try:
        if isinstance(picture, Chart):
            _draw_chart(axes, picture)
        else:
            _draw_bars(axes, picture)
        axes.grid(alpha=0.3)
        # Beside the axes: it must not hide points.
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
        figure.savefig(path, dpi=110)
    finally:
        pyplot.close(figure)


def _draw_chart(axes: Any, chart: Chart) -> None:
    ticker: Any = importlib.import_module("matplotlib.ticker")
    for curve in chart.curves:
        style: dict[str, Any] = {"color": f"C{curve.colour}", "label": curve.label}
        if curve.simulated:
            style |= {"linestyle": "none", "marker": "o", "markersize": 4}
        elif curve.dashed:
            style |= {"linestyle": "--"}
        axes.plot(curve.x, curve.y, **style)
    axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
    for log, name, axis in ((chart.x_log, "x", axes.xaxis), (chart.y_log, "y", axes.yaxis)):
        if log:
            getattr(axes, f"set_{name}scale")("log")
            # Plain numbers; the formatter itself decides which minor ticks have room for one.
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(ticker.LogFormatter())
    if chart.y_min is not None:
        axes.set_ylim(bottom=chart.y_min)


def _draw_bars(axes: Any, bars: Bars) -> None:
    width = 0.8 / len(bars.series)
    for at, (label, values) in enumerate(bars.series.items()):
        places = [number + at * width for number in range(len(bars.names))]
        axes.bar(places, values, width, label=label)
    middle = width * (len(bars.series) - 1) / 2
    axes.set_xticks([number + middle for number in range(len(bars.names))], bars.names)
    axes.set(title=bars.title, ylabel=bars.y_label)
