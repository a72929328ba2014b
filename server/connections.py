"""Connections: how many clients hold each port open, as the kernel counts them.

Neither ZeroMQ nor gRPC can be asked (ZeroMQ's monitor stops its I/O thread when nobody reads its
events), and all ports are to be counted alike, so this reads the kernel's own table, when somebody
asks and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED: Final = "01"


def count(ports: Mapping[str, int], tables: tuple[Path, ...] = _TABLES) -> dict[str, int]:
    """Established connections to each named port of this machine."""
    wanted = {f"{port:04X}": name for name, port in ports.items()}
    counts = dict.fromkeys(ports, 0)
    for table in tables:
        if not table.exists():
            continue  # a kernel without IPv6, or without this table at all
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            name = wanted.get(local.rpartition(":")[2])
            if name is not None and state == _ESTABLISHED:
                counts[name] += 1
    return counts
