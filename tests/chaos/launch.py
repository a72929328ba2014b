"""A run in a separate process, so that leftovers end with the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from .outcome import Outcome

#: A run that takes longer hangs.
RUN_S_MAX: Final = 500.0


def one_run(name: str, seed: int, folder: Path, *, quick: bool) -> Outcome:
    """Run a scenario; always return an outcome, also after a crash or a timeout."""
    words = [sys.executable, "-m", "tests.chaos.run", name, str(seed), str(folder)]
    with subprocess.Popen(
        [*words, "--quick"] if quick else words, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=RUN_S_MAX)
        except subprocess.TimeoutExpired:
            return Outcome(scenario=name, seed=seed, failure=f"no end after {RUN_S_MAX:.0f} s")
        finally:
            process.terminate()  # ends its nodes and networks, too
    try:
        return msgspec.json.decode(said.splitlines()[-1], type=Outcome)
    except (IndexError, msgspec.DecodeError):
        failure = f"the run ended with {process.returncode}: {said[-500:]}"
        return Outcome(scenario=name, seed=seed, failure=failure)
