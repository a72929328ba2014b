"""The servers of a run, started on first use and kept running, so that virtual machines get warm.

Idle servers hardly affect the others; the measured load of other processes includes them. A server
that died is restarted for the next measurement.
"""

from __future__ import annotations

import math
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .process import ServerFailed
from .server import Server
from .session import BATCH_COUNT, Flow
from .systems import System
from .workers import Outcome, WorkerFailed, work

#: Minimum seconds of a trial for a valid rate; shorter trials are repeated with more messages.
TRIAL_S: Final = 2.0
FIRST_TRIAL: Final = 64
#: Growth factor of the message count from one trial to the next.
GROWTH_MIN: Final = 4.0
GROWTH_MAX: Final = 20.0

Tell = Callable[[str], None]
#: workload, system, bytes of a message.
Key = tuple[str, str, int]


class Arena:
    def __init__(self, folder: Path, tell: Tell) -> None:
        self.folder = folder
        self.tell = tell
        self._servers: dict[type[Server], Server] = {}
        self._counts: dict[Key, int] = {}
        #: Messages per second of a system at a size, from the latest trials.
        self._rates: dict[tuple[str, int], float] = {}

    def server(self, system: System) -> Server:
        kind = system.server
        running = self._servers.get(kind)
        if running is not None and running.alive():
            return running
        if running is not None:
            self.stop(kind)
        folder = self.folder / f"{kind.__name__}-{secrets.token_hex(3)}"
        folder.mkdir()
        server = kind(folder)
        self._servers[kind] = server
        self.tell(f"starting {kind.__name__}")
        try:
            server.start()
        except BaseException:
            self.stop(kind)
            raise
        return server

    def stop(self, kind: type[Server]) -> None:
        server = self._servers.pop(kind, None)
        if server is not None:
            server.close()
            shutil.rmtree(server.folder, ignore_errors=True)

    def close(self) -> None:
        for kind in list(self._servers):
            self.stop(kind)

    @contextmanager
    def queues(
        self, system: System, count: int = 1, *, fan_out: bool = False
    ) -> Iterator[list[str]]:
        """Fresh queues for one measurement; checks afterwards that all of them are empty.

        Otherwise a message delivered twice could hide a message that was not delivered.
        """
        server = self.server(system)
        prefix = f"bench-{secrets.token_hex(4)}"
        names = [f"{prefix}-{number}" for number in range(count)]
        session = system.open(server.address, fan_out=fan_out)
        try:
            session.create(names)
            yield names
            left = session.left(names)
            session.drop(names)
        finally:
            session.close()
        if left:
            raise WorkerFailed(f"{system.name}: {left} messages are left, though all were acked")

    def work(self, system: System, roles: list[tuple[str, Flow]]) -> Outcome:
        server = self.server(system)
        try:
            return work(system.name, server, roles)
        except WorkerFailed as error:
            if server.alive():
                raise
            raise ServerFailed(f"{error}; its server died: {server.log_tail()}") from None

    def count_for(self, key: Key, seconds: float, most: int, trial: Callable[[int], float]) -> int:
        """The number of messages for about the given seconds; the trials also warm up."""
        if key not in self._counts:
            _, system, size = key
            known = self._rates.get((system, size))
            if known is None:
                trial(FIRST_TRIAL)  # Cold start; the result is discarded.
            first = 0 if known is None else int(known * min(seconds / 2, TRIAL_S) / GROWTH_MIN)
            count = enough(seconds, max(FIRST_TRIAL, first), most, trial)
            self._counts[key] = count
            self._rates[system, size] = count / seconds
        return self._counts[key]


def enough(seconds: float, first: int, most: int, trial: Callable[[int], float]) -> int:
    """The number of messages that `trial` (messages -> seconds) processes in the given seconds.

    A trial is valid if it was long enough and clearly longer than a trial of a quarter of the size;
    otherwise it measured the fixed cost of a run.
    """
    long_enough = min(seconds / 2, TRIAL_S)
    count = min(most, first)
    took = trial(count)
    while count < most:
        growth = min(GROWTH_MAX, max(GROWTH_MIN, 1.5 * long_enough / max(took, 0.001)))
        count = min(most, math.ceil(count * growth))
        before, took = took, trial(count)
        if took >= long_enough and took > 2 * before:
            break
    wanted = min(most, int(count * seconds / took))
    whole = BATCH_COUNT if wanted > BATCH_COUNT else 1
    return max(1, wanted // whole) * whole
