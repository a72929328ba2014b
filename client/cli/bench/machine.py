"""Hardware and software versions of this machine, recorded with every benchmark result."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    cpu: str
    cores: int
    #: Load average of the last 1, 5 and 15 minutes at the start of the run.
    load_average: tuple[float, float, float]
    kernel: str
    python: str
    #: Version by package name; absent packages are left out.
    versions: dict[str, str]

    @classmethod
    def here(cls) -> Machine:
        versions = {"libzmq": _libzmq()}
        for name in ("weft", "pyzmq", "plyvel", "msgspec"):
            try:
                versions[name] = version(name)
            except PackageNotFoundError:
                continue
        return cls(
            _cpu(),
            len(os.sched_getaffinity(0)),
            os.getloadavg(),
            platform.release(),
            platform.python_version(),
            versions,
        )


def _libzmq() -> str:
    import zmq

    return zmq.zmq_version()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
