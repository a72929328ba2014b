"""The node's clock: the time of day, without steps back and without jumps while the node runs.

The clock reads the wall time once at start and then follows the monotonic clock, so that setting
the system's time can neither expire every lease at once nor keep a lease for ever.
"""

from __future__ import annotations

import time


class Clock:
    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        """Microseconds since 1970."""
        return (time.monotonic_ns() + self._offset_ns) // 1000
