"""Worker processes of a benchmark, controlled through lines of JSON.

Each process has its own session, so that Ctrl-C reaches only the benchmark, which then stops every
worker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from weft.errors import Unavailable, WeftError, from_code

#: Seconds between SIGTERM and SIGKILL.
STOP_S: Final = 10.0
_TAIL_BYTES: Final = 2_000


#: Environment variables with a client's credentials.
_CREDENTIALS: Final = (
    "WEFT_TOKEN", "WEFT_TOKEN_FILE", "WEFT_TLS", "WEFT_TLS_CLIENT_CERT", "WEFT_TLS_CLIENT_KEY",
)  # fmt: skip


def _of_a_client() -> dict[str, str]:
    return {name: os.environ[name] for name in _CREDENTIALS if name in os.environ}


def environment() -> dict[str, str]:
    """The environment without WEFT_ variables, which configure other nodes and clients."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}


def command(module: str, *arguments: str) -> list[str]:
    """The command line for a module of Weft; -P prevents imports from the current directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def tail(log: IO[bytes] | Path) -> str:
    """The last lines of a log, for an error message."""
    if isinstance(log, Path):
        data = log.read_bytes() if log.exists() else b""
    else:
        log.seek(0)
        data = log.read()
    return data[-_TAIL_BYTES:].decode(errors="replace").strip() or "(no output)"


class Child:
    """A worker process that writes lines of JSON to standard output."""

    def __init__(self, module: str, task: dict[str, Any]) -> None:
        self._name = module.rpartition(".")[2]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._process = subprocess.Popen(
            command(module, json.dumps(task)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment() | _of_a_client(),
            start_new_session=True,
        )

    def read(self) -> dict[str, Any]:
        """The worker's next line; raises the error that the worker reports."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait(STOP_S)
            raise Unavailable(f"the {self._name} process exited with {code}: {tail(self._log)}")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise from_code(said["error"]["code"], f"{self._name}: {said['error']['message']}")
        return said

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def close(self) -> None:
        end(self._process)
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM, and SIGKILL after `STOP_S` seconds."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# --- in the worker process --------------------------------------------------------------------


def say(what: dict[str, Any]) -> None:
    """Writes one line to the benchmark."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def ready() -> None:
    """Reports readiness and waits for the start line; exits if the benchmark is gone."""
    say({"ready": True})
    if not sys.stdin.readline():
        sys.exit(1)


def say_error(error: WeftError) -> None:
    say({"error": {"code": error.code, "message": error.message}})
