"""`python -m bench.languages`: Weft from other languages beside its peers, in one run."""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.peers import fetch
from bench.peers.arena import Arena
from bench.peers.command import (
    as_lines,
    between,
    data_folder,
    ended_by_signals,
    filesystem_of,
    names_among,
    positive,
    tell,
)
from bench.peers.process import ServerFailed
from weft.client.cli.bench.machine import Machine

from . import entrants, report, workloads
from .entrants import Entrant
from .measurement_run import MeasurementRun
from .report import LanguageSetting

#: A document has the tables of a run between these two marker lines.
BEGIN, END = "<!-- languages: begin -->", "<!-- languages: end -->"
REPEAT, SECONDS, SAMPLES = 3, 4.0, 3000
QUICK_SECONDS: Final = 0.5
QUICK_SAMPLES: Final = 300

_EPILOG: Final = """\
examples:
  python -m bench.languages                              everything; about 15 minutes
  python -m bench.languages --quick                      does it run here
  python -m bench.languages --only batch,single-32 --systems weft-disk,nats
"""


def main() -> None:
    options = _parser().parse_args()
    if options.list:
        _list()
        return
    with ended_by_signals():
        try:
            _run(options)
        except KeyboardInterrupt:
            sys.exit("stopped; every server that was started has been stopped, too")


def _run(options: argparse.Namespace) -> None:
    wanted = [workloads.BY_NAME[name] for name in options.only]
    taking_part = {name for workload in wanted for name in workload.entrants}
    chosen = [entrants.BY_NAME[name] for name in options.systems if name in taking_part]
    machine = Machine.here()
    started = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    with data_folder(options.data) as folder:
        arena = Arena(folder, tell)
        try:
            servers, skipped = _started(arena, chosen, may_fetch=not options.no_fetch)
            command = shlex.join(["python", "-m", "bench.languages", *sys.argv[1:]])
            setting = LanguageSetting(
                command, started, machine, filesystem_of(folder), options.repeat,
                options.seconds, servers, skipped,
            )  # fmt: skip
            run = MeasurementRun(
                arena, [each for each in chosen if each.name in servers], tell=tell,
                seconds=options.seconds, repeat=options.repeat, samples=options.samples,
            )  # fmt: skip
            try:
                run.run(wanted)
            finally:
                # Also after Ctrl-C, to keep the measurements so far.
                if run.results.measurements:
                    _write(setting, run, options)
        finally:
            tell("stopping the servers")
            arena.close()


def _started(
    arena: Arena, chosen: Sequence[Entrant], *, may_fetch: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Starts the servers that can run here; returns their descriptions, and why others cannot."""
    servers: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for each in chosen:
        try:
            entrants.fetched(each, may_fetch=may_fetch)
            server = arena.server(each.system)
        except (fetch.Missing, ServerFailed, OSError) as error:
            skipped[each.name] = " ".join(str(error).split())
            tell(f"{each.name} is skipped: {skipped[each.name]}")
        else:
            servers[each.name] = f"{server.version()}; {server.settings}"
    return servers, skipped


def _write(setting: LanguageSetting, run: MeasurementRun, options: argparse.Namespace) -> None:
    text = report.markdown(setting, run.results)
    print("\n" + text)
    if options.json is not None:
        record = as_lines(report.as_json(setting, run.results))
        options.json.write_text(record, encoding="utf-8")
        tell(f"wrote {options.json}")
    if options.docs is not None:
        document = options.docs.read_text(encoding="utf-8")
        options.docs.write_text(between(document, text, BEGIN, END), encoding="utf-8")
        tell(f"put the tables into {options.docs}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.languages",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    all_workloads, all_entrants = list(workloads.BY_NAME), list(entrants.BY_NAME)
    add(
        "--only",
        type=names_among(all_workloads),
        default=all_workloads,
        metavar="A,B",
        help="workloads; all by default",
    )
    add(
        "--systems",
        type=names_among(all_entrants),
        default=all_entrants,
        metavar="A,B",
        help="systems; all by default",
    )
    add("--list", action="store_true", help="list workloads and systems, and end")
    add("--quick", action=_Quick, help="a small run: to see that it works, not how fast")
    add("--repeat", type=positive, default=REPEAT, metavar="N", help=f"repetitions ({REPEAT})")
    add(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help=f"of one measurement ({SECONDS:g})",
    )
    add(
        "--samples",
        type=positive,
        default=SAMPLES,
        metavar="N",
        help=f"timed calls of the Python client ({SAMPLES})",
    )
    add("--docs", type=Path, metavar="FILE", help="put the tables into this document")
    add("--json", type=Path, metavar="FILE", help="write the record to this file")
    add("--data", type=Path, metavar="DIR", help="where servers keep their data (temporary)")
    add("--no-fetch", action="store_true", help="install no server; skip what is not there")
    return parser  # fmt: skip


class _Quick(argparse.Action):
    """Sets the plan of a small run; options after it change single values."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        namespace.repeat = 1
        namespace.seconds = QUICK_SECONDS
        namespace.samples = QUICK_SAMPLES


def _list() -> None:
    for workload in workloads.ALL:
        print(f"{workload.name:10} {workload.title}")
    print()
    for each in entrants.ALL:
        print(f"{each.name:22} {each.system.durability}; {each.client}")
