"""Options of a worker, checked once, and passed to its processes as one value."""

from __future__ import annotations

from typing import Final

import msgspec

from weft.client import arguments
from weft.errors import InvalidArgument

from .pickle_codec import require_cloudpickle
from .sites.site import check_site, default_site

PROCESSES, THREADS, SOLO = "processes", "threads", "solo"
POOLS: Final = (PROCESSES, THREADS, SOLO)
CONCURRENCY_MAX: Final = 1_000
COROUTINES: Final = 100
COROUTINES_MAX: Final = 10_000
GRACE_S: Final = 30.0
LIFE_S_MAX: Final = 366 * 24 * 3600.0


class WorkerOptions(msgspec.Struct, frozen=True):
    concurrency: int = 1
    pool: str = PROCESSES
    #: Queues of the app, without the app's name; empty for the queues of all its tasks.
    queues: list[str] = []
    #: How long running tasks may finish after a stop.
    grace_s: float = GRACE_S
    #: The worker ends after so long without a task; 0: never.
    max_idle_s: float = 0.0
    #: `async def` tasks at once on one event loop.
    coroutines: int = COROUTINES
    #: A file that exists while the worker takes tasks; empty for none.
    ready_file: str = ""
    #: The site of the worker; by default the name of the machine.
    site: str = msgspec.field(default_factory=default_site)
    #: The spill folder for blocks; "" for the folder of the user on the disk of temporary files.
    spill: str = ""
    #: HOST or HOST:PORT of the block server; "" for the address on the way to the cluster.
    block_address: str = ""
    #: The worker stops after so long, like after SIGTERM; 0: never.
    max_life_s: float = 0.0
    #: Worker processes start again when a source file changes.
    reload: bool = False
    #: Where metrics are served, HOST:PORT or PORT; empty: nowhere.
    metrics: str = ""
    #: The worker unpickles arguments, and pickles results, of an app that asks for it.
    allow_pickle: bool = False

    def __post_init__(self) -> None:
        arguments.check_integer("concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        if self.pool not in POOLS:
            raise InvalidArgument(f"pool must be one of {', '.join(POOLS)}, not {self.pool!r}")
        if self.pool == SOLO and self.concurrency != 1:
            raise InvalidArgument("a solo worker runs one task at a time: concurrency must be 1")
        arguments.check_number("grace_s", self.grace_s, 0, arguments.WAIT_S_MAX)
        arguments.check_number("max_idle_s", self.max_idle_s, 0, arguments.WAIT_S_MAX)
        arguments.check_number("max_life_s", self.max_life_s, 0, LIFE_S_MAX)
        if self.reload and self.pool != PROCESSES:
            raise InvalidArgument(
                f"--reload takes --pool {PROCESSES}: this process would keep the old code"
            )
        if self.allow_pickle:
            require_cloudpickle()
        check_site(self.site)
        arguments.check_integer("coroutines", self.coroutines, 1, COROUTINES_MAX)
