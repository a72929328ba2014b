"""Where workers come from: processes of this machine, or commands of a batch system or a cloud.

A source counts workers, running and starting ones, and starts and stops some. It raises HookFailed
with one line; the provisioner retries later.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from typing import IO, Final, Protocol

from weft.tasks.heartbeat import WorkerBeat

#: The output of a hook that is shown.
_SHOWN_CHARS: Final = 300
#: The output of a hook that is read.
_OUTPUT_MAX: Final = 1 << 20
#: A worker that ends with an error within this time could not start.
YOUNG_S: Final = 5.0
_LAST_S: Final = 60.0


class HookFailed(Exception):
    """A worker could not be started, stopped or counted."""


class WorkerSource(Protocol):
    can_stop: bool

    def count(self, beats: Sequence[WorkerBeat]) -> int:
        """Workers that run or are being started."""
        ...

    def start(self, workers: int) -> None: ...

    def stop(self, workers: int, idle: Collection[int]) -> None:
        """Stops workers, those with an idle process number first."""
        ...

    def close(self) -> None:
        """The provisioner ends."""
        ...


class ProcessSource:
    """`weft worker` processes of this machine. They stop with the provisioner, gracefully."""

    can_stop = True

    def __init__(self, command: Sequence[str], grace_s: float) -> None:
        self._command = list(command)
        self._grace_s = grace_s
        self._running: dict[subprocess.Popen[bytes], float] = {}
        self._stopping: list[subprocess.Popen[bytes]] = []

    def count(self, beats: Sequence[WorkerBeat]) -> int:
        self._stopping = [each for each in self._stopping if each.poll() is None]
        failed = ""
        for process, started in list(self._running.items()):
            if (code := process.poll()) is not None:
                del self._running[process]
                if code and time.monotonic() - started < YOUNG_S:
                    failed = f"a worker ended with exit code {code} right after its start"
        if failed:
            raise HookFailed(f"{failed}: its log has the reason")
        return len(self._running)

    def start(self, workers: int) -> None:
        for _ in range(workers):
            try:
                # A session of its own: a Ctrl-C at the provisioner must not end running tasks.
                process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, start_new_session=True
                )
            except OSError as error:
                raise HookFailed(f"a worker cannot be started: {error}") from None
            self._running[process] = time.monotonic()

    def stop(self, workers: int, idle: Collection[int]) -> None:
        # Idle ones first, then the youngest.
        order = sorted(self._running, key=lambda each: (each.pid not in idle, -self._running[each]))
        for process in order[:workers]:
            del self._running[process]
            process.send_signal(signal.SIGTERM)
            self._stopping.append(process)

    def close(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._grace_s + _LAST_S
        for process in [*self._running, *self._stopping]:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


class CommandSource:
    """Commands of the operator, run by a shell: `--start`, `--stop` and `--count`.

    A command gets the number of workers as WEFT_WORKERS, the app as WEFT_APP, and its cluster as
    WEFT_SERVERS. Without a count command, workers are counted by their heartbeats, and a started
    one counts until its heartbeat comes or `boot_s` is over.
    """

    def __init__(
        self, app: str, start: str, stop: str | None, count: str | None, limit_s: float,
        boot_s: float,
    ) -> None:  # fmt: skip
        self._app = app
        self._start, self._stop, self._count = start, stop, count
        self._limit_s = limit_s
        self._boot_s = boot_s
        self.can_stop = stop is not None
        #: Start times of workers without a heartbeat.
        self._booting: list[float] = []

    def count(self, beats: Sequence[WorkerBeat]) -> int:
        if self._count is not None:
            said = self._run("count", self._count, 0).split()
            if not said or not said[0].isdigit():
                raise HookFailed(
                    f"--count must print a number of workers, and printed "
                    f"{' '.join(said)[:_SHOWN_CHARS]!r}"
                )
            return int(said[0])
        now = time.time()
        self._booting = [at for at in self._booting if now - at < self._boot_s]
        for beat in sorted(beats, key=lambda each: each.started):
            for at in self._booting:
                if beat.started >= at:
                    self._booting.remove(at)
                    break
        return len(beats) + len(self._booting)

    def start(self, workers: int) -> None:
        at = time.time()
        self._run("start", self._start, workers)
        if self._count is None:
            self._booting += [at] * workers

    def stop(self, workers: int, idle: Collection[int]) -> None:
        assert self._stop is not None
        self._run("stop", self._stop, workers)

    def close(self) -> None:
        """The workers are the batch system's: they end when they are idle."""

    def _run(self, name: str, command: str, workers: int) -> str:
        environment = {**os.environ, "WEFT_APP": self._app, "WEFT_WORKERS": str(workers)}
        # Files, not pipes: a worker that the command leaves in the background may keep them open.
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
            process = subprocess.Popen(
                command, shell=True, env=environment, stdin=subprocess.DEVNULL, stdout=said,
                stderr=complained, start_new_session=True,
            )  # fmt: skip
            try:
                process.wait(self._limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise HookFailed(f"--{name} has not ended within {self._limit_s:g} s") from None
            out, complaint = _text_of(said), _text_of(complained)
        if process.returncode:
            lines = (complaint or out).strip().splitlines() or ["no output"]
            raise HookFailed(
                f"--{name} ended with exit code {process.returncode}: {lines[-1][:_SHOWN_CHARS]}"
            )
        return out


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_OUTPUT_MAX).decode(errors="replace")


def local_command(
    app: str, slots: int, queues: Sequence[str], max_idle_s: float, grace_s: float, level: str
) -> list[str]:
    """The command line of a local worker."""
    words = [sys.executable, "-m", "weft.client.cli.main", "worker", app, "-c", str(slots)]
    for queue in queues:
        words += ["-q", queue]
    words += ["--grace", f"{grace_s:g}", "--log-level", level]
    return [*words, "--max-idle", f"{max_idle_s:g}"] if max_idle_s else words


def workers_of(slots: int, per_worker: int) -> int:
    """The workers for so many slots."""
    return math.ceil(slots / per_worker)
