"""The interface of a server: start, address, processes, version."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from . import usage
from .process import ServerProcess

#: The address of a server for worker processes, serialised as JSON.
Address = dict[str, Any]


class Server(ABC):
    """One server of one or more nodes, running between `start` and `close`."""

    #: One line for the report: every setting that differs from the default.
    settings: ClassVar[str]
    #: More than one only where W6 needs it.
    nodes: ClassVar[int] = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address: Address = {}
        self.processes: list[ServerProcess] = []

    @abstractmethod
    def start(self) -> None:
        """Returns when the server serves; sets `address` and `processes`."""

    @abstractmethod
    def version(self) -> str: ...

    def usage(self) -> usage.Usage:
        return usage.of_sessions(process.pid for process in self.processes)

    def alive(self) -> bool:
        return all(process.running for process in self.processes)

    def log_tail(self) -> str:
        return "; ".join(each.log_tail() for each in self.processes if not each.running)

    def close(self) -> None:
        for process in reversed(self.processes):
            process.stop()
        self.processes.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def said_by(*command: str) -> str:
    """The first line of a program's output, as for --version."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return (done.stdout or done.stderr).strip().splitlines()[0]
