"""A sweep as a Spark job: `mapInPandas` over the grid, `applyInPandas` for the summary.

The functions are those of `sweep`, and a row carries its seed, so Spark's rows equal those of the
process pool. Needs the extra `spark` (pyspark, pandas, pyarrow) and Java.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas
import pyarrow
import pyarrow.parquet
from pyspark.sql import SparkSession

from weft.errors import InvalidArgument

from .sweep import Row, evaluate, model_of, summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Partitions per core: rows take unequally long, so there must be some to balance with.
_PARTITIONS_PER_CORE: Final = 4
_TYPES: Final = {int: "long", float: "double", str: "string"}
_ARROW: Final = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}


def session(master: str) -> SparkSession:
    """A session for sweeps; a local master listens on loopback only."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("weft model sweep").master(master)
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.execution.arrow.pyspark.enabled", "true")
    builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def run_spark(
    spark: SparkSession, name: str, rows: Sequence[Row], out: Path | None = None
) -> tuple[list[Row], list[Row]]:
    """The evaluated rows and the summaries, in order; the executors write them to `out`, too."""
    if out is not None:
        check_absent(out)
    evaluated = evaluated_frame(spark, name, rows).cache()
    reduced = summary_frame(evaluated, name)
    try:
        if out is not None:
            evaluated.write.parquet(str(out / "rows"))
            reduced.write.parquet(str(out / "summary"))
            return read_parquet(out)
        return _ordered(
            [row.asDict() for row in evaluated.collect()],
            [row.asDict() for row in reduced.collect()],
        )
    finally:
        evaluated.unpersist()


def evaluated_frame(spark: SparkSession, name: str, rows: Sequence[Row]) -> DataFrame:
    """One row per run, computed by the executors."""
    model = model_of(name)
    given = {key: kind for key, kind in model.columns.items() if key not in model.results}
    data = [tuple(kind(row[key]) for key, kind in given.items()) for row in rows]
    cores = spark.sparkContext.defaultParallelism
    grid = spark.createDataFrame(data, schema_of(given))
    grid = grid.repartition(min(len(rows), _PARTITIONS_PER_CORE * cores))

    def evaluated(batches: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
        for batch in batches:
            yield _frame([evaluate(name, row) for row in _records(batch)], model.columns)

    return grid.mapInPandas(evaluated, schema_of(model.columns))


def summary_frame(evaluated: DataFrame, name: str) -> DataFrame:
    columns = model_of(name).summary_columns

    def reduced(group: pandas.DataFrame) -> pandas.DataFrame:
        return _frame([summary(name, _records(group))], columns)

    return evaluated.groupBy("configuration").applyInPandas(reduced, schema_of(columns))


def write_parquet(folder: Path, name: str, rows: Sequence[Row], reduced: Sequence[Row]) -> None:
    """`rows` and `summary` as Parquet files in a new folder; Spark and pandas read either."""
    model = model_of(name)
    check_absent(folder)
    for part, data, columns in (
        ("rows", rows, model.columns),
        ("summary", reduced, model.summary_columns),
    ):
        (folder / part).mkdir(parents=True)
        schema = pyarrow.schema([(key, _ARROW[kind]) for key, kind in columns.items()])
        table = pyarrow.Table.from_pylist(list(data), schema=schema)
        pyarrow.parquet.write_table(table, folder / part / "part-0.parquet")


def read_parquet(folder: Path) -> tuple[list[Row], list[Row]]:
    """The rows that `write_parquet` or `run_spark` wrote, in order."""
    return _ordered(
        pyarrow.parquet.read_table(folder / "rows").to_pylist(),
        pyarrow.parquet.read_table(folder / "summary").to_pylist(),
    )


def _ordered(rows: list[Row], reduced: list[Row]) -> tuple[list[Row], list[Row]]:
    rows.sort(key=lambda row: row["row"])
    reduced.sort(key=lambda row: row["configuration"])
    return rows, reduced


def check_absent(folder: Path) -> None:
    if folder.exists():
        raise InvalidArgument(f"{folder} exists already: name a new folder for the sweep's rows")


def schema_of(columns: dict[str, type]) -> str:
    return ", ".join(f"{key} {_TYPES[kind]}" for key, kind in columns.items())


def _frame(rows: list[Row], columns: dict[str, type]) -> pandas.DataFrame:
    return pandas.DataFrame(
        {key: [kind(row[key]) for row in rows] for key, kind in columns.items()}
    )


def _records(frame: pandas.DataFrame) -> list[Row]:
    """Plain Python values: numpy's integers do not seed a generator."""
    columns = {key: frame[key].tolist() for key in frame.columns}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
