"""The part of a task's message that makes the task a node of a graph.

The message names the children, by batch and index, and the arguments that are results of parents.
The server knows neither: it counts (``server.engine.parent_counts``).

A worker of an older version would ignore the links, run the task without its arguments, and strand
the children. So the task's own name is here, and the body has GRAPH_TASK in its place: such a
worker gives the message back as unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from weft import limits
from weft.client.transaction.graph_commit import Arrival, arrival

#: The name in the body of every task of a graph.
GRAPH_TASK: Final = "weft.graph"
#: Batches with children of one task. One batch may take two arrivals, of ended and failed tasks.
CHILD_BATCHES_MAX: Final = limits.COMMIT_ARRIVALS_MAX // 2
#: Of a cancelled graph, the reason at its waiting tasks.
CANCELLED_REASON: Final = "cancelled"


class ChildBatch(msgspec.Struct, array_like=True, frozen=True):
    """Children of one task in one batch, as ranges (first, count)."""

    queue: str
    producer: int
    batch: int
    #: Children that fail with the task.
    strict: list[tuple[int, int]] = []
    #: Children that run however the task ends.
    tolerant: list[tuple[int, int]] = []


class Input(msgspec.Struct, array_like=True, frozen=True):
    """An argument that is the result of a parent."""

    #: The position of the argument, or its keyword.
    slot: int | str
    #: The position in the argument, if it is a list of results; -1: the argument is the result.
    item: int
    #: The id of the parent, 16 bytes.
    task: bytes


class GraphLinks(msgspec.Struct, array_like=True, frozen=True):
    """New fields are added at the end, with defaults."""

    name: str
    #: The id of the graph, 16 bytes.
    graph: bytes
    children: list[ChildBatch]
    inputs: list[Input] = []
    #: How long the result is kept, at least.
    ttl_ms: int = 0
    #: The task runs if a parent has failed; the arguments from failed parents are None.
    tolerant: bool = False


def ranges_of(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted indexes as ranges (first, count)."""
    found: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if found and sum(found[-1]) == index:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((index, 1))
    return found


class ArrivalBook:
    """The arrivals of a commit: the ended parents of all its tasks, added up by child."""

    def __init__(self) -> None:
        #: By queue, producer and batch: how many parents of each index have ended.
        self._ended: dict[tuple[str, int, int], Counter[int]] = {}
        #: The same with the reason: the indexes of failed ones.
        self._failed: dict[tuple[str, int, int, str], set[int]] = {}

    def end(self, links: GraphLinks, reason: str) -> None:
        """Adds the end of a task; `reason`: it has failed."""
        for each in links.children:
            name = each.queue, each.producer, each.batch
            if each.strict and reason:
                self._failed.setdefault((*name, reason), set()).update(_indexes(each.strict))
            elif each.strict:
                self._ended.setdefault(name, Counter()).update(_indexes(each.strict))
            if each.tolerant:
                self._ended.setdefault(name, Counter()).update(_indexes(each.tolerant))

    def __len__(self) -> int:
        return len(self._ended) + len(self._failed)

    def arrivals(self, partitions: int) -> list[Arrival]:
        ended = [
            arrival(*name, partitions, list(_triples(counts)))
            for name, counts in self._ended.items()
        ]
        failed = [
            arrival(queue, producer, batch, partitions, (), ranges_of(indexes), reason)
            for (queue, producer, batch, reason), indexes in self._failed.items()
        ]
        return ended + failed


def _indexes(ranges: list[tuple[int, int]]) -> Iterator[int]:
    for first, count in ranges:
        yield from range(first, first + count)


def _triples(counts: Counter[int]) -> Iterator[tuple[int, int, int]]:
    """Indexes with equal counts of ended parents, as ranges."""
    by_parents: dict[int, list[int]] = {}
    for index, parents in counts.items():
        by_parents.setdefault(parents, []).append(index)
    for parents, indexes in by_parents.items():
        for first, count in ranges_of(indexes):
            yield first, count, parents


def shortened(reason: str) -> str:
    """A reason within the limit of the wire."""
    data = reason.encode()[: limits.REASON_BYTES_MAX]
    return data.decode(errors="ignore")
