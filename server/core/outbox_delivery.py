"""Outbox delivery: carries the effects of commits from their home to other partitions.

The primary of a source partition delivers, whenever the outbox of the source has something: right
after a commit, and again after a failover, because the outbox is part of the partition's state.
One operation per source repeats three steps until the outbox is empty:

| step    | what happens                                                                        |
|---------|-------------------------------------------------------------------------------------|
| read    | this node asks itself for the first deliveries; the commit gate holds the answer    |
|         | until they are committed                                                            |
| deliver | one request to each node that leads destinations; a node answers when its entries,  |
|         | which have effects and marks together, are committed                                |
| close   | the deliveries that were taken leave the outbox                                     |

A destination that cannot take them (no primary, a full disk) is asked again after a pause. After a
failure its node is asked for each destination separately, so that one does not block the others.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, Protocol

from weft.proto import wire
from weft.server.engine.engine import Engine

from .cluster_host import ClusterHost
from .operation import Operation, Pause, Question, Said, Step

#: The pause after a destination did not take its deliveries.
RETRY_US: Final = 100_000
#: The operations of this node that deliver at once; other sources wait for their turn.
SOURCES_MAX: Final = 64


class OutboxHost(ClusterHost, Protocol):
    @property
    def engine(self) -> Engine: ...
    def run_operation(self, operation: Operation) -> None: ...


class OutboxDelivery:
    def __init__(self, host: OutboxHost) -> None:
        self._host = host
        self._effects = host.engine.commits
        #: Sources with an operation under way.
        self._busy: set[int] = set()

    @property
    def due(self) -> bool:
        """True if a source waits for an operation."""
        owing = self._effects.owing
        return bool(owing) and len(self._busy) < SOURCES_MAX and not self._busy.issuperset(owing)

    def work(self) -> None:
        """Starts the operations of sources with deliveries."""
        for source in self._effects.owing:
            if source not in self._busy and len(self._busy) < SOURCES_MAX:
                self._busy.add(source)
                self._host.run_operation(self._deliver(source))

    def _deliver(self, source: int) -> Operation:
        host, effects = self._host, self._effects
        try:
            while effects.owes(source):
                ((said, _),) = yield [Question(host.node, wire.ReadOutbox(source))]
                done = isinstance(said, wire.Outbox) and (yield from self._send(source, said))
                if not done:
                    yield Pause(RETRY_US)
            return wire.Done(), ()
        finally:
            self._busy.discard(source)

    def _send(self, source: int, page: wire.Outbox) -> Generator[Step, list[Said], bool]:
        """Sends one page; True if every destination has taken its part."""
        left = list(range(len(page.partitions)))
        for together in (True, False):
            groups = self._groups(page, left, together=together)
            if not groups:
                break
            said = yield [
                Question(node, _request(source, page, positions)) for node, positions in groups
            ]
            left = []
            for (_, positions), (answer, _) in zip(groups, said, strict=True):
                if isinstance(answer, wire.Taken):
                    for position, number in zip(positions, answer.numbers, strict=True):
                        destination = page.partitions[position]
                        self._effects.close(source, page.channel, destination, number)
                else:
                    left += positions
        return not left

    def _groups(
        self, page: wire.Outbox, positions: list[int], *, together: bool
    ) -> list[tuple[str, list[int]]]:
        """The positions to ask each node for; on their own if not `together`."""
        view = self._host.view
        groups: dict[tuple[str, int], list[int]] = {}
        for position in positions:
            node = view.places[page.partitions[position]].primary
            groups.setdefault((node, -1 if together else position), []).append(position)
        return [(node, found) for (node, _), found in groups.items()]


def _request(source: int, page: wire.Outbox, positions: list[int]) -> wire.Deliver:
    return wire.Deliver(
        source,
        page.channel,
        [page.partitions[position] for position in positions],
        [page.after[position] for position in positions],
        [page.entries[position] for position in positions],
        sorted({queue for position in positions for queue in page.queues[position]}),
    )
