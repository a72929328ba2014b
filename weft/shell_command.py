"""The `weft` command as a user types it: output that recommends commands must work as printed."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def typed_command(called: str) -> str:
    """The command to type in another terminal, in the same directory, for a process that was
    called as ``called``: `weft` only if the search path finds this very file."""
    found = shutil.which("weft")
    file = Path(called)
    if file.name != "weft" or not file.exists():  # python -m, or a test
        return "weft" if found else f"{shlex.quote(sys.executable)} -m weft.client.cli.main"
    if found and Path(found).samefile(file):
        return "weft"
    return shlex.quote(called if "/" in called else f"./{called}")
