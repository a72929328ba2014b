"""Sweeps: the grid, the seeds, and equal rows in one process and in a pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.errors import InvalidArgument
from weft.models.sweep import MODELS, parse, rows_of, run_pool, summaries

#: Small values of every model, for quick runs.
QUICK = {
    "queue": ["producers=3,5", "objects=300"],
    "shares": ["tasks=3", "seconds=0.05", "rule=carried,printed"],
    "convoy": ["messages=30", "clock=counter,hybrid"],
    "fabriq": ["servers=4", "messages=50,100"],
}


def test_a_grid_is_every_combination() -> None:
    grid = parse("queue", ["load=0.5,1", "max_hops=1..3", "objects=1000"])
    assert grid == {"load": [0.5, 1.0], "max_hops": [1, 2, 3], "objects": [1000]}
    rows = rows_of("queue", grid, repeat=2)
    assert len(rows) == 12
    assert [row["row"] for row in rows] == list(range(12))
    assert len({row["seed"] for row in rows}) == 12
    assert len({(row["load"], row["max_hops"]) for row in rows}) == 6
    assert rows == rows_of("queue", grid, repeat=2)
    assert rows != rows_of("queue", grid, repeat=2, seed=2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["load"], "is not PARAMETER=VALUE"),
        (["speed=1"], "queue has no parameter 'speed': parameters are producers, load"),
        (["load=fast"], "'fast' is not a number"),
        (["max_hops=1.5"], "is not a whole number"),
        (["max_hops=5..1"], "is not a whole number"),
        (["load=nan"], "'nan' is not a number"),
        (["load=1", "load=2"], "given twice"),
    ],
)
def test_bad_grids_are_refused(words: list[str], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        parse("queue", words)


def test_bad_values_are_refused_by_the_model() -> None:
    for word in ("max_hops=0", "load=-1", "buffers=0", "objects=1"):
        with pytest.raises(InvalidArgument, match=word.partition("=")[0]):
            run_pool("queue", rows_of("queue", parse("queue", [word])))
    with pytest.raises(InvalidArgument, match="no model named x"):
        rows_of("x", {})
    with pytest.raises(InvalidArgument, match="repeat"):
        rows_of("queue", {}, repeat=0)
    with pytest.raises(InvalidArgument, match="1000000 rows"):
        rows_of("queue", {"producers": range(1, 2000), "max_hops": range(1, 2000)})
    with pytest.raises(InvalidArgument, match="a rule is carried or printed"):
        run_pool("shares", rows_of("shares", {"rule": ["x"]}))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_fills_its_columns(name: str) -> None:
    rows = run_pool(name, rows_of(name, parse(name, QUICK[name]), repeat=2))
    columns = MODELS[name].columns
    assert [{key: type(value) for key, value in row.items()} for row in rows] == [columns] * 4
    reduced = summaries(name, rows)
    assert [list(row) for row in reduced] == [list(MODELS[name].summary_columns)] * 2
    key = MODELS[name].results[-1]
    mean = (rows[0][key] + rows[1][key]) / 2  # type: ignore[operator]
    assert reduced[0][key] == pytest.approx(mean)


def test_a_pool_gives_equal_rows() -> None:
    rows = rows_of("fabriq", parse("fabriq", QUICK["fabriq"]), repeat=3)
    reports: list[int] = []
    assert run_pool("fabriq", rows, workers=2, progress=reports.append) == run_pool("fabriq", rows)
    assert reports == [1, 2, 3, 4, 5, 6]


def test_an_error_in_the_pool_is_raised_here() -> None:
    with pytest.raises(InvalidArgument, match="max_hops"):
        run_pool("queue", rows_of("queue", {"max_hops": [0, 0]}), workers=2)


def test_parquet_keeps_every_value(tmp_path: Path) -> None:
    spark = pytest.importorskip("weft.models.sweep_spark")
    rows = run_pool("convoy", rows_of("convoy", parse("convoy", QUICK["convoy"])))
    spark.write_parquet(tmp_path / "out", "convoy", rows, summaries("convoy", rows))
    assert spark.read_parquet(tmp_path / "out") == (rows, summaries("convoy", rows))
    with pytest.raises(InvalidArgument, match="exists already"):
        spark.write_parquet(tmp_path / "out", "convoy", rows, [])
