"""`weft tasks graph`: a submitted graph as text, live, as JSON, and as a picture."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import click

from weft.client import arguments
from weft.client.cli import failure, options, output
from weft.client.transport.blocking_link import run
from weft.errors import InvalidArgument

from .app import App
from .call import check_app_name
from .graph_picture import as_dot, as_svg, picture_of
from .graph_record import STARTED, GraphRecord, read_record
from .graph_run import ENDED, STATES, GraphProgress, GraphRun

#: Tasks that are listed one by one; a larger graph is shown by the names of its tasks.
LISTED_MAX: Final = 40
_BAR: Final = 40
_PICTURES: Final = {".svg": as_svg, ".dot": as_dot}


@click.command()
@click.argument("app")
@click.argument("graph_id", metavar="ID")
@click.option(
    "--follow", is_flag=True, help="Show the graph again and again, until it is complete."
)
@click.option(
    "--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True,
    help="With --follow: seconds between two updates.",
)  # fmt: skip
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path),
    help="Write a picture: a file that ends in .svg, or in .dot for Graphviz (dot -Tpng).",
)  # fmt: skip
@click.option("--cancel", is_flag=True, help="Cancel the tasks that have not ended.")
@options.everywhere
def graph(
    app: str, graph_id: str, follow: bool, interval: float, plot: Path | None, cancel: bool
) -> None:
    """Show a graph of tasks: the tasks that have ended, are ready, or wait for others.

    ID is the id of the graph (`run.id`). Exit code 3: there is no such graph. Exit code 1 with
    --follow: a task has failed.

    \b
    Examples:
      weft tasks graph shop 00000000000000000000000000000000
      weft tasks graph shop 00000000000000000000000000000000 --follow
      weft tasks graph shop 00000000000000000000000000000000 --plot graph.svg
    """
    check_app_name(app)
    number = arguments.as_message_id("ID", graph_id)
    if plot is not None and plot.suffix not in _PICTURES:
        raise click.BadParameter(
            "the file name must end in .svg or .dot. For a PNG: --plot graph.dot, then "
            "dot -Tpng graph.dot -o graph.png",
            param_hint="--plot",
        )
    with options.connect() as client:
        shown = App(app)
        shown._client = client
        try:
            record, decision = run(read_record(client._session, app, number))
        except InvalidArgument as error:
            click.echo(error.message, err=True)
            click.get_current_context().exit(failure.NOTHING_THERE)
        found = GraphRun(shown, record)
        if cancel:
            count = found.cancel()
            click.echo(f"cancelled {count} tasks", err=options.wants_json())
        progress = _show(found, decision == STARTED, follow, interval)
        if plot is not None:
            plot.write_text(_PICTURES[plot.suffix](picture_of(record, progress)), encoding="utf-8")
            click.echo(f"wrote {plot}", err=True)
    if follow and progress.ended != progress.counts["done"]:
        click.get_current_context().exit(1)


def _show(found: GraphRun, started: bool, follow: bool, interval: float) -> GraphProgress:
    while True:
        progress = found.progress()
        if options.wants_json():
            output.as_json(as_json(found.record, progress, started))
        else:
            if follow and sys.stdout.isatty():
                click.clear()
            click.echo("\n".join(as_text(found.record, progress, started)))
        if not follow or progress.complete:
            return progress
        time.sleep(interval)


def as_json(record: GraphRecord, progress: GraphProgress, started: bool) -> dict[str, Any]:
    return {
        "id": str(record.number),
        "started": started,
        "tasks": progress.tasks,
        "ended": progress.ended,
        "counts": progress.counts,
        "nodes": [
            {
                "id": str(record.id_of(node)),
                "name": record.name_of(node),
                "state": state,
                "parents": record.parents[node],
            }
            for node, state in enumerate(progress.states)
        ],
    }


def as_text(record: GraphRecord, progress: GraphProgress, started: bool) -> list[str]:
    share = progress.ended / progress.tasks
    bar = "#" * int(share * _BAR)
    edges = sum(map(len, record.parents))
    rows = [
        f"graph {record.number}{'' if started else ', not started'}",
        f"[{bar:<{_BAR}}] {progress.ended} of {progress.tasks} tasks ended, {edges} dependencies",
        "  ".join(f"{count} {state}" for state, count in progress.counts.items() if count),
        "",
    ]
    if progress.tasks <= LISTED_MAX:
        for node, state in enumerate(progress.states):
            parents = ", ".join(map(str, record.parents[node]))
            after = f"  after {parents}" if parents else ""
            rows.append(
                f"{node:>4}  {state:<16} {record.name_of(node)}{after}  {record.id_of(node)}"
            )
        return rows
    for number, name in enumerate(record.tasks):
        states = Counter(
            state for node, state in enumerate(progress.states) if record.names[node] == number
        )
        ended = sum(states[state] for state in ENDED)
        detail = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
        rows.append(f"{name}: {ended} of {states.total()} ended ({detail})")
    return rows
