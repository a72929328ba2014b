"""The paper's microbenchmark (section 5.3) for all queues, with the paper's figures 20 to 22.

All ranks share one queue; one rank dequeues, the others enqueue. Warm-up: ``--elements`` elements
pass through the queue ``--laps`` times, with the measured calls, and the same number of elements
fills the queue before any clock starts. Then the enqueuers together enqueue ``--elements`` more.
When a twentieth of those has arrived, the dequeuer starts to dequeue ``--elements``. So the
dequeuer runs beside active enqueuers and never waits for an element. Results are means over
``--repeats``.

With ``--at-rest`` the queue is warm and empty, and the dequeuer starts after the enqueuers have
ended; this isolates the cost of a dequeue.

Ranks that share cores compete for them: a slow dequeuer slows the enqueuers beside it. Compare
series with dequeuers of similar speed.

- enqueue throughput: elements over the time from the first enqueuer's start to the last one's end;
- dequeue throughput: elements over the dequeuer's time; the queue is never empty;
- total throughput: elements over the time until both are done;
- latency: the mean time of one call, per element;
- cpu: processor time of the rank per element, independent of other work on the machine;
- remote: operations of an enqueuer in another rank's memory, per element.

Series take turns for ``--rounds`` rounds, so that a busy moment of the machine affects all of them.
At the end the benchmark prints one line per required ratio: the median of the rounds, the range,
and whether the median reaches the bound.

Ranks of one machine access each other's memory directly; with ``--pure`` all accesses go through
MPI, as between two machines.

    python bench/mpsc.py --ranks 2 4 8 16 --out bench/results/mpsc

The script restarts itself under mpiexec and writes mpsc.json, mpsc.md and, with matplotlib,
mpsc-*.png.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median

from weft.mpsc import Dequeuer, Enqueuer, Job

#: Maximum of a batched dequeue; larger than the backlog with the default --elements.
BATCH = 65_536
#: name -> (algorithm, elements in one enqueue, most elements in one dequeue).
SERIES: dict[str, tuple[str, int, int]] = {
    "dltqueue": ("dltqueue", 1, 1),
    "dltqueue2": ("dltqueue2", 1, 1),
    "slotqueue": ("slotqueue", 1, 1),
    "amqueue": ("amqueue", 1, 1),
    "slotqueue, batched dequeue": ("slotqueue", 1, BATCH),
    "sweepqueue, batched dequeue": ("sweepqueue", 1, BATCH),
    "amqueue, batched dequeue": ("amqueue", 1, BATCH),
    "slotqueue, both batched": ("slotqueue", 64, BATCH),
    "sweepqueue, both batched": ("sweepqueue", 64, BATCH),
    "amqueue, both batched": ("amqueue", 64, BATCH),
}
ITEM_BYTES = 16
#: Interval at which the dequeuer polls for the first arrivals.
POLL_SECONDS = 0.0001
#: Timeout of one job; five repeats of the slowest queue at 16 ranks take a minute on two cores.
JOB_SECONDS_MAX = 600
MEASURES = (
    "enqueue_per_s",
    "dequeue_per_s",
    "total_per_s",
    "enqueue_us",
    "dequeue_us",
    "enqueue_cpu_us",
    "dequeue_cpu_us",
    "enqueue_remote",
)


@dataclass(frozen=True)
class Bar:
    """A required ratio: ``measure`` of series ``of`` over that of ``against``, at least ``least``.

    Without ``least`` the ratio is only printed.
    """

    measure: str
    of: str
    against: str
    least: float | None


BARS = (
    Bar("enqueue_per_s", "slotqueue", "amqueue", 1),
    Bar("dequeue_per_s", "slotqueue, batched dequeue", "amqueue", 1),
    Bar("dequeue_per_s", "slotqueue, batched dequeue", "slotqueue", 5),
    Bar("dequeue_per_s", "slotqueue, batched dequeue", "amqueue, batched dequeue", None),
)
#: Remote operations of an uncontended enqueue behind an item of the same enqueuer.
REMOTE = {"slotqueue": 3, "amqueue": 5}


@dataclass
class Report:
    """One rank's repeats: start, end, processor time (all in nanoseconds), elements of the rank,
    and the rank's operations in other ranks' memory."""

    rank: int
    spans: list[tuple[int, int, int, int, int]]


def enqueue_all(enqueuer: Enqueuer, count: int, batch: int) -> None:
    item = bytes(ITEM_BYTES)
    if batch == 1:
        for _ in range(count):
            if not enqueuer.enqueue(item):
                raise RuntimeError("the queue is full: the benchmark sized it wrongly")
        return
    items = [item] * batch
    while count:
        taken = enqueuer.enqueue_many(items[:count])
        if not taken:
            raise RuntimeError("the queue is full: the benchmark sized it wrongly")
        count -= taken


def dequeue_all(dequeuer: Dequeuer, count: int, batch: int) -> None:
    if batch == 1:
        while count:
            count -= dequeuer.dequeue() is not None
        return
    while count:
        count -= len(dequeuer.dequeue_many(min(batch, count)))


def warm_up(job: Job, share: int, enqueue: int, dequeue: int, laps: int, fill: bool) -> None:
    """Passes all elements through the queue ``laps`` times; ``fill`` adds as many that stay."""
    for _ in range(laps):
        if job.dequeuer is None:
            enqueue_all(job.enqueuer, share, enqueue)
        job.window.wait_for_all()
        if job.dequeuer is not None:
            dequeue_all(job.dequeuer, share * job.shape.enqueuers, dequeue)
        job.window.wait_for_all()
    if fill and job.dequeuer is None:
        enqueue_all(job.enqueuer, share, enqueue)
    job.window.wait_for_all()


def one_rank(
    algorithm: str,
    enqueue: int,
    dequeue: int,
    elements: int,
    repeats: int,
    laps: int,
    at_rest: int,
    pure: int,
) -> Report:
    """Runs this rank's part of the benchmark."""
    from mpi4py import MPI

    from weft.mpsc import create

    comm = MPI.COMM_WORLD
    enqueuers = comm.Get_size() - 1
    share = elements // enqueuers
    # AMQueue has one buffer for all enqueuers, the other queues one ring per enqueuer.
    capacity = 2 * share * (enqueuers if algorithm == "amqueue" else 1)
    report = Report(comm.Get_rank(), [])
    for _ in range(repeats):
        job = create(
            comm,
            algorithm=algorithm,
            capacity=capacity,
            item_bytes=ITEM_BYTES,
            direct=not pure,
        )
        warm_up(job, share, enqueue, dequeue, laps, fill=not at_rest)
        before = job.window.counts.copy()
        if job.dequeuer is None:
            start, cpu = time.monotonic_ns(), time.process_time_ns()
            enqueue_all(job.enqueuer, share, enqueue)
            count = share
        else:
            count = share * enqueuers
            begun = count if at_rest else count + count // 20
            while job.dequeuer.backlog() < begun:
                time.sleep(POLL_SECONDS)
            start, cpu = time.monotonic_ns(), time.process_time_ns()
            dequeue_all(job.dequeuer, count, dequeue)
        spent = time.process_time_ns() - cpu
        remote = job.window.counts.since(before).remote
        report.spans.append((start, time.monotonic_ns(), spent, count, remote))
        job.close()
    return report


