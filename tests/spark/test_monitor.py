"""Samples of two nodes, published into a queue, windowed by Spark and joined with a sweep."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import weft
from tests.spark.session import ROOT
from weft.spark import register
from weft.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("monitor", ROOT / "examples" / "monitor.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def test_windows_of_two_nodes_are_joined_with_the_model(
    spark: SparkSession, example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(spark)
    with (
        cluster(2, durability="os", monitor_queue=example.MONITOR) as nodes,
        weft.connect(nodes.servers) as client,
    ):
        client.create_queue(example.EVENTS, kind="stochastic", buffers=20, max_hops=2)
        traffic = example.Traffic(nodes)
        try:
            example.stream_windows(spark, ",".join(nodes.servers), tmp_path, wanted=1)
        finally:
            traffic.close()
    found = example.moved(spark, tmp_path)
    assert {row["nodes"] for row in found} == {2}, "a window has samples of both nodes"
    assert all(row["delivered"] > 0 and row["hops"] >= 1 for row in found)
    model = example.sweep(tmp_path / "sweep", 2)
    assert example.report(spark, tmp_path, model) == 0
    assert "probes/find" in capsys.readouterr().out
    rows = spark.read.parquet(str(tmp_path / "joined")).collect()
    assert len(rows) == len(found)
    assert all(0.2 <= row["load"] <= 3 for row in rows)
    assert (tmp_path / "monitor.png").stat().st_size > 5_000
