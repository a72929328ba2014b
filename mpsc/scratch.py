"""Memory for fetched cells, reused by every dequeue.

Fresh memory costs more than the work on the cells: the system hands out memory page by page, each
with a fault, which was more than half of a batched dequeue's time.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from weft.limits import MIB

from .cell import Records
from .window import WORD_BYTES

#: Limit of the reused memory; a larger request gets fresh memory.
SCRATCH_BYTES_MAX: Final = 16 * MIB


class Scratch:
    """Rows of words. Only the latest result of ``rows`` is valid."""

    def __init__(self, words: int) -> None:
        self._words = words
        self._rows: Records = np.empty((0, words), np.int64)

    def rows(self, count: int) -> Records:
        """Returns ``count`` rows with stale contents."""
        if count * self._words * WORD_BYTES > SCRATCH_BYTES_MAX:
            return np.empty((count, self._words), np.int64)
        if count > len(self._rows):
            self._rows = np.empty((max(count, 2 * len(self._rows)), self._words), np.int64)
        return self._rows[:count]
