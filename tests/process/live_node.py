"""A real node in a separate process, to be killed.

The node listens on ports that the system picks anew at each start: another process (even a client
that connects to itself) could take a fixed port while the node is down. `address.json` has the
node's addresses and pid, so that a killed node's leftover is not mistaken for the new one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

#: Only a hang takes longer.
START_SECONDS_MAX: Final = 100.0
STOP_SECONDS_MAX: Final = 100.0
_POLL_SECONDS: Final = 0.01
_TAIL_CHARACTERS: Final = 4000


class NodeEnded(Exception):
    """The node exited instead of serving."""

    def __init__(self, code: int, log: str) -> None:
        super().__init__(f"exit code {code}, log:\n{log[-_TAIL_CHARACTERS:]}")
        self.code = code
        self.log = log


class LiveNode:
    """One data directory and the process that serves it, if any. Use it in a ``with``."""

    def __init__(self, data: Path, *, log: Path | None = None, **settings: object) -> None:
        self.data = data
        self.log_path = log or data.with_suffix(".log")
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.grpc = ""
        self.zmq = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def spawn(self) -> None:
        """Start the process, and do not wait."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        flags = [
            f"--{name.replace('_', '-')}={value}"
            for name, value in ({"listen": "127.0.0.1:0"} | self._settings).items()
        ]
        command = [sys.executable, "-m", "weft.server.serve_command", f"--data={self.data}", *flags]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def start(self) -> Self:
        """Start the process and return when it serves; raises NodeEnded if it does not."""
        self.spawn()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._serves():
            if (code := self.process.poll()) is not None:
                raise NodeEnded(code, self.log)
            assert time.monotonic() < deadline, f"the node does not serve:\n{self.log}"
            time.sleep(_POLL_SECONDS)
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the node was never started"
        return self._process

    @property
    def log(self) -> str:
        """The stdout and stderr of this start."""
        return self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: the process ends at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> int:
        """The exit code; raises subprocess.TimeoutExpired."""
        return self.process.wait(seconds)

    def stop(self, seconds: float = STOP_SECONDS_MAX) -> int:
        self.terminate()
        return self.wait(seconds)

    def rss_bytes(self) -> int:
        """Resident memory of the process, mapped files included."""
        return self._memory_bytes("VmRSS")

    def own_bytes(self) -> int:
        """The same without the files that LevelDB maps: the system may reclaim those pages."""
        return self._memory_bytes("RssAnon")

    def _memory_bytes(self, what: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        (line,) = [line for line in status.splitlines() if line.startswith(f"{what}:")]
        return int(line.split()[1]) * 1024

    def disk_bytes(self) -> int:
        """Disk blocks under the data directory."""
        total = 0
        for path in self.data.rglob("*"):
            try:
                total += path.stat().st_blocks * 512
            except FileNotFoundError:
                continue  # LevelDB removes old files in the background.
        return total

    def _serves(self) -> bool:
        try:
            address = json.loads((self.data / "address.json").read_text(encoding="ascii"))
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        if address["pid"] != self.process.pid:
            return False
        self.grpc, self.zmq = address["grpc"], address["zmq"]
        return True
