"""Figures 2 to 9 of paper 1, from the corrected model and the simulator.

As in section 4.1.1: 100 producers with 5 buffers, mu = lambda = 0.01, a message takes 1 tick; the
number of consumers sets the load. Lines are the model, points the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from .chart import Chart, Curve
from .johnson import ProducerType, QueueModel, QueueSolution, homogeneous, solve
from .johnson_sim import QueueRun, simulate

LOADS: Final = (50, 100, 150, 200)
HOPS: Final = tuple(range(1, 11))
#: Section 4.2.1: producers that are fast, and how much faster than the others.
UNBALANCED: Final = {"67/50": (50, 2.0), "50/10": (10, 9.0)}
_HOPS_LABEL: Final = "maximum number of probes [$h_{max}$]"
_WAIT_LABEL: Final = "waiting time W [ticks]"


@cache
def _solved(model: QueueModel) -> QueueSolution:
    return solve(model)


@cache
def _simulated(model: QueueModel, objects: int, uniform: bool = False) -> QueueRun:
    return simulate(model, objects, seed=1, uniform=uniform)


def _by_hops(
    title: str, y_label: str, measure: Callable[[QueueSolution | QueueRun], float], objects: int
) -> Chart:
    curves = []
    for colour, load in enumerate(LOADS):
        models = [homogeneous(100, load, max_hops=hops) for hops in HOPS]
        lines = [measure(_solved(model)) for model in models]
        points = [measure(_simulated(model, objects)) for model in models]
        curves.append(Curve(f"load {load} %, model", HOPS, lines, colour=colour))
        curves.append(Curve(f"load {load} %, simulation", HOPS, points, True, colour))
    return Chart(title, _HOPS_LABEL, y_label, tuple(curves), y_min=0)


def figure_2(objects: int) -> Chart:
    return _by_hops(
        "Paper 1, figure 2: probes per request",
        "mean number of probes [$h_{avg}$]",
        lambda found: found.probes,
        objects,
    )


def figure_3(objects: int) -> Chart:
    return _by_hops(
        "Paper 1, figure 3: waiting time", _WAIT_LABEL, lambda found: found.wait, objects
    )


def figure_4(objects: int) -> Chart:
    curves = [
        Curve(
            f"load {load} %, model",
            HOPS,
            [_solved(homogeneous(100, load, max_hops=hops)).full[0] for hops in HOPS],
            colour=colour,
        )
        for colour, load in enumerate(LOADS)
    ]
    return Chart(
        "Paper 1, figure 4: blocked producers",
        _HOPS_LABEL,
        "probability that a producer is blocked [p(f)]",
        tuple(curves),
        y_min=0,
    )


def figure_5(objects: int) -> Chart:
    buffers = tuple(range(1, 16))
    curves = [
        Curve(
            f"load {load} %, model",
            buffers,
            [_solved(homogeneous(100, load, max_hops=5, buffers=each)).full[0] for each in buffers],
            colour=colour,
        )
        for colour, load in enumerate(LOADS)
    ]
    return Chart(
        "Paper 1, figure 5: blocked producers and buffers, $h_{max}$ = 5",
        "buffers per producer [f]",
        "probability that a producer is blocked [p(f)]",
        tuple(curves),
        y_min=0,
    )


def figure_6(objects: int) -> Chart:
    """Uniform production times have a mean of 75 ticks: the model is drawn at that load, too."""
    curves = []
    for colour, load in enumerate((100, 200)):
        nominal = [homogeneous(100, load, max_hops=hops) for hops in HOPS]
        real = [homogeneous(100, load, max_hops=hops, produce_rate=1 / 75) for hops in HOPS]
        points = [_simulated(model, objects, uniform=True).wait for model in nominal]
        lines = [_solved(model).wait for model in real]
        as_printed = [_solved(model).wait for model in nominal]
        curves += [
            Curve(f"{load} % nominal, model", HOPS, as_printed, colour=colour, dashed=True),
            Curve(f"{load} % nominal, model at 0.75 of it", HOPS, lines, colour=colour),
            Curve(f"{load} % nominal, simulation, uniform[50, 100]", HOPS, points, True, colour),
        ]
    return Chart(
        "Paper 1, figure 6: uniform production times", _HOPS_LABEL, _WAIT_LABEL, tuple(curves),
        y_min=0,
    )  # fmt: skip


def unbalanced(fast: int, factor: float, fraction: float, max_hops: int) -> QueueModel:
    """100 producers and consumers at load 1; `fast` producers are `factor` times as fast."""
    slow = 100 * 0.01 / (fast * factor + 100 - fast)
    kinds = (
        ProducerType(fast, factor * slow, fraction),
        ProducerType(100 - fast, slow, 1 - fraction),
    )
    return QueueModel(kinds, 100, 0.01, max_hops)


def figure_7(objects: int) -> Chart:
    curves = []
    for colour, (name, (fast, factor)) in enumerate(UNBALANCED.items()):
        models = [unbalanced(fast, factor, fast / 100, hops) for hops in HOPS]
        lines = [_solved(model).wait for model in models]
        points = [_simulated(model, objects).wait for model in models]
        curves.append(Curve(f"{name}, model", HOPS, lines, colour=colour))
        curves.append(Curve(f"{name}, simulation", HOPS, points, True, colour))
    return Chart(
        "Paper 1, figure 7: fast and slow producers, probed equally",
        _HOPS_LABEL,
        _WAIT_LABEL,
        tuple(curves),
        y_min=0,
    )


def figure_8(objects: int) -> Chart:
    fractions = tuple(each / 20 for each in range(1, 20))
    curves = []
    for colour, (name, (fast, factor)) in enumerate(UNBALANCED.items()):
        models = [unbalanced(fast, factor, fraction, 3) for fraction in fractions]
        lines = [_solved(model).wait for model in models]
        points = [_simulated(model, objects // 2).wait for model in models]
        curves.append(Curve(f"{name}, model", fractions, lines, colour=colour))
        curves.append(Curve(f"{name}, simulation", fractions, points, True, colour))
    return Chart(
        "Paper 1, figure 8: requests directed to fast producers, $h_{max}$ = 3",
        "fraction of the probes to fast producers [$frac_{hi}$]",
        _WAIT_LABEL,
        tuple(curves),
        y_log=True,
    )


def figure_9(objects: int) -> Chart:
    reaches = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)
    curves = []
    for colour, hops in enumerate((1, 2, 3, 5)):
        models = [homogeneous(100, 100, max_hops=hops, finite=True, reach=r) for r in reaches]
        lines = [_solved(model).wait for model in models]
        points = [_simulated(model, objects).wait for model in models]
        curves.append(Curve(f"$h_{{max}}$ = {hops}, model", reaches, lines, colour=colour))
        curves.append(Curve(f"$h_{{max}}$ = {hops}, simulation", reaches, points, True, colour))
    return Chart(
        "Paper 1, figure 9: producers that a consumer may probe",
        "producers that a consumer may probe [$M_j$]",
        _WAIT_LABEL,
        tuple(curves),
        x_log=True,
        y_log=True,
    )


def charts() -> Iterator[tuple[str, Callable[[int], Chart]]]:
    """File name -> the function from a number of simulated objects to the chart."""
    made = (figure_2, figure_3, figure_4, figure_5, figure_6, figure_7, figure_8, figure_9)
    for number, function in enumerate(made, 2):
        yield f"queue-figure-{number}", function
