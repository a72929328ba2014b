"""The producers and consumers of one measurement, with processor time of workers and server."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from . import usage
from .server import Server
from .session import Flow

ROOT: Final = Path(__file__).resolve().parents[2]
#: Timeout from start to result, for the deepest queue of the slowest peer.
WORK_S_MAX: Final = 600.0
_STOP_S: Final = 10.0
_TAIL_BYTES: Final = 1000


class WorkerFailed(Exception):
    """A worker reported an error, died or hung; the message has the cause and the output."""


@dataclass(frozen=True)
class Outcome:
    """The use of one measurement, from the first worker's start to the last worker's end."""

    seconds: float
    server_cpu_s: float
    client_cpu_s: float
    #: Processors kept busy by other programs, including idle servers of peers.
    other_cores: float
    #: The server's memory at the end.
    rss_bytes: int
    #: The report of each worker.
    said: list[dict[str, Any]] = field(repr=False)


class Worker:
    """One worker process, controlled through lines of JSON."""

    def __init__(self, system: str, role: str, server: Server, flow: Flow) -> None:
        self._name = f"{system}'s {role} worker"
        task = {
            "system": system,
            "role": role,
            "address": server.address,
            "queues": flow.queues,
            "count": flow.count,
            "size": flow.size,
            "visit": flow.visit,
            "fan_out": flow.fan_out,
        }
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bench.peers.worker", json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self._heard = b""

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def read(self, until: float) -> dict[str, Any]:
        """The worker's next line; raises the error that the worker reports."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._heard:
            left = until - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise WorkerFailed(f"{self._name} said nothing in {WORK_S_MAX:.0f} s")
            part = os.read(pipe, 1 << 20)
            if not part:
                raise WorkerFailed(f"{self._name} ended by itself: {self._tail()}")
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise WorkerFailed(f"{self._name}: {said['error']['message']}")
        return said

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-_TAIL_BYTES:].decode(errors="replace").strip() or "(silent)"

    def close(self) -> None:
        """Terminates the worker, finished or not."""
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()


def work(system: str, server: Server, roles: Sequence[tuple[str, Flow]]) -> Outcome:
    """Runs the workers concurrently; times from the first producer's start to the last end."""
    with ExitStack() as stack:
        workers = []
        for role, flow in roles:
            worker = Worker(system, role, server, flow)
            stack.callback(worker.close)
            workers.append(worker)
        try:
            until = time.monotonic() + WORK_S_MAX
            for worker in workers:
                worker.read(until)
            before, busy, own = server.usage(), usage.machine_busy_s(), usage.own_cpu_s()
            began = time.monotonic()
            for worker in reversed(workers):  # Consumers first, so that they wait for messages.
                worker.go()
            said = [worker.read(until) for worker in workers]
        except BaseException:
            for worker in workers:
                worker.kill()
            raise
        wall = time.monotonic() - began
        after = server.usage()
        busy, own = usage.machine_busy_s() - busy, usage.own_cpu_s() - own
    server_cpu = after.cpu_s - before.cpu_s
    client_cpu = sum(float(each["cpu_s"]) for each in said)
    sends = [role == "produce" for role, _ in roles]
    # Time before the first producer's start is only waiting of consumers.
    starts = [int(each["start_ns"]) for each, is_one in zip(said, sends, strict=True) if is_one]
    first = min(starts or [int(each["start_ns"]) for each in said])
    seconds = (max(int(each["end_ns"]) for each in said) - first) / 1e9
    other = max(0.0, busy - own - server_cpu - client_cpu) / wall
    return Outcome(seconds, server_cpu, client_cpu, other, after.rss_bytes, said)
