"""The load processes: started together, replaced after a planned death, ended together.

From the moment of the fault on, leases may be void at any time: a failover voids them, and so does
every later move of a primary. `LoadProcesses` records restarts for the checker.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from tests.chaos.worker import DIED, Pace
from tests.total_queue import History

#: The load: two of each role through the Python client, one of each over plain gRPC.
ROLES: Final = (
    "producer", "producer", "consumer", "consumer", "plain-producer", "plain-consumer",
)  # fmt: skip
PACE: Final = Pace()
#: The roles of a scenario in which workers hold messages, and its slower producers.
HOLD_ROLES: Final = ("producer", "plain-producer", "consume-holder", "work-holder", "plain-holder")
HOLD_PACE: Final = Pace(pause_s_max=1.5)
BEGIN_S_MAX: Final = 200.0
#: A client's own timeout is half a minute; the rest is for a busy machine.
END_S_MAX: Final = 150.0
_POLL_S: Final = 0.1


@dataclass
class _LoadProcess:
    role: str
    number: int
    process: subprocess.Popen[bytes]
    journal: Path


@dataclass
class LoadProcesses:
    folder: Path
    queue: str
    servers: list[str]
    history: History
    roles: tuple[str, ...] = ROLES
    pace: Pace = PACE
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._running: list[_LoadProcess] = []
        self._all: list[_LoadProcess] = []
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="load-processes", daemon=True)

    def begin(self) -> None:
        """Start the load; return when every producer has had a push acknowledged."""
        for number, role in enumerate(self.roles):
            self._start(role, number)
        self._watcher.start()
        end = time.monotonic() + BEGIN_S_MAX
        waiting = [each.journal for each in self._all if "producer" in each.role]
        while not all(path.exists() and b'"pushed"' in path.read_bytes() for path in waiting):
            if time.monotonic() > end or self.troubles:
                raise AssertionError(f"the load did not begin: {self.troubles}")
            time.sleep(_POLL_S)

    def end(self) -> None:
        """Let every worker finish its current step."""
        self._over.set()
        self._watcher.join()
        for each in self._running:
            each.process.terminate()
        end = time.monotonic() + END_S_MAX
        for each in self._running:
            try:
                each.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.troubles.append(f"{each.role} {each.number} hangs")
            if each.process.returncode not in (0, DIED, -signal.SIGTERM):  # just started
                self._ended(each)

    def close(self) -> None:
        self._over.set()
        for each in self._running:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait()

    @property
    def journals(self) -> list[Path]:
        return [each.journal for each in self._all if each.journal.exists()]

    def producers(self, *, plain: bool) -> list[Path]:
        wanted = "plain-producer" if plain else "producer"
        return [each.journal for each in self._all if each.role == wanted]

    # --- inside ---------------------------------------------------------------------------

    def _start(self, role: str, number: int) -> None:
        journal = self.folder / f"{role}-{len(self._all)}.journal"
        pace = msgspec.json.encode(self.pace).decode()
        words = [role, str(number), self.queue, str(journal), pace, *self.servers]
        with journal.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.worker", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        each = _LoadProcess(role, number, process, journal)
        self._running.append(each)
        self._all.append(each)

    def _watch(self) -> None:
        while not self._over.wait(_POLL_S):
            for each in list(self._running):
                if each.process.poll() is None:
                    continue
                self._running.remove(each)
                if each.process.returncode == DIED:
                    self._start(each.role, each.number)
                else:
                    self._ended(each)

    def _ended(self, each: _LoadProcess) -> None:
        said = each.journal.with_suffix(".log").read_text(errors="replace").strip()
        code = each.process.returncode
        self.troubles.append(f"{each.role} {each.number} ended with {code}: {said[-2000:]}")
