"""The convoy effect of real node cores in virtual time, beside the simulator of the model.

``python -m tests.sim.convoy`` runs four nodes with one ordered queue each (``convoy_nodes``).
Multicasts to some of the queues arrive at random; two of them conflict if they have the same
conflict key. The same multicasts, with the same transit times, number of commits and hybrid clocks,
go through ``weft.models.replicated_skeen``. `rho` is the probability that two multicasts commute.

| figure          | of the nodes, and of the simulator                                             |
|-----------------|--------------------------------------------------------------------------------|
| latency         | from the multicast to the listed message, mean over all destinations           |
| base            | from the multicast to the sequence number at the destination                   |
| convoy effect   | from there to the listed message: the metric weft_multicast_convoy_seconds     |
| algorithm 1     | the convoy effect of the paper's processes, without replication, hybrid clocks |

Bounds: the convoy effect of multicasts that all conflict is within 8 % of the simulator's; the
ratio of the convoy effect to that at rho = 0 is within .04 for every rho; no multicast waits at
rho = 1; and one multicast at a time has exactly the latency of its messages and commits.
The paper's formula (2) is drawn beside them (`--plot`), and bounds nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from weft.models import convoy as formula
from weft.models import skeen
from weft.models.chart import Chart, Curve, draw, require_matplotlib
from weft.models.replicated_skeen import lone_ms, simulate_replicated
from weft.models.skeen import DELAYS, MulticastModel, MulticastRun

from .convoy_nodes import ConvoyRun

PLOTS: Final = Path(__file__).parents[2] / "docs" / "plots"
#: A fifth of the paper's mean transit time, and five times its rates.
DELAY_MS: Final = 20.0
RATES: Final = (10.0, 50.0, 150.0)
RATE: Final = 50.0
DESTINATIONS: Final = (2, 3, 4)
#: Conflict keys; None: each multicast has its own key.
KEYS: Final = (1, 2, 4, 10, None)
CONVOY_BOUND: Final = 0.08
RATIO_BOUND: Final = 0.04
#: One multicast at a time: this many, and further apart than any latency.
LONE: Final = 20
LONE_EVERY_MS: Final = 1_000


class Case(NamedTuple):
    """One load."""

    delays: str
    rate: float
    destinations: int = 2
    keys: int | None = 1

    @property
    def commute(self) -> float:
        return 1.0 if self.keys is None else 1 - 1 / self.keys

    @property
    def model(self) -> MulticastModel:
        return MulticastModel(
            destinations=self.destinations, rate=self.rate, delay_ms=DELAY_MS, delays=self.delays,
            clock="hybrid", keys=self.keys, commute=1.0 if self.keys is None else None,
        )  # fmt: skip


class Compared(NamedTuple):
    case: Case
    nodes: MulticastRun
    simulator: MulticastRun
    #: The convoy effect of algorithm 1.
    paper_ms: float

    @property
    def off(self) -> float:
        """How far the nodes' convoy effect is from the simulator's, relative to it."""
        wanted = self.simulator.convoy_ms
        return self.nodes.convoy_ms / wanted - 1 if wanted else float(self.nodes.convoy_ms > 0)


def cases() -> Iterator[Case]:
    for delays in DELAYS:
        yield from (Case(delays, rate) for rate in RATES)
        yield from (Case(delays, RATE, keys=keys) for keys in KEYS[1:])
        yield from (Case(delays, RATE, destinations) for destinations in DESTINATIONS[1:])


def compare(case: Case, messages: int, seed: int = 1) -> Compared:
    run = ConvoyRun(case.model, messages, seed)
    return Compared(
        case,
        run.run(),
        simulate_replicated(case.model, messages, seed=seed, followers=run.followers),
        skeen.simulate(case.model, messages, seed=seed).convoy_ms,
    )


def lone(destinations: int, seed: int = 1) -> MulticastRun:
    """One multicast at a time, with constant transit times."""
    model = Case("constant", RATE, destinations).model
    return ConvoyRun(model, LONE, seed, every_ms=LONE_EVERY_MS).run()


def misses(found: Sequence[Compared], lonely: dict[int, float]) -> list[str]:
    """The bounds that do not hold."""
    missed: list[str] = []
    for each in found:
        case = each.case
        if case.keys == 1 and abs(each.off) > CONVOY_BOUND:
            missed.append(f"{case}: the convoy effect is off by {each.off:+.1%}")
        ratios = ratio_to_all(found, each)
        if ratios is not None and abs(ratios[0] - ratios[1]) > RATIO_BOUND:
            missed.append(f"{case}: the ratio is {ratios[0]:.3f}, simulated {ratios[1]:.3f}")
        if case.keys is None and each.nodes.convoy_max_ms:
            missed.append(f"{case}: a multicast waited for {each.nodes.convoy_max_ms} ms")
    for destinations, latency in lonely.items():
        wanted = lone_ms(Case("constant", RATE, destinations).model)
        if abs(latency - wanted) > 1e-9:
            missed.append(f"{destinations} destinations: alone {latency} ms, not {wanted} ms")
    return missed


def ratio_to_all(found: Sequence[Compared], one: Compared) -> tuple[float, float] | None:
    """The convoy effect relative to that at rho = 0, of the nodes and of the simulator."""
    every = one.case._replace(keys=1)
    base = next((each for each in found if each.case == every), None)
    if base is None or one.case.keys == 1:
        return None
    return (
        one.nodes.convoy_ms / base.nodes.convoy_ms,
        one.simulator.convoy_ms / base.simulator.convoy_ms,
    )


# --- output -----------------------------------------------------------------------------------


HEADS: Final = (
    "delays       rate  d    rho |  latency     base   convoy | simulated     base   convoy     off"
    " |  ratio  simulated | algorithm 1"
)


def line(found: Sequence[Compared], each: Compared) -> str:
    case, nodes, model = each.case, each.nodes, each.simulator
    ratios = ratio_to_all(found, each)
    both = " " * 17 if ratios is None else f"{ratios[0]:>6.3f} {ratios[1]:>10.3f}"
    return (
        f"{case.delays:<11} {case.rate:>5g} {case.destinations:>2} {case.commute:>6.3f} | "
        f"{nodes.latency_ms:>8.2f} {nodes.base_ms:>8.2f} {nodes.convoy_ms:>8.3f} | "
        f"{model.latency_ms:>9.2f} {model.base_ms:>8.2f} {model.convoy_ms:>8.3f} "
        f"{each.off:>+7.1%} | {both} | {each.paper_ms:>8.3f}"
    )


def document(
    found: Sequence[Compared], lonely: dict[int, float], missed: list[str], messages: int, seed: int
) -> dict[str, Any]:
    def brief(run: MulticastRun) -> dict[str, Any]:
        return {
            "latency_ms": run.latency_ms, "base_ms": run.base_ms, "convoy_ms": run.convoy_ms,
            "convoy_max_ms": run.convoy_max_ms,
        }  # fmt: skip

    return {
        "messages": messages,
        "seed": seed,
        "delay_ms": DELAY_MS,
        "loads": [
            {
                **each.case._asdict(), "commute": each.case.commute, "nodes": brief(each.nodes),
                "simulator": brief(each.simulator), "algorithm_1_convoy_ms": each.paper_ms,
                "formula_2_ms": formula_ms(each.case), "off": each.off,
                "ratio": ratio_to_all(found, each),
            }
            for each in found
        ],
        "alone_ms": lonely,
        "missed": missed,
    }  # fmt: skip


def formula_ms(case: Case) -> float:
    conflict = formula.conflict_probability(case.model.processes, case.destinations)
    return formula.convoy_ms(case.rate, DELAY_MS, conflict, commute=case.commute)


def charts(found: Sequence[Compared]) -> Iterator[tuple[str, Chart]]:
    def curves(x: Callable[[Case], float], chosen: Callable[[Case], bool]) -> tuple[Curve, ...]:
        made: list[Curve] = []
        for colour, delays in enumerate(DELAYS):
            own = [each for each in found if each.case.delays == delays and chosen(each.case)]
            own.sort(key=lambda each: x(each.case))
            at = [x(each.case) for each in own]
            nodes = [each.nodes.latency_ms for each in own]
            simulated = [each.simulator.latency_ms for each in own]
            made.append(Curve(f"nodes, {delays} delays", at, nodes, True, colour))
            made.append(Curve(f"simulator, {delays} delays", at, simulated, colour=colour))
        alone = [lone_ms(each.case.model) + formula_ms(each.case) for each in own]
        made.append(Curve("alone, and formula (2)", at, alone, colour=len(DELAYS), dashed=True))
        return tuple(made)

    yield (
        "convoy-destinations",
        Chart(
            f"Multicasts to ordered queues, {RATE:g}/s on 4 nodes, $\\delta$ = {DELAY_MS:g} ms",
            "destinations",
            "mean latency [ms]",
            curves(
                lambda case: case.destinations, lambda case: case.keys == 1 and case.rate == RATE
            ),
            y_min=0,
        ),
    )
    yield (
        "convoy-conflicts",
        Chart(
            f"Multicasts to 2 ordered queues, {RATE:g}/s on 4 nodes, $\\delta$ = {DELAY_MS:g} ms",
            "conflict probability [$1 - \\rho$]",
            "mean latency [ms]",
            curves(
                lambda case: 1 - case.commute,
                lambda case: case.destinations == 2 and case.rate == RATE,
            ),
            y_min=0,
        ),
    )


@contextmanager
def _results(todo: Sequence[Case], work: Callable[[Case], Compared], jobs: int) -> Iterator[
    Iterator[Compared]
]:  # fmt: skip
    if jobs == 1:
        yield map(work, todo)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield pool.map(work, todo)


def _show_progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {of} loads", end="\r", file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000, help="multicasts of each load")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes that run loads")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--plot", action="store_true", help="draw the plots of docs/models.md")
    asked = parser.parse_args(words)
    if min(asked.messages, asked.jobs) < 1:
        parser.error("--messages and --jobs must be 1 or more")
    if asked.plot:
        require_matplotlib()
    todo, found = list(cases()), list[Compared]()
    work = partial(compare, messages=asked.messages, seed=asked.seed)
    with _results(todo, work, asked.jobs) as results:
        _show_progress(0, len(todo))
        if not asked.json:
            print(HEADS, flush=True)
        for each in results:
            found.append(each)
            _show_progress(len(found), len(todo))
            if not asked.json:
                print(line(found, each), flush=True)
    lonely = {each: lone(each, asked.seed).latency_ms for each in DESTINATIONS}
    missed = misses(found, lonely)
    if asked.json:
        print(json.dumps(document(found, lonely, missed, asked.messages, asked.seed), indent=2))
    else:
        for destinations, latency in lonely.items():
            wanted = lone_ms(Case("constant", RATE, destinations).model)
            print(f"alone, {destinations} destinations: {latency:.3f} ms, base {wanted:.3f} ms")
        for miss in missed:
            print("missed:", miss)
        if not missed:
            print("every bound holds")
    if asked.plot:
        PLOTS.mkdir(exist_ok=True)
        for name, chart in charts(found):
            draw(chart, PLOTS / f"{name}.png")
    return len(missed)


if __name__ == "__main__":
    sys.exit(main())
