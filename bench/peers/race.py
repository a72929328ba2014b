"""The run: every workload, repetition by repetition, with alternating systems.

Each repetition starts with another system, so that no system always follows the same one.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from weft.client.cli.bench import call_timer, floors
from weft.errors import WeftError

from . import fetch, workloads
from .arena import Arena
from .plan import Plan
from .process import ServerFailed
from .result import FLOOR, Failure, Measurement, Results
from .session import Lost
from .systems import System
from .targets import DISK
from .workers import WorkerFailed
from .workloads import Workload

#: Exceptions that count as a failure of a system; any other exception is a bug and ends the run.
FAILURES: Final = (
    ServerFailed,
    WorkerFailed,
    Lost,
    WeftError,
    OSError,
    subprocess.SubprocessError,
    fetch.Missing,
)
_FLOOR_BYTES: Final = 128


class Race:
    def __init__(
        self, arena: Arena, plan: Plan, systems: Sequence[System], tell: Callable[[str], None]
    ) -> None:
        self._arena = arena
        self._plan = plan
        self._systems = systems
        self._tell = tell
        self.results = Results()

    def run(self, wanted: Sequence[Workload]) -> None:
        for workload in wanted:
            entrants = [each for each in self._systems if each.name in workload.systems]
            out: set[str] = set()
            for repetition in range(self._plan.repeat):
                turn = repetition % max(1, len(entrants))
                for system in entrants[turn:] + entrants[:turn]:
                    if system.name not in out and not self._one(workload, system, repetition):
                        out.add(system.name)
                    if isinstance(workload, workloads.W3) and system.name == DISK:
                        self._floors(repetition)  # In the same minutes as the latencies.
            if workload.name == workloads.W6.name:
                for system in entrants:  # No other workload uses these servers of many processes.
                    self._arena.stop(system.server)

    def _one(self, workload: Workload, system: System, repetition: int) -> bool:
        """False if the system failed; the rest of the workload then skips the system."""
        head = f"{workload.name} {repetition + 1}/{self._plan.repeat} {system.name}"
        began = time.monotonic()
        try:
            taken = workload.measure(self._arena, self._plan, system)
        except FAILURES as error:
            reason = str(error) or type(error).__name__
            self._tell(f"{head}: failed: {reason}")
            failure = Failure(workload.name, system.name, repetition, reason)
            self.results.failures.append(failure)
            return False
        self.results.measurements.append(
            Measurement(workload.name, system.name, repetition, taken.figures, taken.samples)
        )
        shown = ", ".join(
            f"{column.title} {taken.figures[column.figure]:,.{column.digits}f}"
            for column in workload.columns[:2]
        )
        self._tell(f"{head}: {shown} ({time.monotonic() - began:.1f} s)")
        return True

    def _floors(self, repetition: int) -> None:
        """Measures the floors of the machine, in the same minutes as the latencies."""
        folder = Path(self._arena.folder)
        samples = min(1000, self._plan.samples)
        with floors.opened(_FLOOR_BYTES, folder, sync=True) as calls:
            taken = call_timer.in_turn(calls, samples, min(100, samples))
        raw = floors.Floors.of(taken)
        figures = {
            "zmq_round_trip_us": raw.zmq_round_trip_us,
            "fdatasync_append_us": raw.fdatasync_append_us,
            "push_floor_us": raw.fdatasync_append_us + 1.5 * raw.zmq_round_trip_us,
        }
        self.results.measurements.append(Measurement("W3", FLOOR, repetition, figures))
        self._tell(
            f"W3 {repetition + 1}/{self._plan.repeat} {FLOOR}: ZeroMQ round trip "
            f"{raw.zmq_round_trip_us:.0f} µs, append and fdatasync {raw.fdatasync_append_us:.0f} µs"
        )


def available(
    systems: Sequence[System], *, may_fetch: bool, tell: Callable[[str], None]
) -> tuple[list[System], dict[str, str]]:
    """The systems that can run here; prints the reason for each other system."""
    ready: list[System] = []
    skipped: dict[str, str] = {}
    for system in systems:
        try:
            system.client_version()
            system.fetch(may_fetch)
        except (fetch.Missing, ImportError) as error:
            skipped[system.name] = _why(error)
            tell(f"{system.name} is skipped: {skipped[system.name]}")
        else:
            ready.append(system)
    return ready, skipped


def _why(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"its Python client is not installed ({error}): pip install -e '.[bench]'"
    return str(error)
