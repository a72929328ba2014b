"""A window inside one process: ranks are objects, or threads, that share bytearrays.

For tests, for examples without MPI, and as the memory under the explorer. A lock per window set
makes each operation atomic, so ranks may be threads; puts and gets are complete at once, which the
promises allow.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from .window import WORD_BYTES, Counts


class Segments:
    """The memory of all ranks: zeroed, bounds checked, one lock for all of it."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.bytes = [bytearray(size) for size in sizes]
        self.words = [memoryview(segment).cast("q") for segment in self.bytes]
        self.lock = threading.Lock()

    def read(self, target: int, word: int, size: int) -> bytearray:
        start = self._start(target, word, size)
        return self.bytes[target][start : start + size]

    def write(self, target: int, word: int, data: bytes) -> None:
        start = self._start(target, word, len(data))
        # Through a memoryview: a slice assignment to a bytearray could change its length.
        memoryview(self.bytes[target])[start : start + len(data)] = data

    def _start(self, target: int, word: int, size: int) -> int:
        start = word * WORD_BYTES
        if word < 0 or start + size > len(self.bytes[target]):
            raise IndexError(f"word {word} and {size} bytes are outside of rank {target}'s segment")
        return start


class InProcessWindow:
    """One rank's view of shared :class:`Segments`."""

    def __init__(self, segments: Segments, rank: int) -> None:
        self._segments = segments
        self._words = segments.words
        self._lock = segments.lock
        self.rank = rank
        self.counts = Counts()

    def outlives(self, target: int) -> bool:
        return True

    def load(self, target: int, word: int) -> int:
        self._count(target, 1)
        with self._lock:
            return self._words[target][word]

    def load_range(self, target: int, word: int, count: int) -> list[int]:
        return [self.load(target, word + at) for at in range(count)]

    def store(self, target: int, word: int, value: int) -> None:
        self._count(target, 1)
        with self._lock:
            self._words[target][word] = value

    def fetch_add(self, target: int, word: int, delta: int) -> int:
        self._count(target, 1)
        words = self._words[target]
        with self._lock:
            before = words[word]
            words[word] = before + delta
        return before

    def compare_swap(self, target: int, word: int, expected: int, desired: int) -> int:
        self._count(target, 1)
        words = self._words[target]
        with self._lock:
            before = words[word]
            if before == expected:
                words[word] = desired
        return before

    def put(self, target: int, word: int, data: bytes) -> None:
        self._count(target, 1)
        with self._lock:
            self._segments.write(target, word, data)

    def get(self, target: int, word: int, size: int) -> bytearray:
        self._count(target, 1)
        with self._lock:
            return self._segments.read(target, word, size)

    def get_into(self, target: int, word: int, into: memoryview) -> None:
        self._count(target, 1)
        with self._lock:
            into.cast("B")[:] = self._segments.read(target, word, into.nbytes)

    def flush(self, target: int) -> None:
        """Nothing to do: puts and gets are complete at once."""

    def _count(self, target: int, operations: int) -> None:
        if target == self.rank:
            self.counts.local += operations
        else:
            self.counts.remote += operations
