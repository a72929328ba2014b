"""The result of one check of `weft doctor`, and the check of file permissions."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["OK", "WARN", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """The result of one check; ``advice`` is empty exactly if the level is OK."""

    level: Level
    check: str
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        assert (self.level == "OK") == (not self.advice), "advice is for WARN and FAIL only"


def check_private(what: str, path: str, mode: int = 0o600) -> Finding:
    """Checks that other users have no access to a file or, with `mode` 0700, to a directory.

    A file with a secret that other users can read is a FAIL. An accessible directory is a WARN: the
    secret files inside have their own modes, and the operator may have granted a group access.
    """
    try:
        found = stat.S_IMODE(Path(path).stat().st_mode)
    except OSError as error:
        advice = "set a path that the node can read"
        return Finding("FAIL", what, f"{path}: {error.strerror}", advice)
    if found & 0o077:
        level: Level = "FAIL" if mode == 0o600 else "WARN"
        return Finding(level, what, f"{path} has mode {found:04o}", f"chmod {mode:o} {path}")
    return Finding("OK", what, f"only the owner can access {path}")
