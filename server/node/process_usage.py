"""Processor time and memory of this process, as counted by the system."""

from __future__ import annotations

import resource


def cpu_us() -> int:
    """Microseconds of processor time, user and system, of all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return int((usage.ru_utime + usage.ru_stime) * 1_000_000)


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
