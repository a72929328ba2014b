"""The short variant of ``python -m tests.sim.convoy``: real node cores beside the simulator.

At constant transit times the two agree about every wait but a few microseconds, the distance of two
timestamps of one partition. With exponential ones the bounds are wide, since few multicasts leave
the noise of the means; the program has the narrow ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from weft.models.chart import Chart
from weft.models.replicated_skeen import lone_ms
from weft.models.skeen import conflict_of, has_cycle
from weft.server.engine import proposal
from weft.server.engine.proposal import Pending

from . import convoy
from .convoy import Case, compare, lone, misses

MESSAGES = 300


def test_the_convoy_at_constant_transit_times_is_the_simulated_one() -> None:
    every, some, none = (
        compare(Case("constant", convoy.RATE, keys=keys), MESSAGES) for keys in (1, 4, None)
    )
    assert every.nodes.convoy_ms == pytest.approx(every.simulator.convoy_ms, rel=0.01)
    assert every.nodes.latency_ms == pytest.approx(every.simulator.latency_ms, rel=0.002)
    ratios = convoy.ratio_to_all([every, some], some)
    assert ratios is not None
    assert ratios[0] == pytest.approx(ratios[1], abs=0.01)
    assert 0.2 < ratios[0] < 0.5
    assert none.nodes.convoy_max_ms == 0
    assert none.nodes.latency_ms == none.simulator.latency_ms, "exactly the base latency"
    assert not misses([every, some, none], {})


def test_the_convoy_at_exponential_transit_times_is_close_to_the_simulated_one() -> None:
    found = compare(Case("exponential", convoy.RATE, keys=3), 2 * MESSAGES)
    assert found.nodes.convoy_ms == pytest.approx(found.simulator.convoy_ms, rel=0.25)
    # The paper's processes are another thing: the comparison tells them apart.
    assert found.nodes.convoy_ms > 2 * found.paper_ms
    assert not has_cycle(found.nodes, conflict_of(found.case.model, 1))
    assert has_cycle(found.nodes), "what commutes has no common order"


@pytest.mark.parametrize("destinations", convoy.DESTINATIONS)
def test_one_multicast_at_a_time_has_exactly_the_base_latency(destinations: int) -> None:
    run = lone(destinations)
    assert run.convoy_max_ms == 0
    assert run.latency_ms == lone_ms(Case("constant", convoy.RATE, destinations).model)


def test_the_program_says_what_misses_a_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = [Case("constant", 50.0), Case("constant", 50.0, keys=2)]
    monkeypatch.setattr(convoy, "cases", lambda: iter(loads))
    monkeypatch.setattr(convoy, "DESTINATIONS", (2,))
    assert convoy.main(["--messages", "60", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["missed"] == []
    assert [each["keys"] for each in document["loads"]] == [1, 2]
    found = [compare(load, 60) for load in loads]
    charts = dict(convoy.charts(found[:1]))
    assert all(isinstance(chart, Chart) for chart in charts.values())
    assert convoy.line(found, found[1]).startswith("constant       50  2  0.500 |")
    worse = found[0]._replace(nodes=found[1].nodes)
    assert len(misses([worse], {2: 111.0})) == 2


@pytest.mark.parametrize("bug", ["listed_despite_pending", "keys_ignored"])
def test_a_planted_bug_misses_the_bounds(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    every = compare(Case("constant", convoy.RATE), 100)
    free = {
        "listed_despite_pending": lambda waiting: [p for p in waiting if p.proposal.decided],
        "keys_ignored": partial(_without_keys, proposal._free),
    }
    monkeypatch.setattr(proposal, "_free", free[bug])
    keys = 1 if bug == "listed_despite_pending" else 4
    assert misses([every, compare(Case("constant", convoy.RATE, keys=keys), 100)], {})


def _without_keys(
    free: Callable[[list[Pending]], list[Pending]], waiting: list[Pending]
) -> list[Pending]:
    for each in waiting:
        record = msgspec.structs.replace(each.proposal, conflict_key=None)
        each.head = msgspec.structs.replace(each.head, proposal=record)
    return free(waiting)
