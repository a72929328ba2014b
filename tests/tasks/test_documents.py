"""The tutorial of tasks runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from weft.tasks.testing import worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tasks" / "tutorial.md"
GRAPHS = ROOT / "docs" / "tasks" / "graphs.md"


def test_the_tutorial_runs_as_printed(node: Cluster, tmp_path: Path) -> None:
    module, *steps = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    (tmp_path / "shop.py").write_text(module)
    program = "import weft\nfrom weft import tasks\n" + "\n".join(steps)
    (tmp_path / "program.py").write_text(program)
    environment = {**os.environ, "WEFT_SERVERS": ",".join(node.servers)}
    with worker_process("shop:app", node.servers, "-c", "2", folder=tmp_path) as worker:
        ran = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert ran.returncode == 0, ran.stderr
        assert "argument 'width': Expected `int`, got `str`" in ran.stdout
        assert worker.stop() == 0


def test_the_page_of_graphs_runs_as_printed(node: Cluster, tmp_path: Path) -> None:
    module, *steps = re.findall(r"```python\n(.*?)```", GRAPHS.read_text(), re.DOTALL)
    (tmp_path / "shop.py").write_text(module)
    (tmp_path / "program.py").write_text("from weft import tasks\n" + "\n".join(steps))
    environment = {**os.environ, "WEFT_SERVERS": ",".join(node.servers)}
    with worker_process("shop:app", node.servers, "-c", "1", folder=tmp_path) as worker:
        ran = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert "(check) failed: ValueError: too many words" in ran.stdout
        assert worker.stop() == 0


@pytest.mark.parametrize("option", ["delay", "at", "priority", "key", "reply_to"])
def test_the_table_of_options_is_complete(option: str) -> None:
    assert f"`{option}=" in TUTORIAL.read_text()
