"""The benchmark's arithmetic, without running it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from weft.client.cli.bench import call_timer, floors
from weft.client.cli.bench.floors import Floors
from weft.client.cli.bench.latency import Latency, Percentiles
from weft.client.cli.bench.memory import Memory
from weft.client.cli.bench.rounds import Result, Round
from weft.client.cli.bench.workload import Throughput
from weft.client.cli.main import cli


def test_percentiles_are_nearest_ranks() -> None:
    found = Percentiles.of([float(n) for n in range(1000, 0, -1)])
    assert found == Percentiles(500, 900, 990, 999)
    assert Percentiles.of([7.0]) == Percentiles(7, 7, 7, 7)


def test_medians_are_taken_of_each_percentile() -> None:
    rounds = [Percentiles(1, 20, 3, 40), Percentiles(2, 10, 1, 50), Percentiles(3, 30, 2, 60)]
    assert Percentiles.median(rounds) == Percentiles(2, 20, 2, 50)


def test_kinds_take_turns_and_warm_ups_do_not_count() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    taken = call_timer.in_turn(calls, 25, 3)
    assert {name: len(times) for name, times in taken.items()} == {"a": 25, "b": 25}
    assert order == ["a", "b"] * 28


def test_the_floor_of_a_push_is_two_round_trips_and_a_put() -> None:
    assert Floors(100, 250, 1).push_us == 450
    assert Floors(100, None, 1).push_us is None
    rounds = [Floors(1, 5, 9), Floors(2, None, 8), Floors(3, 7, 7)]
    assert Floors.median(rounds) == Floors(2, 6, 8)


def result(*pushes: tuple[float, float | None]) -> Result:
    rounds = [
        Round(
            Floors(100, put, 1),
            Latency(Percentiles(push, 1, 1, 1), Percentiles(1, 1, 1, 1)),
            Throughput(10, 1, 10, 1, 1, 1, 1),
        )
        for push, put in pushes
    ]
    first = rounds[0]
    return Result(first.floors, first.latency, first.throughput, None, rounds)


def test_the_ratio_compares_within_a_round() -> None:
    assert result((200, 200), (1200, 400), (100, 200)).push_to_floor == 0.5
    assert result((200, None)).push_to_floor is None


def test_memory_for_each_message() -> None:
    assert Memory(10, 1000, 1500, None, None, None).bytes_per_message == 50


def test_the_floors_are_really_measured(tmp_path: Path) -> None:
    with floors.opened(128, tmp_path, sync=True) as calls:
        taken = call_timer.in_turn(calls, 10, 1)
    assert {floors.ROUND_TRIP, floors.PUT, floors.APPEND} == taken.keys()
    assert all(time > 0 for times in taken.values() for time in times)
    assert list(tmp_path.iterdir()) == []


def test_a_picture_without_matplotlib_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = CliRunner().invoke(cli, ["bench", "--own", "--plot", "x.png"])
    assert told.exit_code == 2
    assert "pip install matplotlib" in told.stderr
