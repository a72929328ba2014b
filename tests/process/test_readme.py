"""The README's example is a file, and it runs as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from weft.testing import cluster

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "first.py"


def test_the_example_is_the_printed_one() -> None:
    printed, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert printed == EXAMPLE.read_text()


@pytest.mark.process
def test_the_example_runs_twice(tmp_path: Path) -> None:
    with cluster() as node:
        # Only the address differs: the port in the README may be somebody's real node.
        text = EXAMPLE.read_text().replace("127.0.0.1:7700", node.servers[0])
        program = tmp_path / "first.py"
        program.write_text(text)
        for _ in range(2):
            ran = subprocess.run(
                [sys.executable, str(program)], capture_output=True, text=True, timeout=200
            )
            assert ran.returncode == 0, ran.stderr
            first, second, third = ran.stdout.splitlines()
            assert first.endswith("b'one' {'from': 'readme'} 1")
            # The second time "four" is a push of the same dedup key within the window.
            assert second in ("[b'two', b'three', b'four']", "[b'two', b'three']")
            assert third == "0 left"
