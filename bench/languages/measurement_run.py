"""The run: every workload, repetition by repetition, with alternating systems.

A client program works for a fixed time, so that every system has the same share of a run. The
server's processor time covers exactly this time: it is read when the program is warm and ready.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from bench.peers import fetch, usage
from bench.peers.arena import Arena
from bench.peers.process import ServerFailed
from bench.peers.result import Failure, Measurement, Results
from bench.peers.session import Flow
from bench.peers.workers import WORK_S_MAX, WorkerFailed

from . import entrants, workloads
from .entrants import Entrant
from .programs import Program
from .workloads import LanguageWorkload

#: Exceptions that count as a failure of a system; any other exception is a bug and ends the run.
FAILURES = (ServerFailed, WorkerFailed, OSError, fetch.Missing)


class MeasurementRun:
    def __init__(
        self,
        arena: Arena,
        ready: Sequence[Entrant],
        *,
        seconds: float,
        repeat: int,
        samples: int,
        tell: Callable[[str], None],
    ) -> None:
        self._arena = arena
        self._ready = {each.name: each for each in ready}
        self._seconds = seconds
        self._repeat = repeat
        self._samples = samples
        self._tell = tell
        self.results = Results()

    def run(self, wanted: Sequence[LanguageWorkload]) -> None:
        """Repetitions are outermost: the figures of a ratio come from the same minutes."""
        out: set[tuple[str, str]] = set()
        for repetition in range(self._repeat):
            for workload in wanted:
                names = [name for name in workload.entrants if name in self._ready]
                turn = repetition % max(1, len(names))
                for name in names[turn:] + names[:turn]:
                    if (workload.name, name) not in out and not self._one(
                        workload, self._ready[name], repetition
                    ):
                        out.add((workload.name, name))

    def _one(self, workload: LanguageWorkload, entrant: Entrant, repetition: int) -> bool:
        """False if the system failed; the rest of the run then skips it in this workload."""
        head = f"{workload.name} {repetition + 1}/{self._repeat} {entrant.name}"
        measure = self._python if entrant.language == "python" else self._program
        try:
            figures = measure(workload, entrant)
        except FAILURES as error:
            reason = str(error) or type(error).__name__
            self._tell(f"{head}: failed: {reason}")
            failure = Failure(workload.name, entrant.name, repetition, reason)
            self.results.failures.append(failure)
            return False
        self.results.measurements.append(
            Measurement(workload.name, entrant.name, repetition, figures)
        )
        first = workload.columns[0]
        self._tell(f"{head}: {first.title} {figures[first.figure]:,.0f}")
        return True

    def _program(self, workload: LanguageWorkload, entrant: Entrant) -> dict[str, float]:
        server = self._arena.server(entrant.system)
        task = {
            "system": entrant.broker,
            "address": entrants.address_of(entrant, server),
            "queue": f"bench-{secrets.token_hex(4)}",
            "seconds": self._seconds,
            **workload.task,
        }
        program = Program(entrant.language, task)
        try:
            until = time.monotonic() + WORK_S_MAX
            program.read(until)
            before, busy, own = server.usage(), usage.machine_busy_s(), usage.own_cpu_s()
            program.go()
            said = program.read(until)
            after = server.usage()
            busy, own = usage.machine_busy_s() - busy, usage.own_cpu_s() - own
        except BaseException:
            program.kill()
            raise
        finally:
            program.close()
        server_cpu = after.cpu_s - before.cpu_s
        return _figures(said, server_cpu, busy - own - server_cpu)

    def _python(self, workload: LanguageWorkload, entrant: Entrant) -> dict[str, float]:
        """The Python client's single calls, timed by the worker of `bench.peers`."""
        with self._arena.queues(entrant.system) as queues:
            flow = Flow(queues, self._samples, workloads.SIZE)
            (said,) = self._arena.work(entrant.system, [("call", flow)]).said
        pushes = sorted(said["push_us"])
        return {"p50_us": median(pushes), "p99_us": pushes[int(0.99 * (len(pushes) - 1))]}


def _figures(said: dict[str, Any], server_cpu_s: float, other_s: float) -> dict[str, float]:
    count, seconds = int(said["messages"]), float(said["seconds"])
    if count == 0:
        raise WorkerFailed("no message was completed")
    client_cpu = float(said["client_cpu_s"])
    figures = {
        "rate": count / seconds,
        "server_cpu_us": server_cpu_s / count * 1e6,
        "client_cpu_us": client_cpu / count * 1e6,
        "other_cores": max(0.0, other_s - client_cpu) / seconds,
    }
    if said.get("calls"):
        figures["calls"] = int(said["calls"]) / seconds
    for name in ("p50_us", "p99_us"):
        if said.get(name):
            figures[name] = float(said[name])
    return figures
