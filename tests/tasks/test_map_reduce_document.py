"""The guide to map-reduce runs as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.tasks.map_reduce_reference import (
    count_reference,
    counted,
    grep_reference,
    lines_of,
    output_of,
    sorted_reference,
)
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "tasks" / "map-reduce.md"


def test_the_guide_runs_as_printed(node: Cluster, tmp_path: Path) -> None:
    text = GUIDE.read_text()
    module = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "visits.py").write_text(module)
    lines = [line for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL)
             for line in block.splitlines() if "--engine spark" not in line]  # fmt: skip
    assert len(lines) == 8, "every command of the page but the one for Spark"
    environment = {**os.environ, "WEFT_SERVERS": ",".join(node.servers)}
    for line in lines:
        program, *words = shlex.split(line)
        command = {"weft": ["-m", "weft.client.cli.main"], "python": []}[program]
        ran = subprocess.run(
            [sys.executable, *command, *words], cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert ran.returncode == 0, f"{line}: {ran.stderr}"
    books = lines_of(tmp_path / "books")
    assert output_of(tmp_path / "out") == sorted_reference(lines_of(tmp_path / "in"))
    assert counted(output_of(tmp_path / "words")) == count_reference(books)
    assert output_of(tmp_path / "hits") == grep_reference(books, "ab|xy")
    assert output_of(tmp_path / "visits") == output_of(tmp_path / "visits-2") != b""


def test_the_engine_spark_is_in_the_guide_with_known_options() -> None:
    assert "--engine spark --master local[2]" in GUIDE.read_text()
