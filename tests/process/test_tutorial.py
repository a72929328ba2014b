"""The programs of docs/tutorial.md run against a real node and print what the page shows."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.testing import cluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
#: The address on the page; only the address differs from the page, because the port may be in use.
ADDRESS = "127.0.0.1:7700"
PROGRAMS: dict[str, str] = dict(
    re.findall(
        r"Save\s+as\s+`(\w+\.py)`[^`]*(?:`[^`\n]+`[^`]*)?:\n\n```python\n(.*?)```", TEXT, re.S
    )
)
SESSIONS: list[tuple[str, str]] = [
    session
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.S)
    for session in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M)
]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The tutorial's second terminal: an environment with the `weft` and `python` under test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("weft", "-m weft.client.cli.main "), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        (programs / name).chmod(0o755)
    with cluster() as node:
        yield os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "WEFT_SERVERS": node.servers[0],
        }


def test_every_block_is_run() -> None:
    assert len(PROGRAMS) == TEXT.count("```python\n")
    commands = [command for command, _ in SESSIONS]
    for name in PROGRAMS:
        assert any(command.endswith(f" {name}") for command in commands), name


def test_the_programs_print_what_the_page_shows(tmp_path: Path, shell: dict[str, str]) -> None:
    folder = tmp_path / "tutorial"
    folder.mkdir()
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text.replace(ADDRESS, shell["WEFT_SERVERS"]))
    for command, expected in SESSIONS:
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=shell, capture_output=True, text=True,
            timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        checker = doctest.OutputChecker()
        assert checker.check_output(expected, done.stdout, doctest.ELLIPSIS), (
            f"{command} printed\n{done.stdout}instead of\n{expected}"
        )
