"""Spin briefly before blocking.

Waking a blocked thread takes longer on an otherwise idle machine, and costs the processors more,
than a node needs to answer. So a thread that expects a result at once polls for a fraction of a
millisecond. Between two polls the thread yields the processor to other threads, of which a busy
machine has many. After a few fruitless waits the thread stops spinning, until a blocking wait turns
out to be so short that spinning would have succeeded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

#: Consecutive fruitless waits after which spinning stops.
VAIN_MAX: Final = 4

T = TypeVar("T")


class SpinWait:
    """The spin state of one waiting thread."""

    __slots__ = ("_seconds", "_vain")

    def __init__(self, microseconds: int) -> None:
        """0: never spin. Never spin on one processor either: the awaited thread could not run."""
        alone = len(os.sched_getaffinity(0)) < 2
        self._seconds = 0.0 if alone else microseconds / 1_000_000
        self._vain = 0

    def wait(self, look: Callable[[], T], sleep: Callable[[], T]) -> T:
        """The result of `look` if in time, otherwise the result of `sleep`."""
        now = time.perf_counter
        until = now() + self._seconds
        if self._vain < VAIN_MAX:
            while now() < until:
                if found := look():
                    self._vain = 0
                    return found
                os.sched_yield()
            self._vain += 1
            return sleep()
        found = sleep()
        if found and now() < until:
            self._vain = 0
        return found
