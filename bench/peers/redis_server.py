"""Redis with an append-only file; the variants differ in how often the file is synced."""

from __future__ import annotations

from typing import ClassVar, Final

from .process import HOST, ServerProcess, answers, free_ports
from .server import Server, said_by

#: Disables rewrites of the file: a rewrite during a run would only cost time.
_FLAGS: Final = ("--appendonly", "yes", "--save", "", "--auto-aof-rewrite-percentage", "0")


class RedisServer(Server):
    """Base class; the subclasses set when the file is synced."""

    fsync: ClassVar[str]

    def start(self) -> None:
        (port,) = free_ports(1)
        command = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(self.folder)]
        process = ServerProcess(
            "redis", [*command, *_FLAGS, "--appendfsync", self.fsync], self.folder
        )
        self.processes.append(process)
        process.wait_until(lambda: answers(port))
        self.address = {"host": HOST, "port": port}

    def version(self) -> str:
        return "Redis " + said_by("redis-server", "--version").split("v=")[1].split()[0]


class RedisNeverSyncs(RedisServer):
    fsync = "no"
    settings = "appendonly yes, appendfsync no, no rewrite of the file, no snapshots"


class RedisEverySecond(RedisServer):
    fsync = "everysec"
    settings = "appendonly yes, appendfsync everysec, no rewrite of the file, no snapshots"


class RedisAlways(RedisServer):
    fsync = "always"
    settings = "appendonly yes, appendfsync always, no rewrite of the file, no snapshots"
