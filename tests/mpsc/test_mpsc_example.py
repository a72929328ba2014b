"""The Monte-Carlo example runs by its one command and finds the price, with either reader."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mpsc.mpi_job import ROOT

pytest.importorskip("matplotlib")
NO_SPARK = importlib.util.find_spec("pyspark") is None or shutil.which("java") is None


@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "reader",
    [
        "python",
        pytest.param("spark", marks=pytest.mark.skipif(NO_SPARK, reason="Spark needs Java")),
    ],
)
def test_montecarlo_finds_the_price_and_plots_it(tmp_path: Path, reader: str) -> None:
    picture = tmp_path / "convergence.png"
    environment = {name: value for name, value in os.environ.items() if name != "WEFT_SERVERS"}
    options = ["--ranks", "3", "--samples", "20000", "--out", str(picture), "--reader", reader]
    ended = subprocess.run(
        [sys.executable, "examples/montecarlo/run.py", *options],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=800,  # a JVM on a busy machine
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = re.search(r"([\d,]+) samples: ([\d.]+) \+- ([\d.]+), exactly ([\d.]+)", ended.stdout)
    assert told, ended.stdout
    assert told[1] == "20,000"
    estimate, error, exact = (float(told[at]) for at in (2, 3, 4))
    # The seeds are fixed, so the result is deterministic.
    assert abs(estimate - exact) < 4 * error
    assert picture.read_bytes().startswith(b"\x89PNG")
