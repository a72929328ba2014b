"""The remote memory under every queue of the package.

A window is one segment of memory per rank, made of 64-bit signed words, that all ranks may access
with one-sided operations: the target takes no part in them. An address is a rank and a word in its
segment. The window is the only interface of the algorithms to the outside, so that the same code
runs on MPI, in one process, and under the explorer that tries its interleavings.

The promises, which the contract suite checks on every implementation:

1. ``load``, ``store``, ``fetch_add`` and ``compare_swap`` are atomic on their word, are complete at
   the target when they return, and operations of one rank take effect in program order.
2. ``put`` and ``get`` move bytes and promise nothing until ``flush(target)`` returns: they may take
   effect late, in any order, and word by word. After the flush, and not before, the caller may read
   the result of a get and may change the argument of a put. No other rank may touch these words
   meanwhile; the algorithm must ensure that (paper, section 4.1: First and Last do it).
3. ``flush(target)`` returns when all earlier puts and gets of the rank at the target are complete
   there; all later operations of the rank come after them.
4. The same holds when the target is the caller's own rank. Such an operation is counted as local: a
   memory access, where a remote operation crosses the network.
5. A word changed by several ranks is changed with one kind of operation only (always ``fetch_add``,
   or always ``compare_swap``), as MPI's ``same_op_no_op`` demands. ``store`` is for words with one
   writer.

6. **Progress.** An operation on another rank's memory completes while the target's process calls
   ``load`` or ``load_range`` again and again, for any target, its own rank included. No other call
   of the target is needed, and none is promised to help. So an algorithm waits by repeating a load,
   and never by repeating another operation. The reason: where two ranks share no memory, MPI may
   execute an operation in the target's process, and only while the process is inside MPI. A poll of
   the rank's own memory would never enter MPI, and both ranks would wait for ever. While the target
   computes and makes no call at all, operations on its memory complete later: within milliseconds
   if its MPI allows a second thread (``progress.py``), else at its next load. Where all ranks share
   memory, the hardware completes every operation, and progress costs nothing.
7. **Loss.** An operation on the memory of a dead rank either works as before (``outlives(target)``
   is true: the memory is shared with this process) or may raise ``RankLost``. After ``RankLost``
   the operations on other ranks still work.

No operation waits for another rank to do its part of an algorithm, so an algorithm without loops is
wait-free; between machines this holds as long as every live rank makes progress (6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

WORD_BYTES: Final = 8
#: Words are signed: AMQueue counts below zero, and MAX_STAMP is the largest word.
WORD_MAX: Final = 2**63 - 1


@dataclass(slots=True)
class Counts:
    """Operations made by a rank: the paper's R and L. A flush is part of its put or get."""

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

    def outlives(self, target: int) -> bool:
        """True if the target's memory stays readable here after the target's process has ended."""
        ...

    def load(self, target: int, word: int) -> int:
        """Returns the word's value. Drives the progress of other ranks' operations here."""
        ...

    def load_range(self, target: int, word: int, count: int) -> list[int]:
        """``count`` loads in the order of the words: each is atomic, all together are not.

        Drives progress as ``load`` does.
        """
        ...

    def store(self, target: int, word: int, value: int) -> None:
        """Writes a word that has one writer."""
        ...

    def fetch_add(self, target: int, word: int, delta: int) -> int:
        """Adds to the word; returns the previous value."""
        ...

    def compare_swap(self, target: int, word: int, expected: int, desired: int) -> int:
        """Writes ``desired`` if the word is ``expected``; returns the previous value."""
        ...

    def put(self, target: int, word: int, data: bytes) -> None:
        """Starts to write bytes at the word."""
        ...

    def get(self, target: int, word: int, size: int) -> bytearray:
        """Starts to read ``size`` bytes, beginning at the word."""
        ...

    def get_into(self, target: int, word: int, into: memoryview) -> None:
        """Starts to read, beginning at the word, into the caller's buffer."""
        ...

    def flush(self, target: int) -> None:
        """Waits until earlier puts and gets at the target are complete there."""
        ...


def words_of(size: int) -> int:
    """The number of words that hold ``size`` bytes."""
    return -(-size // WORD_BYTES)
