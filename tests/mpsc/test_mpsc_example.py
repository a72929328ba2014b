"""The Monte-Carlo example runs by its one command and finds the price."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mpsc.test_mpsc_mpi import ROOT

pytest.importorskip("matplotlib")


@pytest.mark.process
def test_montecarlo_finds_the_price_and_plots_it(tmp_path: Path) -> None:
    picture = tmp_path / "convergence.png"
    environment = {name: value for name, value in os.environ.items() if name != "WEFT_SERVERS"}
    options = ["--ranks", "3", "--samples", "20000", "--out", str(picture)]
    ended = subprocess.run(
        [sys.executable, "examples/montecarlo/run.py", *options],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = re.search(r"([\d,]+) samples: ([\d.]+) \+- ([\d.]+), exactly ([\d.]+)", ended.stdout)
    assert told, ended.stdout
    assert told[1] == "20,000"
    estimate, error, exact = (float(told[at]) for at in (2, 3, 4))
    # The seeds are fixed, so this holds always or never.
    assert abs(estimate - exact) < 4 * error
    assert picture.read_bytes().startswith(b"\x89PNG")
