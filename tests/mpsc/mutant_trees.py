"""The tree of dLTQueue with one correction undone each; `mutants` lists the mutants.

The numbers of the corrections are those in docs/mpi.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.mpsc.scenario import named
from weft.mpsc import Algorithm
from weft.mpsc.dltqueue import DltDequeuer, DltEnqueuer
from weft.mpsc.tree import MAX_STAMP as TREE_MAX_STAMP
from weft.mpsc.tree import NOBODY, NODE_VERSION_BITS, STAMP_VERSION_BITS, Tree, stamps_at_enqueuers

Front = Callable[[], int | None]


def mutant_tree(kind: type[Tree]) -> Algorithm:
    """dLTQueue with another tree, at both ends."""

    class MutantEnqueuer(DltEnqueuer):
        def _make_tree(self) -> Tree:
            tree = kind(self._window, self._shape, stamps_at_enqueuers(self._shape))
            tree.reset_stamp(self._number)
            return tree

    class MutantDequeuer(DltDequeuer):
        def _make_tree(self) -> Tree:
            return kind(self._window, self._shape, stamps_at_enqueuers(self._shape))

    return named("dltqueue", enqueuer=MutantEnqueuer, dequeuer=MutantDequeuer)


class LeafAsPrinted(Tree):
    def _leaf(self, number: int) -> int:
        return self._size + number


class LeafIsRoot(Tree):
    """2n-1 nodes with the leaves from n-1 on, and a loop that tests at its end."""

    def _leaf(self, number: int) -> int:
        return self._shape.enqueuers - 1 + number

    def propagate(self, number: int, front: Front) -> None:
        self._refresh_stamp(number, front) or self._refresh_stamp(number, front)
        self._refresh_leaf(number) or self._refresh_leaf(number)
        index = self._leaf(number)
        while True:
            index = (index - 1) // 2
            self._refresh_node(index) or self._refresh_node(index)
            if index == 0:
                return


class RootHasNoChildren(Tree):
    def _children(self, index: int) -> Iterator[int]:
        return super()._children(index) if index > 0 else iter(())


class ReadsTheRoot(Tree):
    def _refresh_node(self, index: int) -> bool:
        lowest, lowest_stamp = NOBODY, TREE_MAX_STAMP
        for child in self._children(index):
            number = self._node(child) >> NODE_VERSION_BITS
            if number != NOBODY and self._stamp(number) < lowest_stamp:
                lowest, lowest_stamp = number, self._stamp(number)
        return self._swap_node(index, self._node(0), lowest)


class ComparesVersions(Tree):
    def _refresh_node(self, index: int) -> bool:
        old = self._node(index)
        best = (2**64, 0)
        lowest = NOBODY
        for child in self._children(index):
            number = self._node(child) >> NODE_VERSION_BITS
            if number == NOBODY:
                continue
            word = self._window.load(*self._stamp_at(number))
            tagged = (word & (2**STAMP_VERSION_BITS - 1), word >> STAMP_VERSION_BITS)
            if tagged[1] != TREE_MAX_STAMP and tagged < best:
                lowest, best = number, tagged
        return self._swap_node(index, old, lowest)


class NamesItself(Tree):
    def _refresh_leaf(self, number: int) -> bool:
        index = self._leaf(number)
        old = self._node(index)
        me = max(0, self._window.rank - 1)
        empty = self._stamp(number) == TREE_MAX_STAMP
        return self._swap_node(index, old, NOBODY if empty else me)


class StampWithoutVersion(Tree):
    def _refresh_stamp(self, number: int, front: Front) -> bool:
        target, word = self._stamp_at(number)
        old = self._window.load(target, word)
        stamp = front()
        new = (TREE_MAX_STAMP if stamp is None else stamp) << STAMP_VERSION_BITS
        return self._window.compare_swap(target, word, old, new) == old


class EmptyWithoutVersion(Tree):
    def _refresh_stamp(self, number: int, front: Front) -> bool:
        target, word = self._stamp_at(number)
        old = self._window.load(target, word)
        stamp = front()
        versions = 2**STAMP_VERSION_BITS - 1
        if stamp is None:
            new = TREE_MAX_STAMP << STAMP_VERSION_BITS | old & versions
        else:
            new = stamp << STAMP_VERSION_BITS | (old + 1) & versions
        return self._window.compare_swap(target, word, old, new) == old


class NodeWithoutVersion(Tree):
    def _swap_node(self, index: int, old: int, number: int) -> bool:
        word = self._shape.own + index
        new = number << NODE_VERSION_BITS
        return self._window.compare_swap(self._shape.dequeuer, word, old, new) == old


class StampTriedOnce(Tree):
    def _refresh_stamp(self, number: int, front: Front) -> bool:
        super()._refresh_stamp(number, front)
        return True


class LeafTriedOnce(Tree):
    def _refresh_leaf(self, number: int) -> bool:
        super()._refresh_leaf(number)
        return True


class NodeTriedOnce(Tree):
    def _refresh_node(self, index: int) -> bool:
        super()._refresh_node(index)
        return True
