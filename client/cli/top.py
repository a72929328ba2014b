"""`weft top`: rates and depths of queues and the state of nodes, refreshed at an interval."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from weft.errors import WeftError
from weft.proto import wire

from . import options, output, partial, units
from .rates import ORDERS, Row, Sample, rows

if TYPE_CHECKING:
    from rich.console import Group

    from weft import Client

_COLUMNS: Final = (
    "queue", "pushed/s", "delivered/s", "acked/s", "ready", "in flight", "delayed", "oldest",
    "waiting pops", "share", "got",
)  # fmt: skip
#: Screen lines besides the queues: headings, the node summary, the count of hidden queues.
_AROUND_LINES: Final = 8


@click.command
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two samples; rates are averages over this time.",
)
@click.option("--once", is_flag=True, help="Print one interval and exit.")
@click.option(
    "--sort",
    type=click.Choice(list(ORDERS)),
    default="rate",
    show_default=True,
    help="Sort key of the queues: name ascending, others descending.",
)
@options.everywhere
def top(interval: float, once: bool, sort: str) -> None:
    """Show rates, depths and the oldest message of queues, and the nodes, until Ctrl-C.

    Rates are messages per second. With --json each interval is one line; with --json --once the
    output is one document.

    \b
    Examples:
      weft top
      weft top --sort oldest --interval 5
      weft top --once --json | jq '.queues[0]'
    """
    with options.connect() as client:
        try:
            if options.wants_json():
                _print_json(client, interval, sort, once=once)
            elif once or not sys.stdout.isatty():
                _print(client, interval, sort, once=once)
            else:
                _watch(client, interval, sort)
        except KeyboardInterrupt:
            return  # Ctrl-C is the documented way to exit.


def _samples(client: Client, interval: float, *, once: bool) -> Iterator[tuple[Sample, Sample]]:
    before = Sample.take(client)
    while True:
        time.sleep(interval)
        after = Sample.take(client)
        yield before, after
        if once:
            return
        before = after


def _print_json(client: Client, interval: float, sort: str, *, once: bool) -> None:
    write = output.as_json if once else output.as_json_line
    for before, after in _samples(client, interval, once=once):
        write(as_json(before, after, sort))
        sys.stdout.flush()


def as_json(before: Sample, after: Sample, sort: str) -> dict[str, Any]:
    return {
        "seconds": round(after.at_s - before.at_s, 3),
        "partial": partial.words(after.queues),
        "queues": [asdict(row) for row in rows(before, after, sort)],
        "nodes": [msgspec.structs.asdict(node) for node in after.nodes],
        "status": msgspec.structs.asdict(after.status),
    }


def _print(client: Client, interval: float, sort: str, *, once: bool) -> None:
    for before, after in _samples(client, interval, once=once):
        click.echo(summary(after))
        output.table(_COLUMNS, list(map(cells, rows(before, after, sort))), right=_COLUMNS[1:])
        sys.stdout.flush()


def _watch(client: Client, interval: float, sort: str) -> None:
    """Refreshes an alternate screen; retries after an error, so a node may restart meanwhile."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        live.update(f"sampling for {interval:g} s ...", refresh=True)
        before: Sample | None = None
        while True:
            try:
                after = Sample.take(client)
                if before is not None:
                    height = console.size.height
                    live.update(screen(before, after, sort, height), refresh=True)
                before = after
            except WeftError as error:
                before = None
                live.update(f"{error.message}\nretrying in {interval:g} s ...", refresh=True)
            time.sleep(interval)


def screen(before: Sample, after: Sample, sort: str, height: int) -> Group:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    found = rows(before, after, sort)
    room = max(1, height - _AROUND_LINES - len(after.nodes))
    queues = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in _COLUMNS:
        queues.add_column(name, justify="left" if name == "queue" else "right")
    for row in found[:room]:
        queues.add_row(*map(Text, cells(row)))
    left_out = f"and {len(found) - room:,} more" if len(found) > room else ""
    nodes = [Text(node_line(node)) for node in after.nodes]
    return Group(Text(summary(after), style="bold"), *nodes, queues, Text(left_out, style="dim"))


def summary(sample: Sample) -> str:
    status = sample.status
    return (
        f"node {status.node}  up {units.duration_ms(status.uptime_ms)}  "
        f"queues {units.count(status.queues)}  data {units.size(status.store_bytes)}  "
        f"disk free {units.size(status.free_bytes)}  memory {units.size(status.rss_bytes)}"
        + (f"\n{left_out}" if (left_out := partial.words(sample.queues)) else "")
    )


def node_line(node: wire.NodeInfo) -> str:
    return f"  {node.node}  {node.grpc}  {node.state}{'' if node.alive else ', not alive'}"


def cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        rate(row.pushed_per_s),
        rate(row.delivered_per_s),
        rate(row.acked_per_s),
        units.count(row.ready),
        units.count(row.in_flight),
        units.count(row.delayed),
        units.duration_ms(row.oldest_ms) if row.oldest_ms else "-",
        units.count(row.waiting_pops),
        f"{row.share_asked:g}" if row.share_asked else "-",
        "-" if row.share_got is None else f"{row.share_got:.3f}",
    )


def rate(number: float) -> str:
    """Rates below 10 get one decimal, so that one message in three seconds is not shown as 0."""
    return f"{number:,.0f}" if number >= 10 or number == 0 else f"{number:.1f}"
