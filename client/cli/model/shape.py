"""Options and output that the subcommands of `weft model` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from weft.client.cli import extras, options, output
from weft.models.chart import Bars, Chart, draw, require_matplotlib

F = TypeVar("F", bound=Callable[..., Any])

#: Digits after the point in tables.
_DIGITS: Final = 4

seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**62),
    default=1,
    show_default=True,
    help="Seed of the simulation; equal seeds give equal results.",
)


def results(function: F) -> F:
    """Adds --json and --plot."""
    as_json = click.option(
        "--json", "as_json", is_flag=True, help="Print output and errors as JSON."
    )
    return as_json(plotted(function))


def plotted(function: F) -> F:
    """Adds --plot."""
    plot = click.option(
        "--plot",
        "picture",
        metavar="FILE.png",
        type=click.Path(writable=True, dir_okay=False),
        callback=_check_plot,
        help="Plot the result to a file; requires the extra `models`.",
    )
    return plot(function)


def _check_plot(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Fails before a long run, not after it."""
    if value is not None and not context.resilient_parsing:
        try:
            require_matplotlib()
        except ModuleNotFoundError as error:
            raise extras.explain(error) from None
        suffix = value.rpartition(".")[2].lower()
        if suffix not in ("png", "svg", "pdf"):
            raise click.BadParameter("the file name must end in .png, .svg or .pdf", context)
    return value


def show(
    title: str,
    columns: list[str],
    rows: list[list[Any]],
    *,
    as_json: bool,
    document: dict[str, Any],
    notes: list[str] | None = None,
) -> None:
    """Prints the document as JSON, or the rows as a table; columns without a value are left out."""
    if as_json or options.wants_json():
        output.as_json(document)
        return
    click.secho(title, bold=True)
    kept = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    columns, rows = [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]
    output.table(columns, [[text(cell) for cell in row] for row in rows], right=columns[1:])
    for note in notes or ():
        click.echo(note)


def plain(record: Any) -> dict[str, Any]:
    """The fields of a result, for JSON."""
    return dataclasses.asdict(record)


def text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.{_DIGITS}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def plot_to(picture: str | None, make: Callable[[], Chart | Bars]) -> None:
    """Draws the chart if --plot was given."""
    if picture is not None:
        draw(make(), picture)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error if that is a terminal: the function sets what is done."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
