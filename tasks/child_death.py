"""Why a worker process has ended: by its exit code, by the supervisor, or by the kernel for memory.

The kernel kills a process without memory with SIGKILL, and counts such kills: for each control
group, and for the machine. A SIGKILL that the supervisor did not send, together with a count that
rose, was the kernel's. (Another program can have been killed in the same moments; then the report
names memory although a person sent the signal.)
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
#: A kill counts for a death if it was seen at most so long before.
_RECENT_S: Final = 2.0
#: Causes, as metrics name them.
MEMORY, KILLED, CRASHED, LIMIT = "memory", "killed", "crashed", "limit"


class OomWatch:
    """The kernel's counts of kills for memory."""

    def __init__(self, proc: Path = Path("/proc"), groups: Path = _ROOT) -> None:
        self._files = list(_count_files(proc, groups))
        self._counts = self._read()
        self._rose_at = float("-inf")

    def check(self) -> None:
        counts = self._read()
        if any(now > before for now, before in zip(counts, self._counts, strict=True)):
            self._rose_at = time.monotonic()
        self._counts = counts

    @property
    def recent(self) -> bool:
        """True if the kernel has killed a process for memory a moment ago."""
        self.check()
        return time.monotonic() - self._rose_at < _RECENT_S

    def _read(self) -> list[int]:
        return [_count_in(path) for path in self._files]


def _count_files(proc: Path, groups: Path) -> Iterator[Path]:
    """Files with a line `oom_kill N`: of this control group (both versions), of the machine."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from (groups / path.lstrip("/") / "memory.events", groups / "memory.events")
        elif "memory" in controllers.split(","):
            own = groups / "memory" / path.lstrip("/") / "memory.oom_control"
            yield from (own, groups / "memory" / "memory.oom_control")
    yield proc / "vmstat"


def _count_in(path: Path) -> int:
    try:
        for line in path.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    except (OSError, ValueError):
        pass  # another version of the kernel, or no permission
    return 0


def cause_of(code: int | None, killed: str, memory: bool) -> tuple[str, str]:
    """The cause of a death, and its description; `killed` is the supervisor's own reason."""
    if killed:
        return LIMIT, killed
    if code == -signal.SIGKILL and memory:
        return MEMORY, (
            "the kernel killed the worker process: out of memory. Give the machine or the "
            "container more memory, or the worker fewer processes (-c)"
        )
    return (KILLED if code is not None and code < 0 else CRASHED), (
        f"the worker process ended with {ending(code)}"
    )


def ending(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"
