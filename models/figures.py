"""`python -m weft.models.figures`: the papers' figures as PNG files, from the corrected models.

Figures 2 to 9 of paper 1, figure 8 of paper 2, figures 4 and 5 of paper 3. Figure 4 of paper 3 fits
measurements of another paper that its text does not print: here the model is drawn beside the
simulator instead.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from . import convoy, queue_figures, shares, skeen
from .chart import Chart, Curve, draw, require_matplotlib

#: Figure 4 of paper 3.
PROCESSES: Final = 4
DESTINATIONS: Final = 2
DELAY_MS: Final = 100.0
#: Added to errors in percent: rounding would stretch a logarithmic axis down to 1e-13.
_ERROR_MIN: Final = 1e-3


def shares_figure_8(objects: int, *, overload: float, letter: str, state: str) -> Chart:
    """How many configurations exceed a relative error: 10 tasks, items of unequal cost."""
    configurations = max(5, min(100, objects // 1_000))
    curves = []
    for colour, (rule, schedulers) in enumerate(
        (("carried", 1), ("carried", 2), ("printed", 1), ("printed", 2))
    ):
        rng = random.Random(1)
        errors = sorted(
            _ERROR_MIN
            + 100
            * shares.simulate(
                shares.random_tasks(rng, overload=overload * schedulers),
                2.0,
                seed=seed,
                schedulers=schedulers,
                rule=shares.RULES[rule],
            ).error
            for seed in range(configurations)
        )
        above = [100 * (1 - at / configurations) for at in range(configurations)]
        plural = "" if schedulers == 1 else "s"
        label = f"debt {'carried over' if rule == 'carried' else 'forgiven, as printed'}, "
        label += f"{schedulers} scheduler{plural}"
        curves.append(Curve(label, errors, above, colour=colour, dashed=rule == "printed"))
    return Chart(
        f"Paper 2, figure 8({letter}): error of the served rates, {state}",
        "relative error of the rate vector [%]",
        "configurations with at least this error [%]",
        tuple(curves),
        x_log=True,
        y_min=0,
    )


def convoy_figure_4(objects: int) -> Chart:
    rates = (1, 2, 5, 10, 15, 20, 30, 40, 50)
    conflict = convoy.conflict_probability(PROCESSES, DESTINATIONS)
    curves = [
        Curve(
            f"equation 6, batches of {batch}",
            rates,
            [
                convoy.latency_ms(rate, DELAY_MS, conflict, batch=batch, coordinator=False)
                for rate in rates
            ],
            colour=colour,
        )
        for colour, batch in enumerate((1, 3, 9))
    ]
    cases = (("counter", "constant"), ("hybrid", "constant"), ("counter", "exponential"))
    for colour, (clock, delays) in enumerate(cases, len(curves)):
        points = [
            skeen.simulate(
                skeen.MulticastModel(
                    rate=rate, clock=clock, delays=delays, delay_ms=DELAY_MS, coordinator=False
                ),
                max(200, objects // 10),
            ).latency_ms
            for rate in rates
        ]
        curves.append(
            Curve(f"simulation, {clock} clock, {delays} delays", rates, points, True, colour)
        )
    return Chart(
        "Paper 3, figure 4: latency without a coordinator, n = 4, s = 2, $\\delta$ = 100 ms",
        "multicasts per second [$\\lambda_T$]",
        "mean latency [ms]",
        tuple(curves),
        y_min=0,
    )


def convoy_figure_5a(objects: int) -> Chart:
    rates = tuple(each / 2 for each in range(201))
    curves = [
        Curve(
            f"$P_c$ = {conflict}",
            rates,
            [convoy.convoy_ms(rate, DELAY_MS, conflict) for rate in rates],
            colour=colour,
        )
        for colour, conflict in enumerate((1.0, 0.75, 0.5, 0.25))
    ]
    return Chart(
        "Paper 3, figure 5(a): equation 2, $\\delta$ = 100 ms",
        "multicasts per second [$\\lambda_T$]",
        "convoy effect CE [ms]",
        tuple(curves),
        y_min=0,
    )


def convoy_figure_5b(objects: int) -> Chart:
    curves = []
    for colour, size in enumerate((2, 3, 5, 10)):
        counts = range(size, 101)
        values = [convoy.conflict_probability(count, size) for count in counts]
        curves.append(Curve(f"s = {size}", counts, values, colour=colour))
    return Chart(
        "Paper 3, figure 5(b): two messages have a destination in common",
        "processes [n]",
        "probability of a conflict [$P_c$]",
        tuple(curves),
        y_min=0,
    )


def charts() -> Iterator[tuple[str, Callable[[int], Chart]]]:
    """File name without suffix -> the function from a number of objects to the chart."""
    yield from queue_figures.charts()
    yield (
        "shares-figure-8a",
        lambda objects: shares_figure_8(objects, overload=2.0, letter="a", state="saturated"),
    )
    yield (
        "shares-figure-8b",
        lambda objects: shares_figure_8(objects, overload=0.8, letter="b", state="80 % load"),
    )
    yield "convoy-figure-4", convoy_figure_4
    yield "convoy-figure-5a", convoy_figure_5a
    yield "convoy-figure-5b", convoy_figure_5b


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="weft.models.figures", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/models"), help="the folder")
    parser.add_argument(
        "--objects", type=int, default=100_000, help="simulated objects per point (200 or more)"
    )
    parser.add_argument("--only", default="", help="draw figures whose name contains this text")
    given = parser.parse_args(words)
    if given.objects < 200:
        parser.error("--objects must be 200 or more")
    require_matplotlib()
    chosen = [(name, make) for name, make in charts() if given.only in name]
    if not chosen:
        parser.error(f"no figure has {given.only!r} in its name")
    given.out.mkdir(parents=True, exist_ok=True)
    for name, make in chosen:
        began = time.process_time()
        draw(make(given.objects), given.out / f"{name}.png")
        print(f"{given.out / name}.png  {time.process_time() - began:.1f} s of CPU", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
