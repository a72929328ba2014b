"""The pure parts of the side-by-side benchmark: counting, ratios, verdicts and tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from bench.peers import report, targets, usage
from bench.peers.arena import enough
from bench.peers.command import BEGIN, END, as_lines, between
from bench.peers.confirms import Confirms
from bench.peers.papers import HEADLINES, beside
from bench.peers.result import Measurement, Results, Spread
from bench.peers.session import BATCH_BYTES, Flow
from bench.peers.systems import ALL, BY_NAME
from bench.peers.workloads import BY_NAME as WORKLOADS


def results_of(*given: tuple[str, str, int, dict[str, float]]) -> Results:
    results = Results()
    results.measurements += [Measurement(*each) for each in given]
    return results


def test_a_flow_visits_its_queues_in_turn_and_sends_exactly_its_count() -> None:
    flow = Flow(["a", "b", "c"], 25, 4, visit=10)
    sent = [(queue, len(bodies)) for queue, bodies in flow.batches(flow.bodies())]
    assert sent == [("a", 10), ("b", 10), ("c", 5)]


def test_large_bodies_go_in_smaller_batches() -> None:
    assert Flow(["a"], 1, BATCH_BYTES // 4).batch == 4
    assert Flow(["a"], 1, 10 * BATCH_BYTES).batch == 1
    assert Flow(["a"], 1, 0).batch == 1000


def test_confirms_may_come_out_of_order_and_together() -> None:
    confirms = Confirms()
    confirms.take(2, multiple=False)
    assert confirms.low == 0
    confirms.take(1, multiple=False)
    assert confirms.low == 2
    confirms.take(6, multiple=False)
    confirms.take(5, multiple=True)
    assert confirms.low == 6
    confirms.take(3, multiple=True)  # nothing new
    assert confirms.low == 6


@pytest.mark.parametrize("rate", [50.0, 3_000.0, 900_000.0])
def test_trials_find_how_many_messages_fill_the_time(rate: float) -> None:
    tried: list[int] = []

    def trial(count: int) -> float:
        tried.append(count)
        return count / rate + 0.001

    count = enough(4.0, 64, 10**9, trial)
    assert count / rate == pytest.approx(4.0, rel=0.3)
    assert len(tried) < 10


def test_trials_see_through_a_fixed_cost() -> None:
    # Joining, committing and so on take two seconds for any count: a trial of few messages is no
    # guide.
    count = enough(4.0, 64, 10**9, lambda some: 2.0 + some / 100_000)
    assert count > 100_000


def test_trials_stop_at_the_most_that_is_allowed() -> None:
    assert enough(4.0, 64, 5_000, lambda count: count / 1e6) == 5_000


def test_a_ratio_is_taken_within_each_repetition() -> None:
    # The machine was half as fast in the second repetition, for both.
    results = results_of(
        ("W1", "a", 0, {"rate": 100.0}), ("W1", "b", 0, {"rate": 50.0}),
        ("W1", "a", 1, {"rate": 50.0}), ("W1", "b", 1, {"rate": 25.0}),
        ("W1", "a", 2, {"rate": 90.0}),
    )  # fmt: skip
    assert results.ratio(("W1", "a", "rate"), ("W1", "b", "rate")) == Spread(2.0, 2.0, 2.0)
    assert results.ratio(("W1", "a", "rate"), ("W1", "c", "rate")) is None
    assert results.spread("W1", "a", "rate") == Spread(90.0, 50.0, 100.0)


def test_verdicts_say_ok_missed_or_not_measured() -> None:
    results = results_of(
        ("W1", "weft-disk", 0, {"rate": 100.0}),
        ("W1", "redis-lists", 0, {"rate": 100.0}),
        ("W1", "kafka", 0, {"rate": 80.0}),
        ("W3", "weft-os", 0, {"push_p50_us": 120.0}),
        ("W3", "redis-streams", 0, {"push_p50_us": 100.0}),
        ("W3", "nats", 0, {"push_p50_us": 100.0}),
    )
    words = {each.target.words: each.word for each in targets.judge(results)}
    assert words["W1 disk against redis-lists"] == "ok"
    assert words["W1 disk against kafka"] == "missed"
    assert words["W1 disk against nats"] == "not measured"
    assert words["W3 os push p50 against redis-streams"] == "ok"
    assert words["W3 os push p50 against nats"] == "missed"


def test_every_target_and_headline_names_what_is_measured() -> None:
    for target in targets.targets():
        for workload, system, figure in (target.ours, target.theirs):
            assert workload in WORKLOADS
            if system != "floor":
                assert system in WORKLOADS[workload].systems, target
                assert figure in {column.figure for column in WORKLOADS[workload].columns}, target
    for headline in HEADLINES:
        columns = WORKLOADS[headline.workload].columns
        assert headline.figure in {column.figure for column in columns}


def test_a_peer_that_does_not_acknowledge_is_no_bar_in_w2() -> None:
    assert "redis-lists" not in targets.ACKING
    assert [system.name for system in ALL if not system.acks] == ["redis-lists"]


def test_a_paper_stands_beside_what_was_measured() -> None:
    results = results_of(("W4", "weft-disk", 0, {"push_mib_1m": 100.0}))
    ((headline, system, ours),) = beside(results)
    assert (headline.paper, system) == ("Fabriq", "weft-disk")
    assert ours.median == pytest.approx(104.8576)


def test_a_curve_keeps_its_ends() -> None:
    samples = [float(value) for value in range(10_000, 0, -1)]
    curve = report.curve(samples)
    assert len(curve) == report.CURVE_POINTS
    assert (curve[0], curve[-1]) == (1.0, 10_000.0)
    assert curve == sorted(curve)


def test_the_printed_targets_are_those_of_what_ran() -> None:
    table = report.must_reach(results_of(("W8", "weft-disk", 0, {"rate": 1.0})))
    assert "W8 thousand queues against W1 |  | ≥ 0.8 | not measured" in table
    assert "redis" not in table


def test_a_document_keeps_its_words_around_the_tables() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert between(document, "new\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert between(between(document, "x\n"), "y\n") == between(document, "y\n")
    with pytest.raises(SystemExit):
        between("no marks", "new")


def test_a_record_is_json_with_a_line_for_each_measurement() -> None:
    record = {"plan": {"repeat": 3}, "measurements": [{"a": 1}, {"a": "µ"}], "failures": []}
    text = as_lines(record)
    assert json.loads(text) == record
    assert len(text.splitlines()) == 8


def test_names_of_systems_are_unique() -> None:
    assert len(BY_NAME) == len(ALL)


def test_a_session_of_processes_is_counted_with_its_children() -> None:
    # A shell with a working child: the processor time is the child's, the session is the shell's.
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    script = f"{sys.executable} -c '{burn}'; echo done; read x"
    process = subprocess.Popen(
        ["sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        used = usage.of_sessions([process.pid])
        process.communicate(b"\n")
    assert used.cpu_s >= 0.25
    assert used.rss_bytes > 0
    assert usage.of_sessions([process.pid]) == usage.Usage(0.0, 0)
    assert usage.of_processes([os.getpid()]).rss_bytes > 0
