"""The remote memory that every queue here is built on.

A window is one segment of memory per rank, made of 64-bit signed words, that all ranks may reach
with one-sided operations: the target takes no part in them. An address is a rank and a word in
its segment. This is the whole interface of the algorithms to the world, so that the same code
runs on MPI, in one process, and under the explorer that tries its interleavings.

The promises, which the contract suite checks on every implementation:

1. ``load``, ``store``, ``fetch_add`` and ``compare_swap`` are atomic on their word, are complete
   at the target when they return, and those of one rank take effect in the order of its program.
2. ``put`` and ``get`` move bytes and promise nothing until ``flush(target)`` returns: they may
   take effect late, in any order, and word by word. What a get brings may be read after the
   flush, what ``put`` was given may be changed after the flush. Nobody else may touch these
   words meanwhile; keeping them away is the business of the algorithm (paper, section 4.1: First
   and Last do it).
3. ``flush(target)`` returns when all earlier puts and gets of this rank at that target are
   complete there; whatever this rank does next comes after them.
4. The same holds when the target is the caller's own rank. Such an operation is counted as
   local: it is a memory access, where a remote one crosses the network.
5. A word that several ranks change is changed with one kind of operation only (always
   ``fetch_add``, or always ``compare_swap``), as MPI's ``same_op_no_op`` demands. ``store`` is
   for words with one writer.

Nothing here waits for another rank, so an algorithm without loops is wait-free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

WORD_BYTES: Final = 8
#: Words are signed: AMQueue counts below zero, and MAX_STAMP is the largest of them.
WORD_MAX: Final = 2**63 - 1


@dataclass(slots=True)
class Counts:
    """How many operations a rank made: the paper's R and L. A flush is part of its put or get."""

    remote: int = 0
    local: int = 0

    def since(self, start: Counts) -> Counts:
        return Counts(self.remote - start.remote, self.local - start.local)

    def copy(self) -> Counts:
        return Counts(self.remote, self.local)


class Window(Protocol):
    """One rank's view of the memory of all ranks. Not for use by two threads at once."""

    @property
    def rank(self) -> int: ...

    @property
    def counts(self) -> Counts: ...

    def load(self, target: int, word: int) -> int:
        """The word's value."""
        ...

    def load_range(self, target: int, word: int, count: int) -> list[int]:
        """``count`` loads in the order of the words: each is atomic, all together are not."""
        ...

    def store(self, target: int, word: int, value: int) -> None:
        """Write a word that has one writer."""
        ...

    def fetch_add(self, target: int, word: int, delta: int) -> int:
        """Add to the word; the answer is what it was before."""
        ...

    def compare_swap(self, target: int, word: int, expected: int, desired: int) -> int:
        """Write ``desired`` if the word is ``expected``; the answer is what it was before."""
        ...

    def put(self, target: int, word: int, data: bytes) -> None:
        """Start to write bytes at the word."""
        ...

    def get(self, target: int, word: int, size: int) -> bytearray:
        """Start to read ``size`` bytes from the word on."""
        ...

    def get_into(self, target: int, word: int, into: memoryview) -> None:
        """Start to read from the word on into bytes of the caller's."""
        ...

    def flush(self, target: int) -> None:
        """Wait until earlier puts and gets at the target are complete there."""
        ...


def words_of(size: int) -> int:
    """How many words hold so many bytes."""
    return -(-size // WORD_BYTES)
