"""beanstalkd with a write-ahead log."""

from __future__ import annotations

from .process import HOST, ServerProcess, answers, free_ports
from .server import Server, said_by

#: Room for the largest bodies of W4; the default is 64 KiB.
_JOB_BYTES_MAX = 4 * 1024 * 1024


class BeanstalkdServer(Server):
    settings = "-b (write-ahead log), -f 50 (its default: fsync every 50 ms), -z 4 MiB"

    def start(self) -> None:
        (port,) = free_ports(1)
        log = self.folder / "binlog"
        log.mkdir()
        command = ["beanstalkd", "-l", HOST, "-p", str(port), "-b", str(log), "-f", "50"]
        process = ServerProcess("beanstalkd", [*command, "-z", str(_JOB_BYTES_MAX)], self.folder)
        self.processes.append(process)
        process.wait_until(lambda: answers(port))
        self.address = {"host": HOST, "port": port}

    def version(self) -> str:
        return said_by("beanstalkd", "-v")
