"""The floors: costs of the machine without Weft, measured in the same minute with the same sizes.

- a ZeroMQ round trip between two processes: the lower bound of any request;
- a put into a separate LevelDB, synced if the node syncs: the lower bound of any durable push;
- an append and an fdatasync on a plain file: the cost of the disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import zmq

from weft.errors import Unavailable

from .call_timer import Call
from .child import Child

ROUND_TRIP: Final = "ZeroMQ round trip"
PUT: Final = "LevelDB put"
APPEND: Final = "fdatasync append"
_ECHO_MS: Final = 10_000


@dataclass(frozen=True)
class Floors:
    """Medians, in microseconds."""

    zmq_round_trip_us: float
    #: None when LevelDB is not installed.
    leveldb_put_us: float | None
    fdatasync_append_us: float

    @classmethod
    def of(cls, taken: dict[str, list[float]]) -> Floors:
        return cls(
            median(taken[ROUND_TRIP]),
            median(taken[PUT]) if PUT in taken else None,
            median(taken[APPEND]),
        )

    @classmethod
    def median(cls, rounds: list[Floors]) -> Floors:
        puts = [one.leveldb_put_us for one in rounds if one.leveldb_put_us is not None]
        return cls(
            median(one.zmq_round_trip_us for one in rounds),
            median(puts) if puts else None,
            median(one.fdatasync_append_us for one in rounds),
        )

    @property
    def push_us(self) -> float | None:
        """The reference for a push: two raw round trips and one raw put."""
        if self.leveldb_put_us is None:
            return None
        return 2 * self.zmq_round_trip_us + self.leveldb_put_us


@contextmanager
def opened(size: int, folder: Path, *, sync: bool) -> Iterator[dict[str, Call]]:
    """The calls to time, with bodies of ``size`` bytes.

    ``folder`` is on the disk to measure; ``sync`` is True if the node syncs writes.
    """
    body = os.urandom(size)
    with ExitStack() as stack:
        calls = {ROUND_TRIP: stack.enter_context(_round_trip(body))}
        try:
            import plyvel
        except ImportError:
            pass  # The report shows the put as not installed.
        else:
            put = _put(plyvel, body, folder / "floor.leveldb", sync=sync)
            calls[PUT] = stack.enter_context(put)
        calls[APPEND] = stack.enter_context(_append(body, folder / "floor.append"))
        yield calls


@contextmanager
def _round_trip(body: bytes) -> Iterator[Call]:
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
                raise Unavailable(
                    "the echo process does not answer: run the benchmark again"
                ) from None

        yield call


@contextmanager
def _put(plyvel: Any, body: bytes, path: Path, *, sync: bool) -> Iterator[Call]:
    numbers = iter(range(1 << 40))
    database = plyvel.DB(str(path), create_if_missing=True, compression=None)
    try:
        yield lambda: database.put(next(numbers).to_bytes(8, "big"), body, sync=sync)
    finally:
        database.close()
        shutil.rmtree(path)


@contextmanager
def _append(body: bytes, path: Path) -> Iterator[Call]:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def call() -> None:
        os.write(file, body)
        os.fdatasync(file)

    try:
        yield call
    finally:
        os.close(file)
        path.unlink()
