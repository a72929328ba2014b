"""Map-reduce on Spark: the same output as on Weft, byte by byte, and as a query of Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import weft
from tests.spark.session import environment
from tests.tasks import lengths
from tests.tasks.map_reduce_reference import (
    counted,
    grep_reference,
    lines_of,
    output_of,
    parts_of,
    some_text,
    sorted_reference,
)
from weft.client.sync_client import Client
from weft.tasks import mapreduce
from weft.tasks.heartbeat import beats_of
from weft.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def connected(node: Cluster) -> Iterator[None]:
    for app in (mapreduce.app, lengths.app):
        app.connect(node.servers)
    yield
    for app in (mapreduce.app, lengths.app):
        app.close()


JOBS = {
    "sort": (mapreduce.sort, ()),
    "wordcount": (mapreduce.wordcount, ()),
    "grep": (mapreduce.grep, ("a1|^f",)),
    "lengths": (lengths.job, ()),
    "sizes": (lengths.combined, ()),
}


@pytest.mark.parametrize("name", JOBS)
def test_both_engines_make_the_same_files(spark: SparkSession, tmp_path: Path, name: str) -> None:
    some_text(tmp_path / "in", lines=2000)
    (tmp_path / "in" / "bom").write_bytes(b"\xef\xbb\xbfone\r\ntwo\x0bthree\n\n")
    (tmp_path / "in" / "long").write_bytes(b"y" * 30_000)
    job, pattern = JOBS[name]
    summaries = [
        job.run(
            tmp_path / "in", tmp_path / engine, *pattern, partition_bytes="16K", reducers=3,
            engine=engine, **options,
        )
        for engine, options in (("weft", {"workers": 2}), ("spark", {"spark": spark}))
    ]  # fmt: skip
    assert parts_of(tmp_path / "weft") == parts_of(tmp_path / "spark")
    assert len(parts_of(tmp_path / "weft")) == 3
    for field in ("input_lines", "partitions", "spilled_bytes", "output_lines", "output_bytes"):
        assert getattr(summaries[0], field) == getattr(summaries[1], field), field


def test_the_output_is_that_of_queries_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Independent of our code in Spark: DataFrames read the same input."""
    from pyspark.sql import functions as f

    mapreduce.generate("text", tmp_path / "in", size="300K")
    lines = lines_of(tmp_path / "in")
    frame = spark.read.text(str(tmp_path / "in"), lineSep="\n")
    mapreduce.sort.run(tmp_path / "in", tmp_path / "sorted", workers=1, reducers=2)
    queried = [row.value.encode() + b"\n" for row in frame.orderBy("value").collect()]
    assert output_of(tmp_path / "sorted") == b"".join(queried) == sorted_reference(lines)
    mapreduce.wordcount.run(tmp_path / "in", tmp_path / "words", workers=1)
    words = frame.select(f.explode(f.split("value", r"\s+")).alias("word"))
    rows = words.where("word != ''").groupBy("word").count().collect()
    assert counted(output_of(tmp_path / "words")) == {
        row["word"].encode(): row["count"] for row in rows
    }
    mapreduce.grep.run(tmp_path / "in", tmp_path / "hits", "ab", workers=1)
    hits = frame.where(f.col("value").contains("ab")).collect()
    assert output_of(tmp_path / "hits") == b"".join(row.value.encode() + b"\n" for row in hits)
    assert output_of(tmp_path / "hits") == grep_reference(lines, "ab")


@pytest.mark.slow
def test_the_command_with_a_session_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """In a process of its own, with the master of the command; `spark` tells that Java is there."""
    lines = some_text(tmp_path / "in")
    words = ["sort", "in", "out", "--engine", "spark", "--master", "local[2]", "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "weft.client.cli.main", "run", *words],
        cwd=tmp_path,
        env={**environment(), "WEFT_SERVERS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["engine"] == "spark", "no node is needed"
    assert output_of(tmp_path / "out") == sorted_reference(lines)


def test_a_master_that_does_not_exist(spark: SparkSession, tmp_path: Path) -> None:
    some_text(tmp_path / "in")
    with pytest.raises(weft.UsageError, match="active session"):
        mapreduce.sort.run(tmp_path / "in", tmp_path / "out", engine="spark", master="local[2]")
    assert not (tmp_path / "out").exists()


def test_a_function_fails_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("one\n!raise\n")
    with pytest.raises(weft.TaskFailed, match="ValueError: a mistake") as caught:
        lengths.job.run(tmp_path / "in", tmp_path / "out", engine="spark", spark=spark)
    assert "lengths.py" in caught.value.trace
    assert not (tmp_path / "out").exists()


def test_an_input_that_changes_fails_the_run_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    some_text(tmp_path / "in")

    def change(stage: str, done: int, tasks: int) -> None:
        os.truncate(tmp_path / "in" / "text-2", 5)

    with pytest.raises(weft.JobFailed, match=r"text-2 (has changed since|is shorter than)"):
        mapreduce.sort.run(
            tmp_path / "in", tmp_path / "out", engine="spark", spark=spark, progress=change
        )
    assert not (tmp_path / "out").exists()


def test_an_empty_input_in_spark(spark: SparkSession, tmp_path: Path, client: Client) -> None:
    (tmp_path / "in").mkdir()
    mapreduce.sort.run(tmp_path / "in", tmp_path / "out", engine="spark", spark=spark)
    assert parts_of(tmp_path / "out") == {"part-00000": b""}


def test_workers_in_executors(
    spark: SparkSession, tmp_path: Path, node: Cluster, client: Client
) -> None:
    from weft.spark import workers

    lines = some_text(tmp_path / "in")
    servers = ",".join(node.servers)
    with workers(spark, 2, "weft.tasks.mapreduce:app", servers=servers):
        mapreduce.sort.run(tmp_path / "in", tmp_path / "out", partition_bytes="4K", workers=0)
        beats = beats_of(client, "mapreduce")
        assert len(beats) == 2
    assert output_of(tmp_path / "out") == sorted_reference(lines)
    assert beats_of(client, "mapreduce") == [], "the workers have ended in order"


def test_a_worker_that_cannot_start_in_an_executor(spark: SparkSession, node: Cluster) -> None:
    from weft.spark import workers

    gang = workers(spark, 1, "no.such.module:app", servers=",".join(node.servers))
    with pytest.raises(weft.Unavailable, match="has ended with exit code"), gang:
        pass


def test_more_workers_than_slots_are_refused(spark: SparkSession, node: Cluster) -> None:
    from weft.spark import workers

    servers = ",".join(node.servers)
    gang = workers(spark, 9, "weft.tasks.mapreduce:app", servers=servers, timeout=2)
    with pytest.raises(weft.DeadlineExceeded, match=r"9 workers have not .* barrier job"), gang:
        pass
    assert not [each for each in threading.enumerate() if each.name.startswith("spark-")]
    with pytest.raises(weft.InvalidArgument, match="n must be"), workers(spark, 0, "x:app"):
        pass
