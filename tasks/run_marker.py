"""The running task of a worker process, in memory shared with the supervisor.

The memory outlives the process, and a write needs no system call.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

_FORMAT: Final = struct.Struct("<Qqdd")
_NEXT: Final = struct.Struct("<qd")
#: The place of the running task in the format.
_PLACE_AT: Final = 8
SIZE: Final = mmap.PAGESIZE


class RunMark(NamedTuple):
    """Times are those of the monotonic clock, which all processes of a machine share."""

    nonce: int
    #: The index of the message in its batch.
    place: int
    started: float
    #: When the process is to be killed; 0 for no limit.
    kill_at: float


class RunMarker:
    """Written by one process, read by another. `file` is the number of an open file, -1 for
    memory of this process alone."""

    def __init__(self, file: int = -1) -> None:
        self._memory = mmap.mmap(file, SIZE)
        self._pack = _FORMAT.pack_into
        self._pack_next = partial(_NEXT.pack_into, self._memory, _PLACE_AT)

    def begin(self, nonce: int, index: int, started: float, kill_at: float = 0.0) -> None:
        self._pack(self._memory, 0, nonce, index, started, kill_at)

    @property
    def next(self) -> Callable[[int, float], None]:
        """Marks the next task of the same lease, by its index and start; without a time limit."""
        return self._pack_next

    def end(self) -> None:
        self._pack(self._memory, 0, 0, 0, 0.0, 0.0)

    def read(self) -> RunMark | None:
        """The running task; None if none runs, or if the mark is being written."""
        first = _FORMAT.unpack_from(self._memory, 0)
        if first[0] == 0 or first != _FORMAT.unpack_from(self._memory, 0):
            return None
        return RunMark(*first)

    def close(self) -> None:
        self._memory.close()
