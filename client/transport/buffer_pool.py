"""A pool of buffers for reading long frames.

The client copies the bodies of a large answer out of the frame, so the frame is needed only for a
moment. Fresh memory for each frame would cost as much as reading the frame: the kernel clears every
page at the first touch. A buffer is free when no memoryview refers to the buffer. Python tracks
this: a bytearray with a live memoryview cannot change size.

All connections of a process share the pool. A thread removes a buffer from the list while it checks
the buffer, so the pool needs no lock, and a fork cannot leave a lock held.
"""

from __future__ import annotations

from typing import Final

from weft.limits import KIB, MIB

#: Total size of the pool: a few of the largest answers, including those being decoded.
KEPT_BYTES_MAX: Final = 24 * MIB
KEPT_MAX: Final = 8
#: Buffer sizes are rounded up to a multiple, so frames of similar size fit the same buffers.
STEP_BYTES: Final = 256 * KIB


class BufferPool:
    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Returns room for `size` bytes.

        The room is valid until the returned view and all views made from it are gone.
        """
        kept = self._kept
        small: list[bytearray] = []
        for _ in range(len(kept)):
            try:
                buffer = kept.pop(0)
            except IndexError:  # other threads have removed the rest
                break
            if not _is_free(buffer):
                kept.append(buffer)
            elif len(buffer) < size:
                small.append(buffer)
            else:
                view = memoryview(buffer)
                kept += (buffer, *small)
                return view[:size]
        rounded = -(-size // STEP_BYTES) * STEP_BYTES
        left = KEPT_BYTES_MAX - sum(map(len, kept))
        if rounded > left or len(kept) >= KEPT_MAX:  # the application keeps many answers
            kept += small
            return memoryview(bytearray(size))
        made = bytearray(rounded)
        view = memoryview(made)
        for buffer in (made, *small):  # keep small buffers while the pool has room
            if len(buffer) <= left and len(kept) < KEPT_MAX:
                left -= len(buffer)
                kept.append(buffer)
        return view[:size]


def _is_free(buffer: bytearray) -> bool:
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


#: The pool of this process.
POOL: Final = BufferPool()
