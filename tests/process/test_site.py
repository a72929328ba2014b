"""The documents build as a site without a warning: no dead link, no dead anchor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason=f"{name} is not installed: the docs extra has it")
    built = subprocess.run(
        [
            sys.executable, "-m", "sphinx", "-n", "-W", "--keep-going", "-q",
            "-d", str(tmp_path / "doctrees"), "-c", "docs/site", ".", str(tmp_path / "site"),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    start = (tmp_path / "site" / "docs" / "README.html").read_text(encoding="utf-8")
    assert "reference/python/queue.html" in start or "reference/README.html" in start
    assert (tmp_path / "site" / "index.html").is_file()
    queue = tmp_path / "site" / "docs" / "reference" / "python" / "queue.html"
    text = queue.read_text(encoding="utf-8")
    assert 'id="weft.Queue.push"' in text
    assert 'id="weft.aio.Queue.push"' in text
