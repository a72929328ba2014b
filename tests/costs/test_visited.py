"""How much of the code one operation visits: the fewer files, the easier the path is to follow."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

import pytest

from tests.visited import ROOT

#: Files that an operation of the synchronous client may visit, client and node together. Lower a
#: bound after a simplification; raise none. When this count began, the files were 55, 57 and 57.
FILES_MAX: Final = {"push": 24, "pop": 29, "ack": 26}


@pytest.mark.timeout(120)
def test_an_operation_visits_few_files() -> None:
    """In a process of its own, whose threads only the program has set up."""
    command = [sys.executable, "-m", "tests.visited", "--json", "--files"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = {name: seen["names"] for name, seen in json.loads(done.stdout).items()}
    assert found.keys() == FILES_MAX.keys()
    for name, files in found.items():
        assert len(files) > 10, "the profile function counts nothing"
        assert len(files) <= FILES_MAX[name], f"{name} visits {len(files)} files: {files}"
