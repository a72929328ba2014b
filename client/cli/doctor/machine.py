"""Checks of this machine: the Python version, installed extras, the open-file limit."""

from __future__ import annotations

import platform
import resource
import sys
from typing import Final

from weft.client.cli import extras

from .finding import Finding

#: The range of `requires-python` in pyproject.toml.
PYTHON_MIN: Final = (3, 11)
PYTHON_MAX: Final = (3, 14)
#: The last Python with a wheel of plyvel (LevelDB); newer versions build plyvel from source.
PYTHON_SERVER_MAX: Final = (3, 12)
#: A node keeps up to 512 LevelDB tables open, plus one descriptor per connection.
FILES_GOOD: Final = 4096
FILES_MIN: Final = 1024


def check_machine() -> list[Finding]:
    return [
        check_python(sys.version_info[:2]),
        check_server_extra(extras.missing("server")),
        check_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]


def check_python(version: tuple[int, int]) -> Finding:
    found = platform.python_version()
    if not PYTHON_MIN <= version <= PYTHON_MAX:
        return Finding("FAIL", "Python", found, "use Python 3.11 to 3.14")
    return Finding("OK", "Python", found)


def check_server_extra(missing: list[str]) -> Finding:
    if not missing:
        return Finding("OK", "server extra", "installed: this machine can run a node")
    advice = "to run a node here: pip install 'weft[server]'"
    if sys.version_info[:2] > PYTHON_SERVER_MAX:
        advice += " (with Python 3.11 or 3.12, or with libleveldb-dev to build plyvel)"
    return Finding("WARN", "server extra", f"not installed: {', '.join(missing)}", advice)


def check_files(limit: int) -> Finding:
    if limit == resource.RLIM_INFINITY:
        return Finding("OK", "open files", "no limit")
    found = f"{limit:,} for each process"
    advice = f"raise the limit before `weft serve`: ulimit -n {FILES_GOOD * 16}"
    if limit < FILES_MIN:
        return Finding("FAIL", "open files", found, advice)
    if limit < FILES_GOOD:
        return Finding("WARN", "open files", found, advice)
    return Finding("OK", "open files", found)
