"""dLTQueue: wait-free, a logarithmic number of remote operations (paper, section 4.2).

Each enqueuer stamps its items into its own ring; a tree at the dequeuer (``tree.py``) names the
ring with the smallest stamp. Every operation carries its change up the tree, so that once an
enqueue has ended, the root names an enqueuer whose oldest item is at least as old.

Cost: an enqueue and a dequeue pass 1 + log2(n) nodes, each with a constant number of operations
and at most two tries. The tree is local to the dequeuer, Min_timestamp to its enqueuer.
"""

from __future__ import annotations

from .queue import ring_segment_bytes
from .rings import RingDequeuer, RingEnqueuer
from .shape import Shape
from .tree import Tree, check_stamp, stamps_at_enqueuers
from .window import Window


def segment_bytes(shape: Shape, rank: int) -> int:
    return ring_segment_bytes(shape, rank, own_words=2 * shape.enqueuers)


class DltEnqueuer(RingEnqueuer):
    """Procedures 11 to 15."""

    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        self._tree = self._make_tree()

    def _make_tree(self) -> Tree:
        tree = Tree(self._window, self._shape, stamps_at_enqueuers(self._shape))
        tree.reset_stamp(self._number)
        return tree

    def _draw(self, count: int) -> int:
        stamp = super()._draw(count)
        check_stamp(stamp + count - 1)
        return stamp

    def _announce(self, stamp: int) -> None:
        self._tree.propagate(self._number, self._ring.front_stamp)


class DltDequeuer(RingDequeuer):
    """Procedures 16 to 20."""

    def __init__(self, window: Window, shape: Shape) -> None:
        super().__init__(window, shape)
        self._tree = self._make_tree()
        self._tree.reset_nodes()

    def _make_tree(self) -> Tree:
        return Tree(self._window, self._shape, stamps_at_enqueuers(self._shape))

    def dequeue(self) -> bytes | None:
        number = self._tree.first()
        if number is None:
            return None
        item = self._rings[number].dequeue()
        assert item is not None, "the root names an enqueuer, so its ring is not empty"
        self._tree.propagate(number, self._rings[number].front_stamp)
        return item
