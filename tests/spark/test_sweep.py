"""A sweep of the models as a Spark job: equal rows with and without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from weft.models.sweep import parse, rows_of, run_pool, summaries
from weft.models.sweep_spark import read_parquet, run_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_and_the_pool_give_equal_rows(spark: SparkSession, tmp_path: Path) -> None:
    grid = parse("queue", ["producers=3,5", "load=0.5,2", "objects=300"])
    rows = rows_of("queue", grid, repeat=2, seed=7)
    here = run_pool("queue", rows)
    expected = (here, summaries("queue", here))
    assert run_spark(spark, "queue", rows, tmp_path / "out") == expected
    assert read_parquet(tmp_path / "out") == expected


def test_without_a_folder_the_rows_are_collected(spark: SparkSession) -> None:
    rows = rows_of("fabriq", parse("fabriq", ["servers=3", "messages=9"]))
    here = run_pool("fabriq", rows)
    assert run_spark(spark, "fabriq", rows) == (here, summaries("fabriq", here))


def test_four_hundred_configurations_are_equal_byte_for_byte(spark: SparkSession) -> None:
    words = ["producers=3,5,8,20,50", "load=0.5,1,1.5,2", "max_hops=1..5", "buffers=1,3,5,10"]
    rows = rows_of("queue", parse("queue", [*words, "objects=200"]))
    assert len(rows) == 400
    here = run_pool("queue", rows, workers=2)
    assert json.dumps(run_spark(spark, "queue", rows)) == json.dumps(
        (here, summaries("queue", here))
    )
