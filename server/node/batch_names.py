"""Names for the batches of plain clients that do not name their pushes.

The partition of a batch follows from its name, and a stochastic queue keeps a batch on the node
that takes the push: the node draws names until the hash falls on a partition that the node leads,
about as many as the cluster has nodes. So placement needs no protocol of its own (paper 1,
section 2, gives each producer its own buffer).

Any thread may draw: each step reads one set or one mapping of the node core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from weft.ids import partition_of
from weft.server.core.node_core import NodeCore
from weft.server.engine.queue import QueueState

#: Names tried before a batch may leave this node; 64 times the draws in a cluster of 64 nodes.
_DRAWS_MAX: Final = 4096


class BatchNames:
    def __init__(self, node_core: NodeCore) -> None:
        self._node_core = node_core
        #: The queues whose batches stay on this node.
        self.local: Final[Mapping[str, QueueState]] = node_core.engine.ready.stochastic

    def of(self, names: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The names whose batches are on partitions that this node leads, if it leads any."""
        while True:
            yield self._draw(names)

    def _draw(self, names: Iterator[tuple[int, int]]) -> tuple[int, int]:
        led, partitions = self._node_core.led, self._node_core.core.catalogue
        name = next(names)
        tries = 1
        while led and partition_of(*name, partitions) not in led and tries < _DRAWS_MAX:
            name = next(names)
            tries += 1
        return name

    def partition(self, name: tuple[int, int]) -> int:
        return partition_of(*name, self._node_core.core.catalogue)
