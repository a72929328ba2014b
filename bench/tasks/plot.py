"""The measurements as a picture: throughput, and efficiency by the length of a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(rows: list[dict[str, Any]], floors: dict[int, float], path: Path) -> None:
    """Writes a PNG. Raises ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    names = [row["system"] for row in rows]
    left.barh(names, [row["map_per_s"] for row in rows])
    left.set_xscale("log")
    left.set_xlabel("null tasks a second, with results")
    lengths = sorted(floors)
    for row in rows:
        right.plot(
            lengths, [row[f"efficiency_{ms}_ms"] for ms in lengths], "o-", label=row["system"]
        )
    right.plot(lengths, [100 * floors[ms] for ms in lengths], "k--", label="sleeps alone")
    right.set_xscale("log")
    right.set_xlabel("length of a task, ms")
    right.set_ylabel("efficiency, %")
    right.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
