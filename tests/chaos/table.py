"""The outcomes of many runs as a table, for people and for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from .outcome import PAUSE_S_MAX, Outcome
from .scenario import SCENARIOS

_HEAD: Final = (
    "scenario", "what", "nodes", "runs", "acknowledged", "deliveries", "lost",
    "redelivered after ack", "stored twice", "other violations", "errors seen by applications",
    "pause p50 / p99 / max, s", "plain gRPC, s",
)  # fmt: skip


def summary(name: str, runs: Sequence[Outcome]) -> dict[str, Any]:
    """All runs of one scenario as one row; aborted runs count as failed."""
    ended = [run for run in runs if not run.failure]
    known = ("lost", "vanished", "redelivered", "doubled")
    others = {what for run in ended for what in run.violations} - set(known)
    return {
        "scenario": name,
        "nodes": SCENARIOS[name].nodes,
        "runs": len(runs),
        "failed": len(runs) - len(ended),
        "acknowledged": sum(run.counts.get("acknowledged", 0) for run in ended),
        "deliveries": sum(run.counts.get("delivered", 0) for run in ended),
        "lost": _count(ended, ("lost", "vanished")),
        "redelivered": _count(ended, ("redelivered",)),
        "doubled": _count(ended, ("doubled",)),
        "other": _count(ended, sorted(others)),
        "errors": sum(run.errors for run in ended),
        "pause_s": spread([run.pause_s for run in ended]),
        "plain_pause_s": spread([run.plain_pause_s for run in ended]),
    }


def _count(runs: Iterable[Outcome], whats: Sequence[str]) -> int:
    return sum(run.violated(what) for run in runs for what in whats)


def spread(values: Sequence[float]) -> list[float]:
    """Median, 99th percentile (the nearest rank: of few runs the longest) and maximum."""
    ordered = sorted(values)
    if not ordered:
        return []
    ranks = (math.ceil(len(ordered) * share) - 1 for share in (0.5, 0.99, 1.0))
    return [round(ordered[max(0, rank)], 2) for rank in ranks]


def good(row: dict[str, Any]) -> bool:
    """True if the scenario kept its promises."""
    clean = not any(row[what] for what in ("failed", "lost", "redelivered", "doubled", "other"))
    if not clean or not SCENARIOS[row["scenario"]].failover:
        return clean
    return bool(max(row["pause_s"][1], row["plain_pause_s"][1]) < PAUSE_S_MAX)


def markdown(rows: Iterable[dict[str, Any]], fault_s: float) -> str:
    lines = ["| " + " | ".join(_HEAD) + " |", "|" + "---|" * len(_HEAD)]
    for row in rows:
        scenario = SCENARIOS[row["scenario"]]
        runs = f"{row['runs']}" + (f" ({row['failed']} failed)" if row["failed"] else "")
        cells = (
            scenario.name, scenario.what.format(fault_s), row["nodes"], runs,
            f"{row['acknowledged']:,}", f"{row['deliveries']:,}", row["lost"], row["redelivered"],
            row["doubled"], row["other"], row["errors"], _three(row["pause_s"]),
            _three(row["plain_pause_s"]),
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _three(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values) or "-"
