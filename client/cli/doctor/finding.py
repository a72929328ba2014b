"""What a check found."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["OK", "WARN", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """``advice`` says what to do; only an OK has none."""

    level: Level
    check: str
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        assert (self.level == "OK") == (not self.advice), "what is not OK needs advice"


def check_private(what: str, path: str, mode: int = 0o600) -> Finding:
    """Whether other users are kept out of a file, or, with `mode` 0700, of a directory.

    A secret that others can read FAILs. A directory that they can enter is a WARN: the secrets in
    it have modes of their own, and the operator may have opened it to a group on purpose.
    """
    try:
        found = stat.S_IMODE(Path(path).stat().st_mode)
    except OSError as error:
        advice = "name a file that the node may read"
        return Finding("FAIL", what, f"{path}: {error.strerror}", advice)
    if found & 0o077:
        level: Level = "FAIL" if mode == 0o600 else "WARN"
        return Finding(level, what, f"{path} has mode {found:04o}", f"chmod {mode:o} {path}")
    return Finding("OK", what, f"{path} is its owner's alone")
