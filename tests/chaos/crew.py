"""The load processes: started together, replaced after a planned death, ended together.

From the moment of the fault on, leases may be void at any time: a failover voids them, and so does
every later move of a primary. The crew records restarts for the checker.
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
CREW: Final = (
    "producer", "producer", "consumer", "consumer", "plain-producer", "plain-consumer",
)  # fmt: skip
PACE: Final = Pace()
#: The crew of a scenario in which workers hold messages, and its slower producers.
HOLD_CREW: Final = ("producer", "plain-producer", "consume-holder", "work-holder", "plain-holder")
HOLD_PACE: Final = Pace(pause_s_max=1.5)
BEGIN_S_MAX: Final = 200.0
#: A client's own timeout is half a minute; the rest is for a busy machine.
END_S_MAX: Final = 150.0
_LOOK_S: Final = 0.1


@dataclass
class _Hand:
    role: str
    number: int
    process: subprocess.Popen[bytes]
    journal: Path


@dataclass
class Crew:
    folder: Path
    queue: str
    servers: list[str]
    history: History
    roles: tuple[str, ...] = CREW
    pace: Pace = PACE
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._hands: list[_Hand] = []
        self._all: list[_Hand] = []
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="crew", daemon=True)

    def begin(self) -> None:
        """Start the load; return when every producer has had a push acknowledged."""
        for number, role in enumerate(self.roles):
            self._hire(role, number)
        self._watcher.start()
        end = time.monotonic() + BEGIN_S_MAX
        waiting = [each.journal for each in self._all if "producer" in each.role]
        while not all(path.exists() and b'"pushed"' in path.read_bytes() for path in waiting):
            if time.monotonic() > end or self.troubles:
                raise AssertionError(f"the load did not begin: {self.troubles}")
            time.sleep(_LOOK_S)

    def end(self) -> None:
        """Let every worker finish its current step."""
        self._over.set()
        self._watcher.join()
        for hand in self._hands:
            hand.process.terminate()
        end = time.monotonic() + END_S_MAX
        for hand in self._hands:
            try:
                hand.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.troubles.append(f"{hand.role} {hand.number} hangs")
            if hand.process.returncode not in (0, DIED, -signal.SIGTERM):  # just started
                self._ended(hand)

    def close(self) -> None:
        self._over.set()
        for hand in self._hands:
            if hand.process.poll() is None:
                hand.process.kill()
                hand.process.wait()

    @property
    def journals(self) -> list[Path]:
        return [hand.journal for hand in self._all if hand.journal.exists()]

    def producers(self, *, plain: bool) -> list[Path]:
        wanted = "plain-producer" if plain else "producer"
        return [hand.journal for hand in self._all if hand.role == wanted]

    # --- inside ---------------------------------------------------------------------------

    def _hire(self, role: str, number: int) -> None:
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
        hand = _Hand(role, number, process, journal)
        self._hands.append(hand)
        self._all.append(hand)

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            for hand in list(self._hands):
                if hand.process.poll() is None:
                    continue
                self._hands.remove(hand)
                if hand.process.returncode == DIED:
                    self._hire(hand.role, hand.number)
                else:
                    self._ended(hand)

    def _ended(self, hand: _Hand) -> None:
        said = hand.journal.with_suffix(".log").read_text(errors="replace").strip()
        code = hand.process.returncode
        self.troubles.append(f"{hand.role} {hand.number} ended with {code}: {said[-2000:]}")
