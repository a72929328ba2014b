"""dLTQueue: wait-free, a logarithmic number of remote operations (paper, section 4.2).

Each enqueuer stamps its items into its own ring; a tree at the dequeuer (``tree.py``) names the
ring with the smallest stamp. Every operation propagates its change up the tree, so that once an
enqueue has ended, the root names an enqueuer with an oldest item that is at least as old.

Cost: an enqueue and a dequeue pass 1 + log2(n) nodes, each with a constant number of operations and
at most two tries. The tree is local to the dequeuer, Min_timestamp to its enqueuer. A batched
dequeue costs one R for each ring with taken items (two if the ring wraps), and one propagation up
the tree for each of these rings.

The batched dequeue takes from every ring in which Last shows items (``rings.py`` has the proof),
also before their enqueuers have announced them. The tree allows that, unlike the slots of
Slotqueue: every swap of the dequeuer raises a version, so an enqueuer that read its ring before the
items were taken loses its swap, and reads again.

Between machines, the Min_timestamp of a dead rank is lost with the rank. The dequeuer continues
without the word, but an enqueue of another rank that reads the word at this moment raises
``RankLost``: use dLTQueueV2 there.
"""

from __future__ import annotations

from weft.limits import check_range

from .queue import ring_segment_bytes
from .rings import RingDequeuer, RingEnqueuer
from .shape import SEGMENT_BYTES_MAX, Shape
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
        return self._dequeue_announced(self._tree.first)

    def dequeue_many(self, count_max: int) -> list[bytes]:
        check_range("count_max", count_max, 1, SEGMENT_BYTES_MAX)
        if self._unrefreshed:
            self._refresh_rest()
        items, touched = self._take_by_last(count_max)
        self._refresh_taken(touched)
        return items

    def abandon(self, rank: int) -> None:
        if not self._window.outlives(rank):
            number = self._shape.number(rank)
            self._tree.disconnect(number, self._rings[number].front_stamp)
        super().abandon(rank)

    def _complete_announcement(self, number: int) -> None:
        self._tree.propagate(number, self._rings[number].front_stamp)
