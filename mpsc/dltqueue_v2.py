"""dLTQueueV2: dLTQueue with a constant number of remote operations (paper, section 4.4).

Two changes. Min_timestamp lives at the dequeuer, so a dequeue has no remote operation but on the
ring. And an enqueue that finds an older item of its own at the front of the ring is done: the tree
need not know of items behind the front. The skip is taken when the front's stamp and the item's own
stamp *differ*, as procedure 26 has it; the sentence below procedure 26 says the opposite (ERRATA
5.10).

Cost (ERRATA 5.11): enqueue 3R + 2L behind other items of the same enqueuer, else logarithmic;
dequeue at most 3R.
"""

from __future__ import annotations

from .dltqueue import DltDequeuer, DltEnqueuer
from .queue import ring_segment_bytes
from .shape import Shape
from .tree import Tree, stamps_at_dequeuer


def segment_bytes(shape: Shape, rank: int) -> int:
    return ring_segment_bytes(shape, rank, own_words=3 * shape.enqueuers)


class DltV2Enqueuer(DltEnqueuer):
    """Procedure 26."""

    def _make_tree(self) -> Tree:
        return Tree(self._window, self._shape, stamps_at_dequeuer(self._shape))

    def _announce(self, stamp: int) -> None:
        front = self._ring.front_stamp()
        if front is not None and front != stamp:
            return
        super()._announce(stamp)


class DltV2Dequeuer(DltDequeuer):
    """The dequeuer of dLTQueue, with a local Min_timestamp."""

    def _make_tree(self) -> Tree:
        tree = Tree(self._window, self._shape, stamps_at_dequeuer(self._shape))
        for number in range(self._shape.enqueuers):
            tree.reset_stamp(number)
        return tree
