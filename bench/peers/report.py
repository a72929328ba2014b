"""The record of a run: complete as JSON, and as markdown tables with medians and spreads."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft.client.cli.bench.machine import Machine

from . import papers, targets
from .plan import Plan
from .result import FLOOR, Results, Spread
from .server import Server
from .systems import BY_NAME as SYSTEMS
from .workloads import BY_NAME as WORKLOADS
from .workloads import Workload

#: Points of a latency curve in the record; all samples of all systems would take megabytes.
CURVE_POINTS: Final = 100


@dataclass(frozen=True)
class Setting:
    """The conditions of a run."""

    command: str
    machine: Machine
    plan: Plan
    filesystem: str
    #: system -> description.
    systems: dict[str, dict[str, str]]
    skipped: dict[str, str]
    started: str = dataclasses.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    )


def describe(name: str, server: Server | None) -> dict[str, str]:
    system = SYSTEMS[name]
    return {
        "server": server.version() if server is not None else "not started",
        "settings": system.server.settings,
        "client": system.client_version() or "a plain socket",
        "batching": system.batching,
        "durability": system.durability,
        "acks": "yes" if system.acks else "no",
    }


def as_json(setting: Setting, results: Results) -> dict[str, Any]:
    return {
        **dataclasses.asdict(setting),
        "measurements": [
            {
                **dataclasses.asdict(each),
                "samples": {what: curve(taken) for what, taken in each.samples.items()},
            }
            for each in results.measurements
        ],
        "failures": [dataclasses.asdict(each) for each in results.failures],
        "must_reach": [
            {
                "what": verdict.target.words,
                "ratio": dataclasses.asdict(verdict.ratio) if verdict.ratio else None,
                "bound": verdict.target.bound,
                "at_most": verdict.target.at_most,
                "verdict": verdict.word,
            }
            for verdict in targets.judge(results)
        ],
    }


def curve(taken: Sequence[float]) -> list[float]:
    """The sorted samples, thinned evenly; the last point is the maximum."""
    ranked = sorted(taken)
    if len(ranked) <= CURVE_POINTS:
        return ranked
    last = len(ranked) - 1
    return [ranked[i * last // (CURVE_POINTS - 1)] for i in range(CURVE_POINTS)]


def markdown(setting: Setting, results: Results) -> str:
    parts = [
        _facts(setting),
        "### Must reach\n\n" + must_reach(results),
        *(f"### {name}: {_title(name)}\n\n" + _table(name, results) for name in _measured(results)),
        "### The papers' own setups\n\n" + _papers(results),
        "### Systems\n\n" + _systems(setting),
    ]
    left_out = list(_left_out(setting, results))
    if left_out:
        parts.append("### Left out\n\n" + "\n".join(left_out))
    return "\n\n".join(parts) + "\n"


def must_reach(results: Results) -> str:
    """The targets of the workloads that ran."""
    rows = []
    ran = set(results.workloads())
    for verdict in targets.judge(results):
        target, ratio = verdict.target, verdict.ratio
        if target.ours[0] not in ran:
            continue
        sign = "≤" if target.at_most else "≥"
        shown = "" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
        rows.append((target.words, shown, f"{sign} {target.bound:g}", verdict.word))
    return markdown_table(("what", "ratio: median (range)", "target", ""), rows)


def _measured(results: Results) -> list[str]:
    return [name for name in WORKLOADS if name in results.workloads()]


def _title(name: str) -> str:
    return WORKLOADS[name].title


def _table(name: str, results: Results) -> str:
    workload: Workload = WORKLOADS[name]
    heads = ["system", *(column.title for column in workload.columns), "confirmed means"]
    rows = []
    for system in sorted(results.systems(name), key=_order):
        if system == FLOOR:
            continue
        cells = [
            spread_text(results.spread(name, system, column.figure), column.digits)
            for column in workload.columns
        ]
        rows.append((system, *cells, SYSTEMS[system].durability))
    text = markdown_table(heads, rows)
    floor = results.spread(name, FLOOR, "push_floor_us")
    if floor is not None:
        trip = results.spread(name, FLOOR, "zmq_round_trip_us")
        append = results.spread(name, FLOOR, "fdatasync_append_us")
        text += (
            f"\n\nThe machine itself, in the same minutes (µs, p50): a raw ZeroMQ round trip "
            f"{spread_text(trip, 0)}, a raw append with fdatasync {spread_text(append, 0)}; the "
            f"append and 1.5 round trips {spread_text(floor, 0)}."
        )
    return text


def _order(system: str) -> int:
    names = list(SYSTEMS)
    return names.index(system) if system in names else len(names)


def spread_text(spread: Spread | None, digits: int) -> str:
    if spread is None:
        return ""
    if spread.low == spread.high:
        return f"{spread.median:,.{digits}f}"
    low, high = (f"{value:,.{digits}f}" for value in (spread.low, spread.high))
    return f"{spread.median:,.{digits}f} ({low}–{high})"


def _papers(results: Results) -> str:
    rows = [
        (each.paper, each.setup, each.theirs, system, f"{spread_text(ours, 0)} {each.unit}")
        for each, system, ours in papers.beside(results)
    ]
    return markdown_table(("paper", "setup", "the paper's figure", "here", "median (range)"), rows)


def _facts(setting: Setting) -> str:
    machine, plan = setting.machine, setting.plan
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    load = " ".join(f"{each:.2f}" for each in machine.load_average)
    return "\n".join(
        (
            f"- run: `{setting.command}`, {setting.started}",
            f"- machine: {machine.cores} cores, {machine.cpu}, Linux {machine.kernel}, data on "
            f"{setting.filesystem}, Python {machine.python}, {versions}",
            f"- load average when it began: {load}; the load of other processes during each "
            "measurement is in the tables",
            f"- plan: {plan.repeat} repetitions, about {plan.seconds:g} s a throughput "
            f"measurement, {plan.samples:,} timed calls a latency measurement; every cell is the "
            "median, with the range in brackets",
        )
    )


def _systems(setting: Setting) -> str:
    heads = ("system", "server", "settings", "client", "its batching", "confirmed means", "acks")
    keys = ("server", "settings", "client", "batching", "durability", "acks")
    rows = [(name, *(facts[key] for key in keys)) for name, facts in setting.systems.items()]
    return markdown_table(heads, rows)


def _left_out(setting: Setting, results: Results) -> Iterator[str]:
    for name, why in setting.skipped.items():
        yield f"- {name}: {why}"
    for each in results.failures:
        reason = " ".join(each.reason.split())[:300]
        yield f"- {each.workload}, {each.system}, repetition {each.repetition + 1}: {reason}"


def markdown_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
