"""Coarse ratios to the machine's own speed, measured at the same time.

These figures read a clock, so they are coarse: the floors alternate with the calls, medians are
compared, the lowest of several rounds counts, and the bounds are wide. They catch defects that no
count shows and that are present in every round: a sleep, a lost wake-up, a slow library.

- A synchronous push against a bare ZeroMQ round trip and a bare synced put, both of the same size.
- Processor time of a message on the batch path, node and client together, against the least
  possible work: its batch encoded, sent through ZeroMQ to another process that decodes it, writes
  it to a file, syncs, and answers; then sent back and decoded again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import zmq

import weft
from weft.client.cli.bench import floors
from weft.client.cli.bench.call_timer import in_turn
from weft.proto import wire
from weft.testing import cluster

from .bounds import BOUNDS
from .operations import BATCH, BODY

PUSH: Final = "push: time in floors"
CPU: Final = "batch: CPU in floors"
#: Rounds; more while the lowest is above its bound, because the machine may be overloaded. A real
#: defect is still there in the last round.
_ROUNDS: Final = 4
_ROUNDS_MAX: Final = 20
_SAMPLES: Final = 40
_WARM_UP: Final = 10
#: CPU is measured over this many batches at a time, in turns.
_TURN: Final = 30


def measure() -> dict[str, float]:
    with cluster(1) as nodes, weft.connect(nodes.servers) as client:
        client.create_queue("ratios")
        queue = client.queue("ratios")
        found = {PUSH: _push_floors(queue)}
        with _floor() as floor:
            found[CPU] = _cpu_floors(queue, nodes.node().pid, floor)
        return found


def _least(name: str, one_round: Callable[[], float]) -> float:
    rounds = [one_round() for _ in range(_ROUNDS)]
    while min(rounds) > BOUNDS[name] and len(rounds) < _ROUNDS_MAX:
        rounds.append(one_round())
    return min(rounds)


def _push_floors(queue: weft.Queue) -> float:
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".weft-costs-") as folder,
        floors.opened(len(BODY), Path(folder), sync=True) as calls,
    ):
        turns = {**calls, "push": lambda: queue.push(BODY)}

        def one_round() -> float:
            taken = in_turn(turns, _SAMPLES, _WARM_UP)
            floor = median(taken[floors.ROUND_TRIP]) + median(taken[floors.PUT])
            return median(taken["push"]) / floor

        least = _least(PUSH, one_round)
    while messages := queue.pop_many(1000):
        queue.ack_many(messages)
    return least


# --- processor time -----------------------------------------------------------------------------


class _Floor:
    """The bare path of a batch, and the process at its far end."""

    def __init__(self, socket: zmq.Socket[bytes], pid: int) -> None:
        self._socket = socket
        self.pid = pid

    def carry(self) -> None:
        self._socket.send(wire.encode(wire.Payload(BATCH)))
        assert len(wire.decode_payload(self._socket.recv()).bodies) == len(BATCH)


_FAR_END: Final = """
import os, sys, zmq
from weft.proto import wire
socket = zmq.Context().socket(zmq.REP)
print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    frame = socket.recv()
    wire.decode_payload(frame)
    os.write(file, frame)
    os.fdatasync(file)
    socket.send(frame)
"""


@contextmanager
def _floor() -> Iterator[_Floor]:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".weft-costs-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", _FAR_END, f"{folder}/floor"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            with zmq.Context() as context, context.socket(zmq.REQ) as socket:
                socket.setsockopt(zmq.LINGER, 0)
                socket.setsockopt(zmq.RCVTIMEO, 20_000)
                socket.connect(f"tcp://127.0.0.1:{process.stdout.readline().strip()}")
                yield _Floor(socket, process.pid)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _cpu_floors(queue: weft.Queue, node: int, floor: _Floor) -> float:
    def push_pop_ack() -> None:
        queue.push_many(BATCH)
        queue.ack_many(queue.pop_many(len(BATCH), wait_ms=20_000))

    calls = (("weft", push_pop_ack, node), ("floor", floor.carry, floor.pid))

    def one_round() -> float:
        used: dict[str, float] = {}
        for name, call, pid in calls:
            call()
            before = _cpu_s(pid)
            for _ in range(_TURN):
                call()
            used[name] = _cpu_s(pid) - before
        return used["weft"] / used["floor"]

    return _least(CPU, one_round)


def _cpu_s(pid: int) -> float:
    """Processor time of this process and another.

    Every process has a clock of its processor time (see clock_getcpuclockid(3); the expression is
    the clock's number on Linux).
    """
    return time.process_time() + time.clock_gettime((~pid << 3) | 2)
