"""Processor time and memory of processes, read from /proc.

Every server has a separate session of processes (`process.py`), so that all descendants are
counted. The resolution is 10 ms: enough for runs of a second and more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
#: Columns of /proc/PID/stat, counted after the program name in parentheses.
_SESSION, _UTIME, _STIME, _CUTIME, _CSTIME, _RSS = 3, 11, 12, 13, 14, 21
#: Columns of /proc/stat's first line: idle, and idle while waiting for a disk.
_IDLE, _IOWAIT = 3, 4


@dataclass(frozen=True)
class Usage:
    """Total use of some processes so far."""

    cpu_s: float
    rss_bytes: int


def of_sessions(sessions: Iterable[int]) -> Usage:
    """Use of all processes of these sessions together."""
    wanted = set(sessions)
    return _sum(columns for _, columns in _processes() if int(columns[_SESSION]) in wanted)


def of_processes(pids: Iterable[int]) -> Usage:
    """Use of these processes only, for servers that share a session."""
    wanted = set(pids)
    return _sum(columns for pid, columns in _processes() if pid in wanted)


def _sum(processes: Iterable[list[str]]) -> Usage:
    cpu, rss = 0, 0
    for columns in processes:
        # A child that has ended is counted by the parent that waited for it.
        cpu += sum(int(columns[i]) for i in (_UTIME, _STIME, _CUTIME, _CSTIME))
        rss += int(columns[_RSS])
    return Usage(cpu * _TICK_S, rss * _PAGE_BYTES)


def machine_busy_s() -> float:
    """Busy seconds, summed over all processors."""
    first = Path("/proc/stat").read_text().partition("\n")[0]
    ticks = [int(column) for column in first.split()[1:9]]
    return (sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT]) * _TICK_S


def own_cpu_s() -> float:
    """Use of this process and of the children already waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _processes() -> Iterator[tuple[int, list[str]]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(entry.path, "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # The process ended during the scan.
            # The program name may contain spaces and parentheses, so split at the last parenthesis.
            yield int(entry.name), text[text.rindex(")") + 2 :].split()
