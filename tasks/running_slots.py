"""The running tasks of a process with an event loop, in memory shared with the supervisor.

A process that runs tasks side by side has a slot for each, after the page of ``run_marker``. If the
process dies, the supervisor returns these tasks as failed attempts: one of them may have ended the
process, and without the count it would end one process after the other.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

from .run_marker import SIZE

#: The nonce of a lease, 0 for a free slot, and the index of the message in its batch.
_SLOT: Final = struct.Struct("<Qq")


def size_of_marks(slots: int) -> int:
    """The size of the shared file: the page of the marker, and the slots."""
    return SIZE + slots * _SLOT.size


class RunningSlots:
    """Written by one process, from any thread; read by the supervisor. `file` is the number of an
    open file, -1 for memory of this process alone."""

    def __init__(self, file: int, slots: int) -> None:
        self._memory = mmap.mmap(file, size_of_marks(slots))
        self._free = [SIZE + n * _SLOT.size for n in range(slots)]

    def begin(self, nonce: int, index: int) -> int:
        """Marks a task as running; returns its slot, -1 if there is none."""
        if not self._free:
            return -1
        slot = self._free.pop()
        _SLOT.pack_into(self._memory, slot, nonce, index)
        return slot

    def end(self, slot: int) -> None:
        if slot >= 0:
            _SLOT.pack_into(self._memory, slot, 0, 0)
            self._free.append(slot)

    def read(self) -> list[tuple[int, int]]:
        """The running tasks: the nonces of their leases, and their indexes."""
        found = _SLOT.iter_unpack(self._memory[SIZE:])
        return [(nonce, index) for nonce, index in found if nonce]

    def close(self) -> None:
        self._memory.close()
