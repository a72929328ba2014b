"""Stats of a node at one moment, gathered by the node's own thread.

Stats are gathered on demand, in the node's thread, between two rounds: the engine does not change
there, so no lock is needed and a node without readers pays nothing. (A snapshot made every second
would cost the same iteration over all queues with or without readers, and an old snapshot does not
show that the thread has stopped.) Gathering is a generator: each step reads `STEP` queues, so that
a node with very many queues serves its clients in between.

Only the first ``QUEUES_LABELLED_MAX`` queues have their own label; the rest is one sum, because
every label is a dozen series in a monitoring system.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from operator import add
from typing import Final

from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.engine.queue import QueueState

#: Queues with stats of their own: 12 series each are 2,400 series per node.
QUEUES_LABELLED_MAX: Final = 200
#: Queues read between two rounds: takes about two milliseconds.
STEP: Final = 500
#: Label of the sum of all other queues. Its characters are not allowed in a queue's name.
OTHER: Final = "(other)"

#: A metric of the cluster: a value for each combination of its labels.
Labelled = Mapping[tuple[str, ...], float]
#: Metrics of the cluster by name (see `metrics.CLUSTER`), read in the node's thread.
ClusterFigures = dict[str, Callable[[], Labelled]]


@dataclass(frozen=True, slots=True)
class NodeStats:
    status: wire.StatusInfo
    #: The disk is at its reserve: pushes are refused.
    full: bool
    #: The labelled queues, followed by the sum of the others if there are any.
    queues: list[wire.QueueInfo] = field(default_factory=list)
    cluster: Mapping[str, Labelled] = field(default_factory=dict)
    #: The reason why some partitions are unavailable until a dead node is back; "" if none is.
    outage: str = ""


class Labels:
    """The queues with a label of their own. A queue keeps its label for its lifetime."""

    def __init__(self) -> None:
        self._labelled: set[str] = set()

    def choose(self, queues: Mapping[str, QueueState]) -> set[str]:
        """Labels queues in order of creation; a deleted queue's label goes to the next queue."""
        self._labelled.intersection_update(queues.keys())
        if len(self._labelled) < min(QUEUES_LABELLED_MAX, len(queues)):
            for name in queues:
                self._labelled.add(name)
                if len(self._labelled) >= QUEUES_LABELLED_MAX:
                    break
        return self._labelled


def of_queues(
    queues: Mapping[str, QueueState], now: int, labels: Labels
) -> Generator[None, None, list[wire.QueueInfo]]:
    """The stats of every queue, the unlabelled queues in one sum."""
    labelled = labels.choose(queues)
    found = [queues[name].info(now) for name in sorted(labelled)]
    rest = [queue for name, queue in queues.items() if name not in labelled]
    if rest:
        total = Sum()
        for start in range(0, len(rest), STEP):
            yield
            total.add(rest[start : start + STEP])
        found.append(total.info(now))
    return found


class Sum:
    """Stats of many queues, added up as those of one."""

    def __init__(self) -> None:
        self._counts = [0] * 12
        self._oldest = 0
        self._charged_us = self._charged_total_us = 0

    def add(self, queues: list[QueueState]) -> None:
        for queue in queues:
            each = (
                queue.ready, queue.leased, queue.delayed, queue.bytes, queue.pushed,
                queue.delivered, queue.acked, queue.dead_lettered, queue.expired_leases,
                queue.duplicates, len(queue.waiters), queue.waiting,
            )  # fmt: skip
            self._counts = list(map(add, self._counts, each))
            self._charged_us += queue.charged_us
            self._charged_total_us = max(self._charged_total_us, queue.charged_total_us)
            if oldest := queue.ids.oldest():
                self._oldest = min(self._oldest or oldest, oldest)

    def info(self, now: int) -> wire.QueueInfo:
        ready, leased, delayed, size, pushed, delivered, acked, dead, *others = self._counts
        expired, duplicates, waiters, waiting = others
        oldest_ms = max(0, now - self._oldest) // 1000 if self._oldest else 0
        return wire.QueueInfo(
            OTHER, Settings(), ready, leased, delayed, size, oldest_ms, pushed, delivered, acked,
            dead, expired, duplicates, waiters, waiting=waiting,
            charged_us=self._charged_us, charged_total_us=self._charged_total_us,
        )  # fmt: skip
