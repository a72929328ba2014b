"""`weft model queue`: paper 1, the stochastic distributed queue."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import click

from weft.models import johnson, johnson_sim
from weft.models.chart import Chart, Curve

from . import shape

#: The maximum of the plot's axis, and the simulated objects of each of its points.
_PLOT_HOPS: Final = 10
_ROWS: Final = (
    ("probes per request [h_avg]", "probes"),
    ("waiting time [W], ticks", "wait"),
    ("a probe finds no object [p_mt]", "empty"),
    ("utilization of producers [U_p]", "producer_utilization"),
    ("objects per tick [T]", "throughput"),
)


@click.command
@click.option("--producers", type=int, default=100, show_default=True, help="Producers [N].")
@click.option("--consumers", type=int, default=100, show_default=True, help="Consumers [M].")
@click.option(
    "--produce-rate",
    type=float,
    default=0.01,
    show_default=True,
    help="Objects per tick that a producer makes [lambda].",
)
@click.option(
    "--consume-rate",
    type=float,
    default=0.01,
    show_default=True,
    help="Objects per tick that a consumer processes [mu].",
)
@click.option(
    "--buffers", type=int, default=5, show_default=True, help="Objects that a producer stores [f]."
)
@click.option(
    "--max-hops",
    type=int,
    default=3,
    show_default=True,
    help="Probes before a request blocks [h_max].",
)
@click.option(
    "--message-time",
    type=float,
    default=1.0,
    show_default=True,
    help="Ticks that a message takes [r].",
)
@click.option(
    "--reach",
    type=int,
    default=None,
    help="Producers that a consumer may probe [M_j]; requires as many producers as consumers.  "
    "[default: all]",
)
@click.option(
    "--finite",
    is_flag=True,
    help="Blocked consumers send no requests: equation 3 instead of its approximation 4.",
)
@click.option(
    "--simulate",
    "objects",
    type=int,
    metavar="OBJECTS",
    help="Also simulate the protocol until this many objects are consumed.",
)
@shape.seed_option
@shape.results
def queue(objects: int | None, seed: int, as_json: bool, picture: str | None, **given: Any) -> None:
    """Predict waiting time and probes of a stochastic distributed queue (paper 1).

    Near load 1 a small cluster waits longer than the model says: use --simulate there.

    \b
    Examples:
      weft model queue --consumers 200 --max-hops 5
      weft model queue --producers 5 --consumers 5 --simulate 100000 --plot queue.png
    """
    if given["reach"] is not None:
        given["finite"] = True
        if given["producers"] != given["consumers"]:
            raise click.UsageError("--reach requires as many producers as consumers.")
    producers, consumers = given.pop("producers"), given.pop("consumers")
    model = johnson.homogeneous(producers, consumers, **given)
    found = johnson.solve(model)
    run = None
    if objects is not None:
        with shape.progress("objects", objects) as done:
            run = johnson_sim.simulate(model, objects, seed=seed, progress=done)
    rows: list[list[Any]] = [
        [label, getattr(found, name), getattr(run, name, None)] for label, name in _ROWS
    ]
    notes = [f"load {100 * model.load:g} %"]
    if run is not None:
        notes.append(f"95 % confidence of the simulated waiting time: +-{run.wait_error:.4f} ticks")
    shape.show(
        f"{producers:,} producers, {consumers:,} consumers, at most {model.max_hops} probes",
        ["", "model", "simulation"],
        rows,
        as_json=as_json,
        document={
            "parameters": shape.plain(model),
            "model": shape.plain(found),
            "simulation": shape.plain(run) if run is not None else None,
        },
        notes=notes,
    )
    shape.plot_to(picture, lambda: _chart(model, objects, seed))


def _chart(model: johnson.QueueModel, objects: int | None, seed: int) -> Chart:
    """Waiting time over h_max; the other parameters as given."""
    hops = range(1, max(_PLOT_HOPS, model.max_hops) + 1)
    models = [dataclasses.replace(model, max_hops=each) for each in hops]
    curves = [Curve("model", hops, [johnson.solve(each).wait for each in models])]
    if objects is not None:
        with shape.progress("points of the plot", len(models)) as done:
            points = []
            for each in models:
                points.append(johnson_sim.simulate(each, objects, seed=seed).wait)
                done(len(points))
        curves.append(Curve("simulation", hops, points, True, 1))
    return Chart(
        f"Stochastic queue, N = {model.size}, M = {model.consumers}, load {100 * model.load:g} %",
        "maximum number of probes [$h_{max}$]",
        "waiting time W [ticks]",
        tuple(curves),
        y_min=0,
    )
