"""Buffers that long frames are read into, one after the other.

The bodies of a large answer are copied out of its frame, so the frame is needed for a moment only.
Memory that is fresh for each would cost as much as reading it: the kernel clears every page of it
at the first touch. A buffer is free again when nothing looks into it any more, which Python itself
knows: a bytearray that a memoryview shows cannot change its size.

All connections of a process share them. A buffer that is being looked at by one thread is in no
list for that moment, so there is no lock, and nothing that a fork could leave locked.
"""

from __future__ import annotations

from typing import Final

from weft.limits import KIB, MIB

#: What is kept in all: a few of the largest answers, with those that are being taken apart.
KEPT_BYTES_MAX: Final = 24 * MIB
KEPT_MAX: Final = 8
#: Sizes are rounded up to this, so that frames of about the same size fit the same buffers.
STEP_BYTES: Final = 256 * KIB


class Pool:
    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Room for so many bytes, until the view of it and all that were made of it are gone."""
        kept = self._kept
        small: list[bytearray] = []
        for _ in range(len(kept)):
            try:
                buffer = kept.pop(0)
            except IndexError:  # other threads have them in hand
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
        if rounded > left or len(kept) >= KEPT_MAX:  # as for somebody who keeps many answers
            kept += small
            return memoryview(bytearray(size))
        made = bytearray(rounded)
        view = memoryview(made)
        for buffer in (made, *small):  # the small ones stay as far as there is room
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


#: Of this process.
POOL: Final = Pool()
