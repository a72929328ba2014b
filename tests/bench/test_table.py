"""`python -m bench.table` runs, with the system that is always installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.process
def test_a_small_run(tmp_path: Path) -> None:
    words = "--systems weft-os --keys 2000 --rounds 1 --samples 20 --no-fetch --json table.json"
    command = [sys.executable, "-m", "bench.table", *words.split()]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "| weft-os (Weft " in done.stdout
    (one,) = json.loads((tmp_path / "table.json").read_text())["rounds"]["weft-os"]
    assert min(figure for name, figure in one.items() if "server" not in name) > 0
    assert [each.name for each in tmp_path.iterdir()] == ["table.json"]


def test_an_unknown_system_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.table", "--systems", "weft,nosql"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert "no system nosql" in done.stderr
