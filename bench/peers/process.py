"""Server processes of a run: each in a separate session, stopped by process id.

The kernel kills a server if the run dies for any reason, so that no process is left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from weft.node_process import unused_ports

HOST: Final = "127.0.0.1"
#: Start timeout in seconds, for a JVM or an Erlang node on a busy machine.
START_S_MAX: Final = 120.0
#: Seconds between SIGTERM and SIGKILL.
STOP_S_MAX: Final = 20.0
_POLL_S: Final = 0.05
_TAIL_BYTES: Final = 2_000
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class ServerFailed(Exception):
    """A server did not start, or exited; the message has the end of the log."""


def free_ports(count: int) -> list[int]:
    """Unused ports outside of the range of ephemeral client ports."""
    return unused_ports(count)


def answers(port: int) -> bool:
    """True if a server listens on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


class ServerProcess:
    """One server process with a log, and all descendants of the process."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # Ctrl-C reaches only the run, which stops the server.
                preexec_fn=_end_with_parent,
            )

    @property
    def pid(self) -> int:
        """The process id, which is also the session id of all descendants."""
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_until(self, so: Callable[[], bool], within_s: float = START_S_MAX) -> None:
        """Returns when the condition holds; raises if the process exits first or time runs out."""
        end = time.monotonic() + within_s
        while not so():
            if self._process.poll() is not None:
                code = self._process.returncode
                raise ServerFailed(f"{self.name} ended with exit code {code}: {self.log_tail()}")
            if time.monotonic() > end:
                raise ServerFailed(f"{self.name} was not up in {within_s:.0f} s: {self.log_tail()}")
            time.sleep(_POLL_S)

    def log_tail(self) -> str:
        text = self._log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
        return text or "(it said nothing)"

    def stop(self) -> None:
        """Sends SIGTERM, then SIGKILL after a timeout; kills the rest of the session."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # The usual case: the session has no process left.


def _end_with_parent() -> None:
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
