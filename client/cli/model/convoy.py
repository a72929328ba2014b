"""`weft model convoy`: paper 3, the convoy effect in atomic multicast."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from weft.models import convoy as formula
from weft.models import replicated_skeen, skeen
from weft.models.chart import Chart, Curve

from . import shape


@click.command
@click.option("--processes", type=int, default=4, show_default=True, help="Processes [n].")
@click.option(
    "--destinations", type=int, default=2, show_default=True, help="Destinations of a message [s]."
)
@click.option(
    "--rate", type=float, default=10.0, show_default=True, help="Multicasts per second [lambda_T]."
)
@click.option(
    "--delay-ms",
    type=float,
    default=100.0,
    show_default=True,
    help="Mean transit time of a message, in milliseconds [delta].",
)
@click.option(
    "--batch",
    type=float,
    default=1.0,
    show_default=True,
    help="Messages with one timestamp, in the formula only [beta].",
)
@click.option(
    "--commute",
    type=float,
    default=0.0,
    show_default=True,
    help="Probability that two messages commute [rho].",
)
@click.option(
    "--coordinator/--no-coordinator",
    default=True,
    show_default=True,
    help="One destination collects the timestamps, or all destinations do.",
)
@click.option(
    "--simulate",
    "messages",
    type=int,
    metavar="MESSAGES",
    help="Also simulate the algorithm with this many messages.",
)
@click.option(
    "--delays",
    type=click.Choice(skeen.DELAYS),
    default="constant",
    show_default=True,
    help="With --simulate: the distribution of transit times.",
)
@click.option(
    "--clock",
    type=click.Choice(skeen.CLOCKS),
    default="counter",
    show_default=True,
    help="With --simulate: timestamps from the paper's counter or from hybrid clocks.",
)
@click.option(
    "--skew-ms",
    type=float,
    default=0.0,
    show_default=True,
    help="With --simulate and --clock hybrid: difference between the first and the last clock.",
)
@click.option(
    "--replicated",
    is_flag=True,
    help="With --simulate: destinations are replicated partitions, as ordered queues of Weft are.",
)
@shape.seed_option
@shape.results
@click.pass_context
def convoy(
    context: click.Context, /, messages: int | None, batch: float, replicated: bool, seed: int,
    as_json: bool, picture: str | None, **given: Any,
) -> None:  # fmt: skip
    """Predict how long atomic multicasts wait for each other (paper 3).

    \b
    Examples:
      weft model convoy --rate 50
      weft model convoy --rate 50 --simulate 5000 --clock hybrid --plot convoy.png
      weft model convoy --rate 50 --simulate 5000 --clock hybrid --replicated
    """
    _check(context, messages, given["clock"])
    # With 0 every pair conflicts: algorithm 1 itself is the same, and quicker.
    model = skeen.MulticastModel(**{**given, "commute": given["commute"] or None})
    if messages is not None and batch != 1:
        raise click.UsageError("--batch has no meaning for --simulate: leave one out.", context)
    run = None
    if messages is not None:
        with shape.progress("messages", messages) as done:
            run = _simulator(replicated)(model, messages, seed=seed, progress=done)
    conflict = formula.conflict_probability(model.processes, model.destinations)
    wait = _formula(model, model.rate, batch)
    base = (3 if model.coordinator else 2) * model.delay_ms
    simulated = [run.base_ms, run.convoy_ms, run.latency_ms] if run else [None] * 3
    names = ("without a convoy, ms", "convoy effect [CE], ms", "latency, ms")
    figures = [base, wait, base + wait]
    rows = [list(row) for row in zip(names, figures, simulated, strict=True)]
    shape.show(
        f"{model.rate:g} multicasts/s to {model.destinations} of {model.processes} processes",
        ["", "formula", "simulation"],
        rows,
        as_json=as_json,
        document={
            "parameters": {**shape.plain(model), "batch": batch, "replicated": replicated},
            "conflict_probability": conflict,
            "formula": {"base_ms": base, "convoy_ms": wait, "latency_ms": base + wait},
            "simulation": _brief(run),
        },
        notes=[f"two messages have a destination in common with probability {conflict:.4f}"],
    )
    shape.plot_to(picture, lambda: _chart(model, batch, messages, seed, replicated=replicated))


def _check(context: click.Context, messages: int | None, clock: str) -> None:
    """Refuses options that would have no effect."""

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) is ParameterSource.COMMANDLINE

    for name in ("delays", "clock", "skew_ms", "replicated", "seed"):
        if messages is None and is_given(name):
            raise click.UsageError(f"--{name.replace('_', '-')} requires --simulate.", context)
    if clock != "hybrid" and is_given("skew_ms"):
        raise click.UsageError("--skew-ms requires --clock hybrid.", context)


def _formula(model: skeen.MulticastModel, rate: float, batch: float) -> float:
    conflict = formula.conflict_probability(model.processes, model.destinations)
    return formula.convoy_ms(
        rate,
        model.delay_ms,
        conflict,
        batch=batch,
        commute=model.commute or 0.0,
        coordinator=model.coordinator,
    )


def _brief(run: skeen.MulticastRun | None) -> dict[str, Any] | None:
    """Without the deliveries themselves."""
    if run is None:
        return None
    return {key: value for key, value in shape.plain(run).items() if not isinstance(value, tuple)}


def _simulator(replicated: bool) -> Callable[..., skeen.MulticastRun]:
    return replicated_skeen.simulate_replicated if replicated else skeen.simulate


def _chart(
    model: skeen.MulticastModel, batch: float, messages: int | None, seed: int, *, replicated: bool
) -> Chart:
    """The convoy effect over rates up to twice the given one."""
    rates = [model.rate * each / 10 for each in range(1, 21)]
    curves = [Curve("formula", rates, [_formula(model, rate, batch) for rate in rates])]
    if messages is not None:
        points = []
        with shape.progress("points of the plot", len(rates)) as done:
            for rate in rates:
                at_rate = dataclasses.replace(model, rate=rate)
                run = _simulator(replicated)(at_rate, messages, seed=seed)
                points.append(run.convoy_ms)
                done(len(points))
        label = f"simulation, {model.clock} clock, {model.delays} delays"
        label += ", replicated" if replicated else ""
        curves.append(Curve(label, rates, points, True, 1))
    return Chart(
        f"Convoy effect, n = {model.processes}, s = {model.destinations}, "
        f"$\\delta$ = {model.delay_ms:g} ms",
        "multicasts per second [$\\lambda_T$]",
        "convoy effect CE [ms]",
        tuple(curves),
        y_min=0,
    )
