"""The floors: what the machine itself takes, without Weft, in the same minute and the same sizes.

- a ZeroMQ round trip between two processes: what any request costs at least;
- a put into a LevelDB of its own, synced if the node syncs: what any durable push costs at least;
- an append and an fdatasync to a plain file: what the disk takes.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import zmq

from weft.errors import Unavailable

from .child import Child
from .plan import WARM_UP, Plan

_ECHO_MS: Final = 10_000


@dataclass(frozen=True)
class Floors:
    """Medians, in microseconds."""

    zmq_round_trip_us: float
    #: None when LevelDB is not installed.
    leveldb_put_us: float | None
    fdatasync_append_us: float


def measure(plan: Plan, folder: Path, *, sync: bool) -> Floors:
    """``folder`` is on the disk to be measured; ``sync``: whether the node's writes are synced."""
    body = os.urandom(plan.size)
    return Floors(
        _typical(_round_trip(body), plan.samples),
        _leveldb(body, plan.samples, folder, sync=sync),
        _typical(_append(body, folder), plan.samples),
    )


def timed(call: Callable[[], object], samples: int) -> list[float]:
    """How long each of so many calls took, in microseconds."""
    clock = time.perf_counter_ns
    taken = []
    for _ in range(samples):
        start = clock()
        call()
        taken.append((clock() - start) / 1000)
    return taken


def _typical(steps: Iterator[Callable[[], object]], samples: int) -> float:
    with contextmanager(lambda: steps)() as call:
        timed(call, min(WARM_UP, samples))
        return median(timed(call, samples))


def _round_trip(body: bytes) -> Iterator[Callable[[], object]]:
    with (
        Child("weft.client.cli.bench.echo", {}) as echo,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as socket,
    ):
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, _ECHO_MS)
        socket.connect(f"tcp://127.0.0.1:{echo.read()['port']}")

        def call() -> None:
            socket.send(body)
            try:
                socket.recv()
            except zmq.Again:
                raise Unavailable("the echo process does not answer; run the command again") from None

        yield call


def _leveldb(body: bytes, samples: int, folder: Path, *, sync: bool) -> float | None:
    try:
        import plyvel
    except ImportError:
        return None
    return _typical(_put(plyvel, body, folder / "floor.leveldb", sync=sync), samples)


def _put(plyvel: Any, body: bytes, path: Path, *, sync: bool) -> Iterator[Callable[[], object]]:
    numbers = iter(range(1 << 40))
    database = plyvel.DB(str(path), create_if_missing=True, compression=None)
    try:
        yield lambda: database.put(next(numbers).to_bytes(8, "big"), body, sync=sync)
    finally:
        database.close()
        shutil.rmtree(path)


def _append(body: bytes, folder: Path) -> Iterator[Callable[[], object]]:
    path = folder / "floor.append"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def call() -> None:
        os.write(file, body)
        os.fdatasync(file)

    try:
        yield call
    finally:
        os.close(file)
        path.unlink()
