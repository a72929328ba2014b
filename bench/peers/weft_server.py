"""Weft: one node or three, with default settings except for the durability."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Final

import weft
from weft.errors import UsageError
from weft.testing import cluster

from . import usage
from .fetch import Missing
from .process import ServerProcess
from .server import Server

_ADDRESS: Final = "address.json"


class WeftServer(Server):
    """Base class; the subclasses set the durability."""

    durability: ClassVar[str]

    def start(self) -> None:
        data = self.folder / "data"
        flags = ["--data", str(data), "--listen", "127.0.0.1:0", "--log-level", "warning"]
        command = [sys.executable, "-P", "-m", "weft.child_node", str(os.getpid()), *flags]
        process = ServerProcess("weft", [*command, "--durability", self.durability], self.folder)
        self.processes.append(process)
        process.wait_until(lambda: _said(data).get("pid") == process.pid)
        self.address = {"servers": [_said(data)["grpc"]]}

    def version(self) -> str:
        return _version()


class WeftDisk(WeftServer):
    durability = "disk"
    settings = "--durability disk (its default)"


class WeftOs(WeftServer):
    durability = "os"
    settings = "--durability os"


def _version() -> str:
    return f"Weft {weft.__version__}"


def _said(data: Path) -> dict[str, Any]:
    """The node's address from `address.json`, which the node writes when ready."""
    try:
        said: dict[str, Any] = json.loads((data / _ADDRESS).read_text())
    except FileNotFoundError:
        return {}
    return said


class WeftCluster(Server):
    """Three nodes, started and joined by `weft.testing.cluster`."""

    nodes = 3
    settings = "--durability disk, three nodes"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ends = ExitStack()
        self._pids: list[int] = []

    def start(self) -> None:
        opened = cluster(nodes=self.nodes, data=self.folder / "nodes", durability="disk")
        try:
            made = self._ends.enter_context(opened)
        except UsageError as error:
            raise Missing(f"Weft on {self.nodes} nodes: {error.message}") from None
        self._pids = [made.node(number).pid for number in range(self.nodes)]
        self.address = {"servers": made.servers}

    def version(self) -> str:
        return _version()

    def usage(self) -> usage.Usage:
        return usage.of_processes(self._pids)

    def close(self) -> None:
        self._ends.close()
