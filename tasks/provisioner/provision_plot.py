"""The picture of a provisioner's run: tasks and slots over time, with matplotlib."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from weft.errors import MissingExtra

from .provisioner import ProvisionReport


def check_plot() -> None:
    """Raises MissingExtra before the run, not after."""
    try:
        importlib.import_module("matplotlib")
    except ModuleNotFoundError:
        raise MissingExtra("--plot needs matplotlib: pip install 'weft[models]'") from None


def draw_reports(reports: Sequence[ProvisionReport], path: str) -> None:
    """Writes the picture; the suffix of the path chooses the format."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    began = reports[0].time if reports else 0.0
    x = [each.time - began for each in reports]
    figure, (load, slots) = pyplot.subplots(2, 1, sharex=True, layout="constrained")
    load.step(x, [each.ready for each in reports], where="post", label="waiting")
    load.step(x, [each.running for each in reports], where="post", label="at workers")
    load.set_ylabel("tasks")
    slots.step(x, [each.wanted for each in reports], where="post", label="wanted", linestyle="--")
    slots.step(x, [each.slots for each in reports], where="post", label="slots")
    slots.set_ylabel("slots")
    slots.set_xlabel("time in s")
    for axes in (load, slots):
        axes.set_ylim(bottom=0)
        axes.legend()
    figure.savefig(path)
    pyplot.close(figure)
