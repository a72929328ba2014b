"""The parameters that all ranks of a queue must agree on, and the address of each word.

One rank is the dequeuer, all others are enqueuers. Enqueuers are numbered 0 to n-1 without a gap,
skipping the dequeuer's rank: the paper indexes its arrays by process rank but sizes them by the
number of enqueuers, which runs over the end (ERRATA 5.9).

The first words are the same for every queue with one SPSC per enqueuer (i is the number of the
enqueuer, n the count of enqueuers):

    dequeuer's segment: Counter | First[n] | Last[n] | Closed[n] | the algorithm's own words
    enqueuer's segment: Own | Data[capacity cells]

``Own`` is a word that an algorithm may keep at the enqueuer (dLTQueue's Min_timestamp).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft.errors import InvalidArgument
from weft.limits import BODY_BYTES_MAX, check_range

#: Ranks in one queue: dLTQueue packs an enqueuer's number into 15 bits of a tree node.
RANKS_MAX: Final = 2**15 - 1
#: Cells in one enqueuer's ring. The limit also keeps dLTQueue's version tags unique (see
#: ``tree.py``).
CAPACITY_MAX: Final = 2**18
#: One rank's segment: above the limit, a mistake in capacity or item size is more likely than a
#: need.
SEGMENT_BYTES_MAX: Final = 4 * 2**30

COUNTER: Final = 0
OWN: Final = 0
DATA: Final = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """Ranks, ring size and item size of one queue; equal on all its ranks."""

    ranks: int
    dequeuer: int = 0
    #: Cells in each enqueuer's ring (AMQueue: in each of its two buffers).
    capacity: int = 1024
    #: An item's size in bytes; the largest one if sizes vary.
    item_bytes: int = 64
    #: Items carry their length in front and may be shorter than ``item_bytes``.
    variable: bool = False

    def __post_init__(self) -> None:
        check_range("ranks (one dequeuer and at least one enqueuer)", self.ranks, 2, RANKS_MAX)
        check_range("the dequeuer's rank", self.dequeuer, 0, self.ranks - 1)
        check_range("capacity", self.capacity, 1, CAPACITY_MAX)
        check_range("item_bytes", self.item_bytes, 1, BODY_BYTES_MAX)
        if self.capacity * (self.item_bytes + 24) > SEGMENT_BYTES_MAX:
            raise InvalidArgument(
                f"{self.capacity} items of {self.item_bytes} bytes do not fit into a segment of "
                f"{SEGMENT_BYTES_MAX} bytes: lower capacity or item_bytes"
            )

    @property
    def enqueuers(self) -> int:
        return self.ranks - 1

    def number(self, rank: int) -> int:
        """The enqueuer's number of a rank."""
        assert rank != self.dequeuer, "the dequeuer has no enqueuer's number"
        return rank - (rank > self.dequeuer)

    def rank(self, number: int) -> int:
        """The rank of an enqueuer's number."""
        return number + (number >= self.dequeuer)

    @property
    def first(self) -> int:
        return COUNTER + 1

    @property
    def last(self) -> int:
        return self.first + self.enqueuers

    @property
    def closed(self) -> int:
        return self.last + self.enqueuers

    @property
    def own(self) -> int:
        """The first of the algorithm's own words at the dequeuer."""
        return self.closed + self.enqueuers
