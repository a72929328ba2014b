"""`weft model fabriq`: paper 4, hops per pop."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from weft.models import fabriq as model
from weft.models.chart import Chart, Curve

from . import shape


@click.command
@click.option("--servers", type=int, default=64, show_default=True, help="Servers [s].")
@click.option("--messages", type=int, default=64_000, show_default=True, help="Messages [m].")
@click.option("--simulate", is_flag=True, help="Also pop every message from a simulated queue.")
@click.option(
    "--procedure",
    type=click.Choice(model.PROCEDURES),
    default="last-known",
    show_default=True,
    help="With --simulate: which server a pop asks first.",
)
@shape.seed_option
@shape.results
@click.pass_context
def fabriq(
    context: click.Context, servers: int, messages: int, simulate: bool, procedure: str, seed: int,
    as_json: bool, picture: str | None,
) -> None:  # fmt: skip
    """Predict the network hops of a pop in Fabriq (paper 4, section 4.3).

    \b
    Examples:
      weft model fabriq --servers 64 --messages 64000
      weft model fabriq --simulate --procedure fresh-random
    """
    for name in ("procedure", "seed"):
        if not simulate and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} requires --simulate.", context)
    average = model.average_hops(servers, messages)
    imbalance = model.expected_imbalance(servers, messages)
    run = None
    if simulate:
        with shape.progress("pops", messages) as done:
            run = model.simulate(servers, messages, procedure=procedure, seed=seed, progress=done)
    rows: list[list[Any]] = [
        ["hops per pop", average, run.average if run else None],
        ["largest deviation from the mean", imbalance, run.imbalance if run else None],
    ]
    shape.show(
        f"{messages:,} messages on {servers:,} servers",
        ["", "formula", "simulation"],
        rows,
        as_json=as_json,
        document={
            "servers": servers,
            "messages": messages,
            "hops": average,
            "imbalance": imbalance,
            "simulation": shape.plain(run) if run else None,
        },
    )
    shape.plot_to(picture, lambda: _chart(servers, messages, procedure if simulate else "", seed))


def _chart(servers: int, messages: int, procedure: str, seed: int) -> Chart:
    """Hops over the number of messages, from one message up to the given number."""
    counts = sorted({max(1, round(messages ** (each / 24))) for each in range(25)})
    values = [model.average_hops(servers, count) for count in counts]
    curves = [Curve("formula", counts, values)]
    if procedure:
        points = []
        with shape.progress("points of the plot", len(counts)) as done:
            for count in counts:
                run = model.simulate(servers, count, procedure=procedure, seed=seed)
                points.append(run.average)
                done(len(points))
        curves.append(Curve(f"simulation, {procedure}", counts, points, True, 1))
    return Chart(
        f"Fabriq, one consumer and {servers:,} servers",
        "messages [m]",
        "network hops per pop",
        tuple(curves),
        x_log=True,
        y_min=0,
    )
