"""The record of a run: tables for the documents, and JSON."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from bench.peers.report import markdown_table, spread_text
from bench.peers.result import Results
from weft.client.cli.bench.machine import Machine

from . import targets
from .entrants import BY_NAME as ENTRANTS
from .workloads import BY_NAME as WORKLOADS

#: Characters of a line in the documents, other than a row of a table.
LINE_MAX: Final = 120


@dataclasses.dataclass(frozen=True)
class LanguageSetting:
    """The conditions of a run."""

    command: str
    started: str
    machine: Machine
    filesystem: str
    repeat: int
    seconds: float
    #: entrant -> version and settings of its server.
    servers: dict[str, str]
    skipped: dict[str, str]


def markdown(setting: LanguageSetting, results: Results) -> str:
    parts = [_facts(setting), "### Must reach, from other languages\n\n" + must_reach(results)]
    for name, workload in WORKLOADS.items():
        if results.systems(name):
            parts.append(f"### {name}: {workload.title}\n\n" + _table(name, results))
    parts.append("### Clients and servers\n\n" + _clients(setting))
    left_out = list(_left_out(setting, results))
    if left_out:
        parts.append("### Left out, from other languages\n\n" + "\n".join(left_out))
    return "\n\n".join(parts) + "\n"


def must_reach(results: Results) -> str:
    rows = []
    for target in targets.ALL:
        value = target.value(results)
        digits = 2 if target.theirs else 0
        sign = "≤" if target.at_most else "≥"
        bound = f"{sign} {target.bound:,g}" + (" times" if target.theirs else "")
        rows.append((target.words, spread_text(value, digits), bound, target.word(results)))
    return markdown_table(("what", "median (range)", "target", ""), rows)


def _table(name: str, results: Results) -> str:
    workload = WORKLOADS[name]
    heads = ["system", *(column.title for column in workload.columns), "confirmed means"]
    rows = []
    for system in sorted(results.systems(name), key=list(ENTRANTS).index):
        cells = [
            spread_text(results.spread(name, system, column.figure), column.digits)
            for column in workload.columns
        ]
        rows.append((system, *cells, ENTRANTS[system].system.durability))
    return markdown_table(heads, rows)


def _facts(setting: LanguageSetting) -> str:
    machine = setting.machine
    load = " ".join(f"{each:.2f}" for each in machine.load_average)
    return "\n".join(
        textwrap.fill(
            line, LINE_MAX, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for line in (
            f"- run: `{setting.command}`, {setting.started}",
            f"- machine: {machine.cores} cores, {machine.cpu}, Linux {machine.kernel}, data on "
            f"{setting.filesystem}; load average when it began: {load}",
            f"- plan: {setting.repeat} repetitions of {setting.seconds:g} s, systems in turn; "
            "every cell is the median, with the range in brackets",
        )
    )


def _clients(setting: LanguageSetting) -> str:
    rows = [
        (name, server, ENTRANTS[name].client, ENTRANTS[name].system.durability)
        for name, server in setting.servers.items()
    ]
    return markdown_table(("system", "server", "client", "confirmed means"), rows)


def _left_out(setting: LanguageSetting, results: Results) -> Iterator[str]:
    for name, why in setting.skipped.items():
        yield f"- {name}: {why}"
    for each in results.failures:
        reason = " ".join(each.reason.split())[:300]
        yield f"- {each.workload}, {each.system}, repetition {each.repetition + 1}: {reason}"


def as_json(setting: LanguageSetting, results: Results) -> dict[str, Any]:
    return {
        **dataclasses.asdict(setting),
        "measurements": [dataclasses.asdict(each) for each in results.measurements],
        "failures": [dataclasses.asdict(each) for each in results.failures],
        "must_reach": [
            {
                "what": target.words,
                "value": dataclasses.asdict(value) if (value := target.value(results)) else None,
                "bound": target.bound,
                "at_most": target.at_most,
                "verdict": target.word(results),
            }
            for target in targets.ALL
        ],
    }
