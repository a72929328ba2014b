"""A plot of the soak: each process's memory and descriptors over time, with the events.

``python -m tests.chaos.soak_plot FILE PNG`` plots the JSON file of a soak.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from .samples import Sample, buffer_factor

_COLOURS: Final = {
    "kill": "tab:red",
    "pause": "tab:orange",
    "join": "tab:green",
    "leave": "tab:blue",
}


def draw(found: dict[str, Any], path: Path) -> None:
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, (memory, fds) = pyplot.subplots(
        2, 1, figsize=(11, 7), sharex=True, layout="constrained"
    )
    lives: dict[tuple[str, int], list[list[Any]]] = {}
    for sample in found["samples"]:
        lives.setdefault((sample[1], sample[2]), []).append(sample)
    factor = buffer_factor(msgspec.convert(found["samples"], list[Sample]))
    groups = sorted({group for group, _ in lives})
    for (group, life), seen in lives.items():
        minutes = [sample[0] / 60 for sample in seen]
        style = {"color": f"C{groups.index(group)}", "linewidth": 1.0}
        label = group if life == min(n for g, n in lives if g == group) else None
        own = [(sample[3] - factor * sample[6]) / 1024 for sample in seen]
        memory.plot(minutes, [sample[3] / 1024 for sample in seen], alpha=0.25, **style)
        memory.plot(minutes, own, label=label, **style)
        fds.plot(minutes, [sample[4] for sample in seen], **style)
    for at, text in found["marks"]:
        for axes in (memory, fds):
            axes.axvline(at / 60, color=_COLOURS[text.split()[0]], linewidth=0.5, alpha=0.5)
    memory.axvline(found["warm_up_s"] / 60, color="black", linestyle=":", label="warm-up over")
    memory.set(ylabel="MiB: RssAnon (pale), without write buffer", ylim=(0, None))
    memory.legend(loc="lower right")
    fds.set(ylabel="open descriptors", xlabel="minutes", ylim=(0, None))
    counts = found["counts"]
    figure.suptitle(
        f"{found['minutes']:.0f} minutes: {counts.get('messages', 0):,} messages, "
        f"{sum(found['faults'].values())} faults (red kill, orange pause, green join, blue leave), "
        f"violations: {sum(found['violations'].values())}"
    )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
