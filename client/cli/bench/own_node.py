"""A node started for one benchmark, with a temporary data directory and free ports.

The directory is created under the current one, so that the benchmark measures the user's disk and
not a file system in memory. The kernel kills the node if the benchmark dies for any reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from weft.client.cli import extras
from weft.errors import MissingExtra, Unavailable

from .child import command, end, environment, tail

#: Start timeout in seconds, for a node with a million waiting messages.
START_S: Final = 120.0
_POLL_S: Final = 0.005


class OwnNode:
    """A running node. The data directory survives `stop` followed by `start`."""

    def __init__(self, durability: str) -> None:
        absent = extras.missing("server")
        if absent:
            raise MissingExtra(
                f"a temporary node needs {', '.join(absent)}: pip install 'weft[server]', "
                "or measure a running node with --servers"
            )
        self.durability = durability
        self.folder = Path(tempfile.mkdtemp(prefix=".weft-bench-", dir=Path.cwd()))
        self._data = self.folder / "data"
        self._log = self.folder / "node.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.servers = ""
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> float:
        """Starts the node; returns the seconds until the node served."""
        began = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command(
                    "weft.child_node",
                    str(os.getpid()),
                    *("--data", str(self._data), "--listen", "127.0.0.1:0"),
                    *("--durability", self.durability, "--log-level", "warning"),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )
        self.servers = self._wait(self._process, began + START_S)
        return time.monotonic() - began

    def _wait(self, process: subprocess.Popen[bytes], until: float) -> str:
        """Waits for the node's `address.json` and returns the gRPC address."""
        address = self._data / "address.json"
        while time.monotonic() < until:
            if process.poll() is not None:
                raise Unavailable(f"the node exited with {process.returncode}: {tail(self._log)}")
            if address.exists():
                found = json.loads(address.read_text())
                if found["pid"] == process.pid:
                    return str(found["grpc"])
            time.sleep(_POLL_S)
        raise Unavailable(f"the node did not serve after {START_S:.0f} s: {tail(self._log)}")

    def stop(self) -> None:
        if self._process is not None:
            end(self._process)
            self._process = None

    def close(self) -> None:
        """Stops the node and removes its directory."""
        self.stop()
        shutil.rmtree(self.folder)

    def __enter__(self) -> OwnNode:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
