"""The measurements of the chaos runs: pauses, percentiles, the verdict on a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.hold import LOST_LEASES
from tests.chaos.journal import Journal, load_counts
from tests.chaos.outcome import Outcome, judge, longest_pause
from tests.chaos.scenario import SCENARIOS
from tests.chaos.table import good, markdown, spread, summary
from tests.total_queue import Event, History, Kind


def journal(path: Path, *times: float) -> Path:
    made = Journal(path)
    made.events = [Event(at, Kind.ACKNOWLEDGED, f"{at}") for at in times]
    made.counts["pushes"] = len(times)
    made.close()
    return path


def test_a_pause_is_a_gap_of_one_producer(tmp_path: Path) -> None:
    one = journal(tmp_path / "1.journal", 0.0, 1.0, 4.0, 5.0, 6.0)
    two = journal(tmp_path / "2.journal", 0.5, 2.5, 3.0, 6.0)
    assert longest_pause([one, two], 0.0, 6.0) == 3.0
    assert longest_pause([two], 0.0, 3.5) == 3.0  # began before the end
    assert longest_pause([one], 4.5, 6.0) == 1.0


def test_a_producer_that_never_came_back_has_paused_until_the_end(tmp_path: Path) -> None:
    silent = journal(tmp_path / "1.journal", 0.0, 1.0)
    assert longest_pause([silent], 0.5, 31.0) == 30.0


def test_journals_add_up(tmp_path: Path) -> None:
    paths = [journal(tmp_path / "1.journal", 1.0), journal(tmp_path / "2.journal", 2.0, 3.0)]
    paths.append(tmp_path / "3.journal")  # killed before its first write
    assert load_counts(paths) == {"pushes": 3}


@pytest.mark.parametrize("scenario", ["kill-one", "cycle 0"])
def test_what_is_lost_is_seen(tmp_path: Path, scenario: str) -> None:
    outcome = Outcome(scenario=scenario, seed=1)
    assert "LOST" not in outcome.line()
    judge(outcome, History(), [journal(tmp_path / "1.journal", 1.0, 2.0)], (0.0, 3.0))
    assert outcome.violated("lost") == 2
    assert not outcome.ok
    assert "LOST 2" in outcome.line()


@pytest.mark.parametrize("scenario", ["rolling", "rolling-hold"])
def test_a_held_message_must_not_be_processed_twice(tmp_path: Path, scenario: str) -> None:
    """The restarts are no excuse while workers hold messages."""
    path = tmp_path / "1.journal"
    held = Journal(path)
    held.attempted("a", "b")
    for name in "aba":
        held.delivered(name)
    held.ack_attempted("a", "b")
    held.counts[LOST_LEASES] = 1
    held.close()
    outcome = Outcome(scenario=scenario, seed=1)
    judge(outcome, History(), [path], (0.0, float("inf")))
    if scenario == "rolling":
        assert outcome.ok
    else:
        assert set(outcome.violations) == {"processed twice", LOST_LEASES}
        assert outcome.violated("processed twice") == 1


def test_percentiles_are_of_values_that_were_seen() -> None:
    assert spread([]) == []
    assert spread([2.0]) == [2.0, 2.0, 2.0]
    assert spread([float(n) for n in range(1, 201)]) == [100.0, 198.0, 200.0]


def outcomes(**changes: Any) -> list[Outcome]:
    counts = {"acknowledged": 10, "delivered": 12}
    values = {"counts": counts, "pause_s": 1.0, "plain_pause_s": 2.0, **changes}
    return [Outcome(scenario="kill-one", seed=seed, **values) for seed in range(3)]


@pytest.mark.parametrize(
    ("changes", "is_good"),
    [
        ({}, True),
        ({"pause_s": 3.1}, False),
        ({"plain_pause_s": 3.1}, False),
        ({"violations": {"lost": ["x"]}}, False),
        ({"violations": {"duplicated": ["x"]}}, False),
        ({"failure": "it broke"}, False),
    ],
)
def test_a_row_says_whether_it_is_good(changes: dict[str, Any], is_good: bool) -> None:
    row = summary("kill-one", outcomes(**changes))
    assert good(row) is is_good
    assert row["runs"] == 3


def test_the_pause_counts_only_where_a_node_takes_over() -> None:
    row = summary("kill-one", outcomes(pause_s=20.0))
    assert not good(row)
    assert good({**row, "scenario": "kill-all"})


def test_the_table_has_a_line_for_each_scenario() -> None:
    rows = [summary(name, outcomes()) for name in SCENARIOS]
    lines = markdown(rows, 20.0).splitlines()
    assert len(lines) == 2 + len(SCENARIOS)
    assert len({line.count("|") for line in lines}) == 1
    assert "SIGSTOP of one node for 20 s" in markdown(rows, 20.0)
    assert "| 30 | 36 | 0 | 0 | 0 | 0 | 0 | 1.00 / 1.00 / 1.00 | 2.00 / 2.00 / 2.00 |" in lines[2]
