"""To wait awake for a moment, before one waits asleep.

A thread that sleeps has to be woken. On a machine that is otherwise idle that takes longer, and
costs its processors more, than the node needs to answer. So whoever expects something at once looks
for it again and again, for a fraction of a millisecond. Between two looks the processor is offered
to others, of which a busy machine has many. A few waits in vain end it, until one that slept turns
out to have been so short that it would have been worth while.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

#: Waits in vain, one after the other, that end it.
VAIN_MAX: Final = 4

T = TypeVar("T")


class Awake:
    """One who waits, in one thread."""

    __slots__ = ("_seconds", "_vain")

    def __init__(self, microseconds: int) -> None:
        """0: never. On one processor, too: who is waited for could not run."""
        alone = len(os.sched_getaffinity(0)) < 2
        self._seconds = 0.0 if alone else microseconds / 1_000_000
        self._vain = 0

    def wait(self, look: Callable[[], T], sleep: Callable[[], T]) -> T:
        """What `look` finds in time, or else what `sleep` comes back with."""
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
