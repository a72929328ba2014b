"""Start MPI jobs for tests: on one machine with shared memory, without it, or on two "hosts".

``shared`` is how MPICH runs the ranks of one machine. ``apart`` is how MPICH runs ranks of several
machines: ``MPIR_CVAR_NOLOCAL`` disables MPICH's shared memory, and ``UCX_TLS`` that of the library
below it (which would otherwise copy between processes, and never return from an operation on a dead
one). A test run under ``MPIR_CVAR_NOLOCAL=1`` runs every job apart.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
#: A run takes about two seconds; a hang must not use up the time of other tests.
RUN_SECONDS_MAX: Final = 200

_NO_LOCAL: Final = "MPIR_CVAR_NOLOCAL"
_ALL_APART: Final = os.environ.get(_NO_LOCAL, "0") not in ("0", "")
#: The kinds of memory that a parametrized test runs with.
MEMORIES: Final = ("apart",) if _ALL_APART else ("shared", "apart")


def mpiexec() -> str:
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert found, "no mpiexec: pip install 'weft[mpi]' brings one"
    return found


def environment(memory: str = "shared") -> dict[str, str]:
    """The environment of a job whose ranks have this kind of memory."""
    apart = {_NO_LOCAL: "1", "UCX_TLS": "tcp,self", "UCX_LOG_LEVEL": "error"}
    return {**os.environ, **(apart if _ALL_APART or memory == "apart" else {})}


def run(ranks: int, program: str, *arguments: str, memory: str = "shared") -> str:
    command = [mpiexec(), "-n", str(ranks), sys.executable, str(HERE / program), *arguments]
    return finish(command, environment(memory))


def finish(command: list[str], env: dict[str, str], seconds: float = RUN_SECONDS_MAX) -> str:
    """The job's output; the test fails if the job does."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpiexec ends its ranks, too
        output, _ = process.communicate()
        pytest.fail(f"{' '.join(command)} did not end:\n{output[-2000:]}")
    assert process.returncode == 0, output[-4000:]
    return output
