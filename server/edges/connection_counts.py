"""Open connections to each of the node's ports, from the kernel's table.

Neither ZeroMQ nor gRPC reports its connections (ZeroMQ's monitor stops its I/O thread when no
reader takes its events), and all ports are to be counted alike. So `count` reads the kernel's own
table, on demand only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED: Final = "01"


def count(ports: Mapping[str, int], tables: tuple[Path, ...] = _TABLES) -> dict[str, int]:
    """Counts established connections to each named port of the machine."""
    wanted = {f"{port:04X}": name for name, port in ports.items()}
    counts = dict.fromkeys(ports, 0)
    for table in tables:
        if not table.exists():
            continue  # a kernel without IPv6, or without the table at all
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            name = wanted.get(local.rpartition(":")[2])
            if name is not None and state == _ESTABLISHED:
                counts[name] += 1
    return counts
