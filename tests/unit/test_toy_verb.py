"""A verb is added by a struct, a row and a handler: the example of CONTRIBUTING.md, carried out.

The test applies the example to a copy of the code, and `increment_verb.py` sends the new verb
through decoder, access, audit, retry, routing, an engine and a simulated cluster of that copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]
COPIED: Final = (
    "client", "dht", "mpsc", "persistence", "proto", "server", "spark", "tests", "transport",
)  # fmt: skip
#: "Insert in `FILE`, before `TEXT`:" and the code.
STEP: Final = re.compile(r"Insert in `([^`]+)`, before `([^`]+)`:\n\n```\w+\n(.*?)```\n", re.S)


def steps() -> list[tuple[str, str, str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Add a verb\n")[2].partition("\n## ")[0]
    return STEP.findall(section)


def copy_to(folder: Path) -> None:
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "recorded")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copytree(
        ROOT / "weft", folder / "weft", symlinks=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    shutil.copy(ROOT / "pyproject.toml", folder)


def apply(folder: Path, file: str, marker: str, code: str) -> None:
    before = (folder / file).read_text(encoding="utf-8")
    assert before.count(f"\n{marker}") == 1, f"{file} has not one line with {marker!r}"
    if not code.startswith(" "):
        code += "\n\n"  # between definitions
    (folder / file).write_text(before.replace(f"\n{marker}", f"\n{code}{marker}"), encoding="utf-8")


def test_the_example_has_three_steps() -> None:
    files = [file for file, _, _ in steps()]
    assert files == ["proto/table_messages.py", "proto/verbs.py", "dht/table_verbs.py"]


def test_a_struct_a_row_and_a_handler_are_a_verb(tmp_path: Path) -> None:
    copy_to(tmp_path)
    for step in steps():
        apply(tmp_path, *step)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
         "tests/unit/increment_verb.py", "tests/unit/test_verbs.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