def measure(name: str, ranks: int, options: argparse.Namespace) -> dict[str, float]:
    """Runs one series under mpiexec."""
    algorithm, enqueue, dequeue = SERIES[name]
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        sys.exit("no mpiexec: pip install 'weft[mpi]' brings one")
    with tempfile.TemporaryDirectory() as folder:
        numbers = [
            enqueue,
            dequeue,
            options.elements,
            options.repeats,
            options.laps,
            options.at_rest,
            options.pure,
        ]
        command = [mpiexec, "-n", str(ranks), sys.executable, __file__]
        command += ["--rank-of", algorithm, *(str(int(number)) for number in numbers), folder]
        subprocess.run(command, check=True, timeout=JOB_SECONDS_MAX)
        files = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
        reports = [Report(**file) for file in files]
    return summary(reports, options.repeats)


def summary(reports: list[Report], repeats: int) -> dict[str, float]:
    """Means over the repeats of the measures defined in the module docstring."""
    rows: dict[str, list[float]] = {measure: [] for measure in MEASURES}
    dequeuer = next(report for report in reports if report.rank == 0).spans
    others = [report.spans for report in reports if report.rank != 0]
    for at in range(repeats):
        start, end, cpu, count, _ = dequeuer[at]
        spans = [spans[at] for spans in others]
        first, last = min(span[0] for span in spans), max(span[1] for span in spans)
        rows["enqueue_per_s"].append(count / (last - first) * 1e9)
        rows["dequeue_per_s"].append(count / (end - start) * 1e9)
        rows["total_per_s"].append(count / (max(end, last) - min(start, first)) * 1e9)
        rows["enqueue_us"].append(mean((span[1] - span[0]) / span[3] / 1e3 for span in spans))
        rows["enqueue_cpu_us"].append(mean(span[2] / span[3] / 1e3 for span in spans))
        rows["enqueue_remote"].append(mean(span[4] / span[3] for span in spans))
        rows["dequeue_cpu_us"].append(cpu / count / 1e3)
        rows["dequeue_us"].append((end - start) / count / 1e3)
    return {measure: mean(values) for measure, values in rows.items()}


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """A markdown table with one row per queue and number of ranks."""
    lines = [
        "| ranks | queue | enqueue/s | dequeue/s | total/s | enqueue us | dequeue us "
        "| enqueue cpu us | dequeue cpu us | enqueue remote |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for ranks, queues in results.items():
        for name, row in queues.items():
            rates = " | ".join(f"{row[measure]:,.0f}" for measure in MEASURES[:3])
            times = " | ".join(f"{row[measure]:.2f}" for measure in MEASURES[3:])
            lines.append(f"| {ranks} | {name} | {rates} | {times} |")
    return "\n".join(lines) + "\n"


def verdicts(rounds: dict[str, list[dict[str, float]]], repeats: int) -> Iterator[str]:
    """One line per ratio with both series measured, and one per count of remote operations."""
    for bar in BARS:
        if bar.of not in rounds or bar.against not in rounds:
            continue
        both = zip(rounds[bar.of], rounds[bar.against], strict=True)
        ratios = [of[bar.measure] / against[bar.measure] for of, against in both]
        middle = median(ratios)
        asked = ""
        if bar.least is not None:
            asked = f", at least {bar.least:g}: {'met' if middle >= bar.least else 'MISSED'}"
        yield (
            f"{bar.measure}, {bar.of} / {bar.against}: {middle:.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds of {repeats}){asked}"
        )
    for name, count in REMOTE.items():
        if name in rounds:
            counts = [row["enqueue_remote"] for row in rounds[name]]
            yield (
                f"enqueue_remote, {name}: {median(counts):.3f} "
                f"({min(counts):.3f} to {max(counts):.3f}), {count} when nothing is in the way"
            )


def plot(results: dict[str, dict[str, dict[str, float]]], out: Path) -> None:
    """One plot for each figure of the paper: enqueue, dequeue, total."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for measure in MEASURES[:3]:
        figure, axes = pyplot.subplots(figsize=(7, 4.5))
        for name in SERIES:
            ranks = [count for count in results if name in results[count]]
            values = [results[count][name][measure] for count in ranks]
            axes.plot([int(count) for count in ranks], values, marker="o", label=name)
        axes.set(xlabel="ranks", ylabel="elements a second", yscale="log", title=measure)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(out / f"mpsc-{measure.removesuffix('_per_s')}.png", dpi=120)
        pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--elements", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--laps", type=int, default=1)
    parser.add_argument("--at-rest", action="store_true")
    parser.add_argument("--pure", action="store_true", help="all through MPI")
    parser.add_argument("--series", nargs="+", choices=SERIES, default=list(SERIES))
    parser.add_argument("--out", type=Path, default=Path("bench/results/mpsc"))
    parser.add_argument("--rank-of", nargs=9, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        algorithm, *numbers, folder = options.rank_of
        report = one_rank(algorithm, *(int(number) for number in numbers))
        (Path(folder) / f"{report.rank}.json").write_text(json.dumps(asdict(report)))
        return
    results: dict[str, dict[str, dict[str, float]]] = {}
    lines: list[str] = []
    for ranks in options.ranks:
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in options.series}
        for _ in range(options.rounds):
            for name in options.series:
                row = measure(name, ranks, options)
                rounds[name].append(row)
                print(f"{ranks} ranks, {name}: {rounds[name][-1]}", flush=True)
        results[str(ranks)] = {
            name: {key: mean(row[key] for row in rows) for key in MEASURES}
            for name, rows in rounds.items()
        }
        lines += [f"{ranks} ranks: {line}" for line in verdicts(rounds, options.repeats)]
    print("\n".join(lines))
    options.out.mkdir(parents=True, exist_ok=True)
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
    }
    settings = ("elements", "repeats", "rounds", "laps", "at_rest", "pure")
    written = {
        "machine": machine,
        **{name: getattr(options, name) for name in settings},
        "results": results,
        "verdicts": lines,
    }
    (options.out / "mpsc.json").write_text(json.dumps(written, indent=1) + "\n")
    (options.out / "mpsc.md").write_text(
        table(results) + "".join(f"\n- {line}" for line in lines) + "\n"
    )
    try:
        plot(results, options.out)
    except ImportError:
        print("no plots: pip install 'weft[bench]' brings matplotlib")


if __name__ == "__main__":
    main()
