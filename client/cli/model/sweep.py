"""`weft model sweep`: a grid of parameters, in a process pool or with Spark."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from weft.client.cli import extras
from weft.errors import MissingExtra
from weft.models import sweep as model
from weft.models.chart import Chart, Curve

from . import shape

_SPARK: Final = "weft.models.sweep_spark"
#: Rows of the table on a terminal; --json and --out have all.
_SHOWN_MAX: Final = 50


@click.command
@click.argument("name", metavar="MODEL", type=click.Choice(list(model.MODELS)))
@click.argument("grid", nargs=-1, metavar="[PARAMETER=VALUE,...]...")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs of each configuration, with different seeds.",
)
@shape.seed_option
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    default=os.cpu_count() or 1,
    help="Processes that compute rows.  [default: one per core]",
)
@click.option(
    "--spark",
    is_flag=True,
    help="Compute the rows as a Spark job; requires the extra `spark` and Java.",
)
@click.option(
    "--master", default="local[*]", show_default=True, help="With --spark: the Spark master."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write all rows and the summary as Parquet to this new folder; requires the extra "
    "`spark`.",
)
@shape.results
@click.pass_context
def sweep(
    context: click.Context, name: str, grid: tuple[str, ...], repeat: int, seed: int, workers: int,
    spark: bool, master: str, out: Path | None, as_json: bool, picture: str | None,
) -> None:  # fmt: skip
    """Run a model for every combination of parameters, and print means over the runs.

    A value is a number or a word, or a range of whole numbers such as 1..10. Rows do not depend on
    the number of workers, nor on --spark.

    \b
    Examples:
      weft model sweep queue producers=3,5,8 max_hops=1..5
      weft model sweep convoy rate=1,10,50 clock=counter,hybrid --repeat 5 --plot convoy.png
      weft model sweep queue load=0.5,1,2 max_hops=1..10 --spark --out rows
    """
    for option, needed in (("master", spark), ("workers", not spark)):
        if not needed and context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            verb = "requires" if option == "master" else "has no meaning with"
            raise click.UsageError(f"--{option} {verb} --spark.", context)
    rows = model.rows_of(name, model.parse(name, grid), repeat=repeat, seed=seed)
    if spark:
        found, reduced = _with_spark(name, rows, master, out)
    else:
        found, reduced = _in_pool(name, rows, workers, out)
    swept = [key for key in model.model_of(name).parameters if _varies(reduced, key)]
    results = model.model_of(name).results
    # The table starts with what varies; a sweep of one configuration has nothing that does.
    columns = [*(swept or [next(iter(model.model_of(name).parameters))]), *results]
    notes = [f"{len(found):,} runs of {len(reduced):,} configurations"]
    if len(reduced) > _SHOWN_MAX:
        notes.append(f"{_SHOWN_MAX} of {len(reduced):,} shown: --json prints all")
    shape.show(
        f"sweep of {name}",
        columns,
        [[row[key] for key in columns] for row in reduced[:_SHOWN_MAX]],
        as_json=as_json,
        document={"model": name, "rows": found, "summary": reduced},
        notes=notes,
    )
    shape.plot_to(picture, lambda: _chart(name, reduced, swept))


def _in_pool(
    name: str, rows: list[model.Row], workers: int, out: Path | None
) -> tuple[list[model.Row], list[model.Row]]:
    writer: Any = extras.load(_SPARK) if out is not None else None
    if writer is not None:
        writer.check_absent(out)
    with shape.progress("runs", len(rows)) as done:
        found = model.run_pool(name, rows, workers=min(workers, len(rows)), progress=done)
    reduced = model.summaries(name, found)
    if writer is not None:
        writer.write_parquet(out, name, found, reduced)
    return found, reduced


def _with_spark(
    name: str, rows: list[model.Row], master: str, out: Path | None
) -> tuple[list[model.Row], list[model.Row]]:
    job: Any = extras.load(_SPARK)
    if out is not None:
        job.check_absent(out)
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        raise MissingExtra(
            "Spark needs Java 17 or later: on Debian, apt install openjdk-17-jre-headless"
        )
    session = job.session(master)
    try:
        found: tuple[list[model.Row], list[model.Row]] = job.run_spark(session, name, rows, out)
        return found
    finally:
        session.stop()


def _varies(rows: list[model.Row], key: str) -> bool:
    return len({row[key] for row in rows}) > 1


def _chart(name: str, rows: list[model.Row], swept: list[str]) -> Chart:
    """The first numeric swept parameter on the axis, one curve per combination of the others."""
    first = next((key for key in swept if not isinstance(rows[0][key], str)), None)
    if first is None:
        raise click.UsageError("--plot needs a numeric parameter with several values.")
    others = [key for key in swept if key != first]
    results = model.model_of(name).results
    # A prediction, if the model has one, comes first, and the simulated figure second.
    shown = results[:2] if "model" in results[0] else results[:1]
    curves: list[Curve] = []
    groups: dict[tuple[model.Value, ...], list[model.Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in others), []).append(row)
    for colour, (values, members) in enumerate(groups.items()):
        label = ", ".join(f"{key} {value}" for key, value in zip(others, values, strict=True))
        x = [float(row[first]) for row in members]
        for key in shown:
            y = [float(row[key]) for row in members]
            curves.append(Curve(f"{key} {label}".strip(), x, y, "model" not in key, colour))
    return Chart(f"Sweep of {name}", first, ", ".join(shown), tuple(curves))
