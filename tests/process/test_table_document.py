"""The examples of docs/table.md run, in their order, against a real node."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import weft
from tests.process.live_node import LiveNode

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "table.md"


def test_the_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(examples) == 6
    with LiveNode(tmp_path / "data").start() as node, weft.connect(node.grpc) as client:
        names: dict[str, object] = {"weft": weft, "client": client}
        for example in examples:
            exec(example, names)
    assert "job/1 b'done'" in capsys.readouterr().out
