"""A new user's first steps: commands work as printed, and missing parts are named."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from weft.client.cli import extras
from weft.shell_command import typed_command


def _script(folder: Path) -> Path:
    folder.mkdir(parents=True)
    script = folder / "weft"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    return script


def test_the_banner_names_the_command_as_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(tmp_path / ".venv" / "bin")
    other = _script(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert typed_command(".venv/bin/weft") == ".venv/bin/weft"
    monkeypatch.setenv("PATH", str(other.parent))
    assert typed_command(".venv/bin/weft") == ".venv/bin/weft", "PATH finds another weft"
    monkeypatch.setenv("PATH", str(tmp_path / ".venv" / "bin"))
    assert typed_command(".venv/bin/weft") == "weft"
    spaced = _script(tmp_path / "a b")
    assert typed_command(str(spaced)) == f"'{spaced}'"


def test_the_banner_of_a_node_that_was_started_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert typed_command("/somewhere/main.py") == f"{sys.executable} -m weft.client.cli.main"


def test_a_missing_plyvel_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ModuleNotFoundError("No module named 'plyvel'", name="plyvel")
    assert str(extras.explain(missing)).endswith("pip install 'weft[server]'")
    monkeypatch.setattr(extras, "PLYVEL_PYTHON_END", (3, 11))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    told = str(extras.explain(missing))
    assert "has no wheel for Python" in told
    assert "run the node with Python 3.11 or 3.12" in told
    assert "\n" not in told
