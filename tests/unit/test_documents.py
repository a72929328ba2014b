"""Documents link to files that exist, and name modules that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
#: A file of this repository, in backticks.
NAMED = re.compile(
    r"`((?:bench|client|dht|docker|docs|examples|mpsc|persistence|proto|server|spark|tests"
    r"|transport|weft)/[\w/.-]+\.(?:md|py|toml|txt|yaml))`"
)
#: A changelog names files as they were called at the time.
HISTORY = ("CHANGELOG.md",)


def documents() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_links_lead_somewhere() -> None:
    for path in documents():
        for target in LINK.findall(path.read_text(encoding="utf-8")):
            if "://" not in target and not target.startswith("mailto:"):
                assert (path.parent / target).exists(), f"{path.relative_to(ROOT)}: {target}"


def test_files_that_are_named_exist() -> None:
    for path in documents():
        if path.name in HISTORY:
            continue
        for name in NAMED.findall(path.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{path.relative_to(ROOT)} names {name}"
