"""Instructions of the engine and the codec, counted by valgrind's callgrind where installed.

The program (`engine_run.py`) starts without instrumentation, which callgrind switches on after the
warm-up; after each section callgrind dumps its counts and starts from zero again. The figures are
ratios to a reference of plain Python, counted in the same run: interpreters differ in their build,
and machines in the code paths that their libraries choose.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from .engine_run import REFERENCE, TIMES

_VGDB_S: Final = 60
#: A fixed hash order; and no copies by "rep movsb", which the C library chooses by alignment, and
#: of which each byte counts as an instruction.
_ENVIRONMENT: Final = {
    "PYTHONHASHSEED": "0",
    "GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=0x7fffffff"
    ":glibc.cpu.x86_rep_stosb_threshold=0x7fffffff",
}
_TOTAL: Final = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


class NoCallgrind(Exception):
    """Why callgrind cannot be used here."""


def measure(folder: Path) -> dict[str, float]:
    """Instructions of one operation, in references."""
    valgrind, vgdb = shutil.which("valgrind"), shutil.which("vgdb")
    if valgrind is None or vgdb is None:
        raise NoCallgrind("valgrind is not installed: Python calls stand in for instructions")
    log = folder / "valgrind.log"
    process = subprocess.Popen(
        [valgrind, "--tool=callgrind", "--instr-atstart=no", f"--log-file={log}",
         f"--callgrind-out-file={folder}/counted", f"--vgdb-prefix={folder}/vgdb",
         sys.executable, "-m", "tests.costs.engine_run"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | _ENVIRONMENT,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None

    def tell(*words: str) -> None:
        told = subprocess.run(
            [vgdb, f"--pid={process.pid}", f"--vgdb-prefix={folder}/vgdb", *words],
            capture_output=True, text=True, timeout=_VGDB_S, check=False,
        )  # fmt: skip
        if told.returncode:
            raise NoCallgrind(f"callgrind does not take commands here: {told.stderr.strip()}")

    counts: dict[str, int] = {}
    try:
        if process.stdout.readline().strip() != "ready":
            raise NoCallgrind(f"Python does not run under valgrind here: {log.read_text()[-500:]}")
        tell("instrumentation", "on")
        for number, section in enumerate((REFERENCE, *TIMES), 1):
            process.stdin.write(section + "\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == "done"
            tell("dump")
            (total,) = _TOTAL.findall((folder / f"counted.{number}").read_text())[:1]
            counts[section] = int(total)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    return {
        f"{section}: instructions": counts[section] / times / counts[REFERENCE]
        for section, times in TIMES.items()
    }
