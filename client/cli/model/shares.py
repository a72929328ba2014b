"""`weft model shares`: paper 2, the rates that a credit scheduler serves."""

from __future__ import annotations

import math
from typing import Any

import click
from click.core import ParameterSource

from weft.models import shares as model
from weft.models.chart import Bars

from . import shape


@click.command
@click.argument("tasks", nargs=-1, required=True, metavar="SHARE:RATE...")
@click.option(
    "--capacity",
    type=float,
    default=10_000.0,
    show_default=True,
    help="Messages per second that the scheduler serves in all [R_max].",
)
@click.option(
    "--simulate",
    "seconds",
    type=float,
    metavar="SECONDS",
    help="Also run the scheduler for this long, in virtual time.",
)
@click.option(
    "--schedulers",
    type=int,
    default=1,
    show_default=True,
    help="With --simulate: scheduling threads; together they serve the capacity.",
)
@click.option(
    "--reset",
    type=click.Choice(list(model.RULES)),
    default="carried",
    show_default=True,
    help="With --simulate: carry debt over the end of a period, or forgive it as the paper prints.",
)
@shape.seed_option
@shape.results
@click.pass_context
def shares(
    context: click.Context, tasks: tuple[str, ...], capacity: float, seconds: float | None,
    schedulers: int, reset: str, seed: int, as_json: bool, picture: str | None,
) -> None:  # fmt: skip
    """Divide a capacity among tasks by shares (paper 2).

    Each task is a share and the messages per second that it offers. Capacity that a task does not
    use goes to the others, in proportion to the shares.

    \b
    Examples:
      weft model shares 0.5:4000 0.3:6000 0.2:5000
      weft model shares 0.5:4000 0.3:6000 0.2:5000 --simulate 10 --plot shares.png
    """
    if seconds is None:
        for name in ("schedulers", "reset", "seed"):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name} requires --simulate.", context)
    given = [_task(word) for word in tasks]
    parts = model.normalised([share for share, _ in given])
    offered = [rate for _, rate in given]
    rates = model.max_min_rates(parts, offered, capacity)
    total = math.fsum(share for share, _ in given)
    notes = [] if math.isclose(total, 1) else [f"shares sum to {total:g}: normalised to 1"]
    served: list[float] | None = None
    run = None
    if seconds is not None:
        loads = [
            model.TaskLoad(part, rate, schedulers / capacity)
            for part, rate in zip(parts, offered, strict=True)
        ]
        with shape.progress("simulating", 1):
            run = model.simulate(
                loads, seconds, seed=seed, schedulers=schedulers, rule=model.RULES[reset]
            )
        served = [count / run.elapsed_s for count in run.items]
        notes.append(f"error of the rate vector {100 * run.error:.2f} %")
    rows: list[list[Any]] = [
        [f"{part:g}", offered[at], rates[at], served[at] if served else None]
        for at, part in enumerate(parts)
    ]
    shape.show(
        f"{len(rows)} tasks, {capacity:,g} messages per second",
        ["share", "offered", "served, formula", "served, simulation"],
        rows,
        as_json=as_json,
        document={
            "shares": parts, "shares_normalised": not math.isclose(total, 1), "offered": offered,
            "capacity": capacity, "served": rates, "simulated": served,
            "error": run.error if run else None,
        },
        notes=notes,
    )  # fmt: skip
    names = tuple(f"share {part:.3g}" for part in parts)
    series = {"offered": tuple(offered), "served, formula": tuple(rates)}
    if served is not None:
        series["served, simulation"] = tuple(served)
    shape.plot_to(
        picture, lambda: Bars("Rates by weighted shares", "messages per second", names, series)
    )


def _task(word: str) -> tuple[float, float]:
    share, colon, rate = word.partition(":")
    try:
        found = float(share), float(rate)
    except ValueError:
        found = math.nan, math.nan
    if not colon or any(not math.isfinite(each) or each < 0 for each in found):
        raise click.BadParameter(
            f"{word!r} is not SHARE:RATE, two numbers of 0 or more, such as 0.5:4000"
        )
    return found
