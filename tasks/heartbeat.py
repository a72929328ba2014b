"""Heartbeats of workers: one row of the hash table each, expiring after the worker's death."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from weft.client.sync_client import Client
from weft.errors import WeftError

from .signature import encode

log = logging.getLogger("weft.tasks")

BEAT_S: Final = 5.0
TTL_MS: Final = 20_000


class PlacementCounts(msgspec.Struct, array_like=True, frozen=True):
    """Tasks near data, by the choice of the worker (`sites.placement`)."""

    #: Run at the site of their data.
    local: int = 0
    #: Moved to the site of their data.
    moved: int = 0
    #: Kept in the queue of the worker's site, since the site of their data was full.
    kept: int = 0
    #: Run at another site than that of their data.
    fetched: int = 0
    #: Taken from the queue of another site.
    stolen: int = 0

    def plus(self, other: PlacementCounts) -> PlacementCounts:
        return PlacementCounts(
            self.local + other.local,
            self.moved + other.moved,
            self.kept + other.kept,
            self.fetched + other.fetched,
            self.stolen + other.stolen,
        )

    @property
    def local_share(self) -> float | None:
        """The share of the tasks near data that ran at the site of their data; None without any."""
        ran = self.local + self.fetched
        return self.local / ran if ran else None


class TaskCounts(msgspec.Struct, array_like=True, frozen=True):
    """Tasks of a worker process since the start of the process."""

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0
    placed: PlacementCounts = PlacementCounts()
    #: Time in tasks.
    busy_s: float = 0.0
    #: Succeeded and failed tasks by name.
    by_task: dict[str, tuple[int, int]] = {}

    def plus(self, other: TaskCounts) -> TaskCounts:
        return TaskCounts(
            self.succeeded + other.succeeded,
            self.failed + other.failed,
            self.retried + other.retried,
            self.lost + other.lost,
            self.placed.plus(other.placed),
            self.busy_s + other.busy_s,
            _both(self.by_task, other.by_task),
        )


class WorkerBeat(msgspec.Struct, frozen=True):
    """The row of one worker. Times are in seconds since 1970."""

    host: str
    pid: int
    pool: str
    concurrency: int
    queues: list[str]
    started: float
    beat: float
    counts: TaskCounts
    #: Ids of running tasks, with the start of each.
    running: dict[str, float]
    #: The site of the worker.
    site: str = ""
    #: The id of its spill folder, and the address of its block server; "" for none.
    store: str = ""
    blocks: str = ""
    #: Ends of worker processes by cause, except for stops.
    deaths: dict[str, int] = {}


class WorkerPlace(NamedTuple):
    """Where the worker is, as in its row."""

    site: str = ""
    store: str = ""
    blocks: str = ""


_NO_PLACE: Final = WorkerPlace()


def _both(
    one: dict[str, tuple[int, int]], other: dict[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    both = dict(one)
    for name, (succeeded, failed) in other.items():
        before = both.get(name, (0, 0))
        both[name] = (before[0] + succeeded, before[1] + failed)
    return both


def beat_prefix(app: str) -> str:
    return f"tasks/{app}/w/"


def beats_of(client: Client, app: str) -> list[WorkerBeat]:
    """The workers of an app with a recent heartbeat."""
    page = client.kv.scan(beat_prefix(app))
    entries = list(page)
    while page.more:
        page = client.kv.scan(beat_prefix(app), after=page.after)
        entries += page
    found = [msgspec.msgpack.decode(entry.value, type=WorkerBeat) for entry in entries]
    return sorted(found, key=lambda each: (each.host, each.pid))


class BeatWriter:
    """A thread that writes the row of this worker; the row is removed at an orderly end.

    The ready file, if one is asked for, exists from the first row that is written until the end.
    """

    def __init__(
        self,
        client: Client,
        app: str,
        pool: str,
        concurrency: int,
        queues: list[str],
        look: Callable[[], tuple[TaskCounts, dict[str, float]]],
        ready_file: str = "",
        place: WorkerPlace = _NO_PLACE,
        deaths: dict[str, int] | None = None,
    ) -> None:
        self._client = client
        self._deaths = {} if deaths is None else deaths
        self._fixed = (socket.gethostname(), os.getpid(), pool, concurrency, queues, time.time())
        self._key = f"{beat_prefix(app)}{self._fixed[0][:100]}-{self._fixed[1]}"
        self._look = look
        self._ready_file = Path(ready_file) if ready_file else None
        self._place = place
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft-beat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def row(self) -> WorkerBeat:
        """The worker at this moment."""
        counts, running = self._look()
        return WorkerBeat(
            *self._fixed, time.time(), counts, running, *self._place, dict(self._deaths)
        )

    def _run(self) -> None:
        while True:
            try:
                self._client.kv.insert(self._key, encode(self.row()), ttl_ms=TTL_MS)
                self._write_ready_file()
            except WeftError as error:
                log.info("a heartbeat was not written: %s", error.message)
            if self._ended.wait(BEAT_S):
                break
        if self._ready_file is not None:
            self._ready_file.unlink(missing_ok=True)
        try:
            self._client.kv.remove(self._key)
        except WeftError:
            pass  # the row expires

    def _write_ready_file(self) -> None:
        if self._ready_file is None or self._ready_file.exists():
            return
        try:
            self._ready_file.write_text(f"{os.getpid()}\n")
        except OSError as error:
            log.warning("the ready file %s cannot be written: %s", self._ready_file, error.strerror)
