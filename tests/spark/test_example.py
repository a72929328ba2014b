"""The example on real executors: Spark's local cluster, and a standalone master and worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.faults.spark_cluster import SparkCluster
from tests.spark.session import ROOT, environment, why_no_java

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CLICKS = 2000


@pytest.fixture(autouse=True)
def _java() -> None:
    if reason := why_no_java():
        pytest.skip(reason)


def clicks(master: str, out: Path) -> str:
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "spark" / "examples" / "clicks.py"), "--master", master,
            "--nodes", "1", "--events", str(CLICKS), "--minutes", "5", "--out", str(out),
        ],
        cwd=out, env=environment(), capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_on_executors_of_their_own(tmp_path: Path) -> None:
    said = clicks("local-cluster[2,1,1024]", tmp_path)
    assert f"{CLICKS} hits of {CLICKS} clicks in 5 minutes" in said
    assert (tmp_path / "hits.png").stat().st_size > 5000
    assert "clicks: 0 messages behind" in said


def test_on_a_standalone_master_and_worker(tmp_path: Path) -> None:
    with SparkCluster(tmp_path / "spark", ("127.0.0.1",)) as spark:
        said = clicks(spark.master, tmp_path)
    assert f"{CLICKS} hits of {CLICKS} clicks in 5 minutes" in said
