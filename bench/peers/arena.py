"""The servers of a run, started when first needed and kept, so that virtual machines get warm.

Idle servers cost the others next to nothing; what they do cost is in the measured load of other
processes. A server that died is started again for the next measurement.
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

#: A trial that took this long says how fast a system is; shorter ones are repeated with more.
TRIAL_S: Final = 2.0
FIRST_TRIAL: Final = 64
#: From one trial to the next.
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
        #: Messages per second of a system at a size, as the last trials found it.
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
    def queues(self, system: System, count: int = 1) -> Iterator[list[str]]:
        """Fresh queues for one measurement; afterwards it is checked that nothing is left in them.

        A message that came twice would have been counted for one that did not come at all.
        """
        server = self.server(system)
        prefix = f"bench-{secrets.token_hex(4)}"
        names = [f"{prefix}-{number}" for number in range(count)]
        session = system.open(server.address)
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
        """So many messages take about so many seconds; the trials are the warm-up, too."""
        if key not in self._counts:
            _, system, size = key
            known = self._rates.get((system, size))
            if known is None:
                trial(FIRST_TRIAL)  # Everything is cold: this one says nothing.
            first = 0 if known is None else int(known * min(seconds / 2, TRIAL_S) / GROWTH_MIN)
            count = enough(seconds, max(FIRST_TRIAL, first), most, trial)
            self._counts[key] = count
            self._rates[system, size] = count / seconds
        return self._counts[key]


def enough(seconds: float, first: int, most: int, trial: Callable[[int], float]) -> int:
    """How many messages `trial`, which says how long so many took, does in so many seconds.

    A trial counts when it was long enough and took clearly longer than one of a quarter of it: else
    what it measured is what a run costs before and after its messages.
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
