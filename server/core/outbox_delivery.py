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

A destination *refuses* while it has no live primary, or no room on its disk. It is left out of the
next pages, and asked again after a pause, so that it does not block the others; for the same reason
its node is asked for each destination separately after a failure.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, Protocol

from weft.proto import wire
from weft.server.engine.engine import Engine

from .cluster_host import ClusterHost
from .operation import SILENT, Operation, Pause, Question, Said, Step

#: The time after which a destination that refused is asked again.
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
        refusing, again_at = set[int](), 0
        try:
            while effects.owes(source):
                if host.now >= again_at:
                    refusing.clear()
                effects.set_refusing(source, refusing)
                ((said, _),) = yield [Question(host.node, wire.ReadOutbox(source))]
                if not isinstance(said, wire.Outbox):
                    yield Pause(RETRY_US)
                elif not said.partitions:  # all that is left refuses
                    yield Pause(max(1, again_at - host.now))
                elif refused := (yield from self._send(source, said)):
                    again_at = again_at if refusing else host.now + RETRY_US
                    refusing |= refused
            return wire.Done(), ()
        finally:
            self._busy.discard(source)

    def _send(self, source: int, page: wire.Outbox) -> Generator[Step, list[Said], set[int]]:
        """Sends one page; returns the destinations that have not taken their part."""
        left, silent = list(range(len(page.partitions))), list[int]()
        for together in (True, False):
            groups, dead = self._groups(page, left, together=together)
            silent += dead
            said = yield [
                Question(node, _request(source, page, positions)) for node, positions in groups
            ]
            left = []
            for (_, positions), (answer, _) in zip(groups, said, strict=True):
                if isinstance(answer, wire.Taken):
                    for position, number in zip(positions, answer.numbers, strict=True):
                        destination = page.partitions[position]
                        self._effects.close(source, page.channel, destination, number)
                elif together and len(positions) > 1 and answer != SILENT:
                    left += positions
                else:
                    silent += positions
            if not left:
                break
        return {page.partitions[position] for position in silent}

    def _groups(
        self, page: wire.Outbox, positions: list[int], *, together: bool
    ) -> tuple[list[tuple[str, list[int]]], list[int]]:
        """The positions to ask each live node for, on their own if not `together`; and those
        without a live primary."""
        view = self._host.view
        groups: dict[tuple[str, int], list[int]] = {}
        dead: list[int] = []
        for position in positions:
            node = view.places[page.partitions[position]].primary
            if self._host.alive(node):
                groups.setdefault((node, -1 if together else position), []).append(position)
            else:
                dead.append(position)
        return [(node, found) for (node, _), found in groups.items()], dead


def _request(source: int, page: wire.Outbox, positions: list[int]) -> wire.Deliver:
    return wire.Deliver(
        source,
        page.channel,
        [page.partitions[position] for position in positions],
        [page.after[position] for position in positions],
        [page.entries[position] for position in positions],
        sorted({queue for position in positions for queue in page.queues[position]}),
    )
