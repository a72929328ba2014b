"""Tasks on Weft beside other task systems, in one run: ``python -m bench.tasks``.

Every system has two worker processes on this machine and returns the result of each task.
Measured: a map of null tasks with all results, single submissions from one thread (also gathered,
where the system can), the time from submission to result with an idle worker, and the efficiency
for sleeps of 1, 16 and 128 ms (paper 4, figures 27 to 35) beside that of a loop that only sleeps.
From these follow the overhead of a promise over none (figure 35) and the ratios to Celery and
Dask. Systems run one after the other; a system that is not installed is named and skipped.
`--commits` measures transactions instead (`commit_costs`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from . import commit_costs, plot
from .dask_tasks import DaskTasks
from .redis_systems import CeleryTasks, DramatiqTasks, RqTasks
from .system import WORKERS, Missing, TaskSystem, sleep_floor
from .weft_tasks import WeftNone, WeftOnDisk, WeftStart, WeftTasks, WeftThreeNodes

SYSTEMS: Final[tuple[type[TaskSystem], ...]] = (
    WeftTasks, WeftOnDisk, WeftThreeNodes, WeftStart, WeftNone,
    CeleryTasks, DramatiqTasks, RqTasks, DaskTasks,
)  # fmt: skip
SLEEPS_MS: Final = (1, 16, 128)
#: Seconds of sleep for each worker.
SLEEP_S: Final = 5.0
PROMISES: Final = ("Weft", "Weft start")
BASELINE: Final = "Weft none"


def measure(kind: type[TaskSystem], scale: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="weft-tasks-") as folder:
        system = kind(Path(folder))
        system.start()
        try:
            count = max(100, int(kind.null_tasks * scale))
            single = max(100, min(5_000, count // 4))
            system.map_null(count // 4)  # the pops and pools have grown
            found: dict[str, Any] = {
                "system": kind.name,
                "settings": kind.settings,
                "map_per_s": round(count / system.map_null(count)),
                "submit_per_s": round(single / system.submit_null(single)),
            }
            if (took := system.bundle_null(4 * single)) is not None:
                found["bundle_submit_per_s"] = round(4 * single / took)
            latencies = system.latencies(max(50, int(300 * scale)))
            found["result_p50_ms"] = round(statistics.median(latencies) * 1000, 2)
            found["result_p95_ms"] = round(latencies[len(latencies) * 95 // 100] * 1000, 2)
            for ms in SLEEPS_MS:
                # Whole rounds of all workers, and enough of them that the last one does not count.
                total = WORKERS * max(4, int(SLEEP_S * 1000 / ms * scale))
                found[f"efficiency_{ms}_ms"] = round(100 * system.efficiency(total, ms), 1)
            return found
        finally:
            system.close()


def derived(rows: list[dict[str, Any]]) -> list[str]:
    """Lines that follow from two systems of one run."""
    by_name = {row["system"]: row for row in rows}
    lines: list[str] = []
    none = by_name.get(BASELINE)
    for name in PROMISES:
        if none is not None and name in by_name:
            ratio = none["efficiency_16_ms"] / by_name[name]["efficiency_16_ms"]
            lines.append(f"{name} over {BASELINE}, 16 ms tasks: {100 * (ratio - 1):+.1f} %")
    for other in ("Celery", "Dask"):
        for name in ("Weft", "Weft disk"):
            if name in by_name and other in by_name:
                times = by_name[name]["map_per_s"] / by_name[other]["map_per_s"]
                lines.append(f"{name} beside {other}, map of null tasks: {times:.0f} x")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tasks", description=__doc__)
    parser.add_argument("--systems", default="", help="names, comma-separated; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="the number of tasks, as a factor")
    parser.add_argument("--tasks", type=int, default=None, help="null tasks of Weft's map")
    parser.add_argument("--json", type=Path, default=None, help="write the results here, too")
    parser.add_argument("--plot", type=Path, default=None, help="draw the results as a PNG")
    parser.add_argument("--commits", action="store_true", help="measure transactions instead")
    given = parser.parse_args()
    if given.commits:
        found = commit_costs.measure(given.scale)
        print("  ".join(f"{key}={value}" for key, value in found.items()))
        if given.json is not None:
            given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        return 0
    if given.tasks is not None:
        WeftTasks.null_tasks = given.tasks
    wanted = [name.strip().lower() for name in given.systems.split(",") if name.strip()]
    rows: list[dict[str, Any]] = []
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    floors = {ms: sleep_floor(max(4, 1000 // ms), ms) for ms in SLEEPS_MS}
    text = "  ".join(f"{ms}_ms={100 * floor:.1f}" for ms, floor in floors.items())
    print(f"efficiency of sleeps alone: {text}")
    for kind in SYSTEMS:
        if wanted and kind.name.lower() not in wanted:
            continue
        print(f"{kind.name} ...", file=sys.stderr, flush=True)
        try:
            row = measure(kind, given.scale)
        except Missing as missing:
            print(f"{kind.name}: not measured: {missing}")
            continue
        rows.append(row)
        print("  ".join(f"{key}={value}" for key, value in row.items() if key != "settings"))
        sys.stdout.flush()
    for line in derived(rows):
        print(line)
    if given.plot is not None and rows:
        plot.draw(rows, floors, given.plot)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
