"""Figures: what a node knows of itself at one moment, as its own thread saw it.

They are gathered on demand, in the node's thread, between two rounds: there the engine holds still,
so nothing is locked and a node that nobody looks at pays nothing. (A snapshot made every second
would cost the same iteration over all queues whether anyone reads it or not, and an old snapshot
does not show that the thread has stopped.) Gathering is a generator: each step looks at `STEP`
queues, so that a node with very many queues serves its clients in between.

Only the first ``QUEUES_LABELLED_MAX`` queues are told apart; the rest is one sum, because every
label is a dozen series in a monitoring system.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from operator import add
from typing import Final

from weft.proto import wire
from weft.proto.settings import Settings

from .engine.queue import Queue

#: Queues with figures of their own: 12 series each are 2,400 series per node.
QUEUES_LABELLED_MAX: Final = 200
#: Queues that are looked at between two rounds: some two milliseconds.
STEP: Final = 500
#: The sum of all others. No queue can have this name: its letters are not those of a name.
OTHER: Final = "(other)"

#: A figure that the cluster adds: a value for each combination of its labels.
Labelled = Mapping[tuple[str, ...], float]
#: The cluster's figures by metric name (see `metrics.CLUSTER`), read in the node's thread.
ClusterFigures = dict[str, Callable[[], Labelled]]


@dataclass(frozen=True, slots=True)
class Figures:
    status: wire.StatusInfo
    #: The disk is at its reserve: pushes are refused.
    full: bool
    #: Those with a label of their own, then perhaps the sum of the others.
    queues: list[wire.QueueInfo] = field(default_factory=list)
    cluster: Mapping[str, Labelled] = field(default_factory=dict)


class Labels:
    """Which queues have a label of their own. One that has it keeps it for as long as it lives."""

    def __init__(self) -> None:
        self._labelled: set[str] = set()

    def choose(self, queues: Mapping[str, Queue]) -> set[str]:
        """The first ones to come; a place that a deleted queue leaves goes to the next."""
        self._labelled.intersection_update(queues.keys())
        if len(self._labelled) < min(QUEUES_LABELLED_MAX, len(queues)):
            for name in queues:
                self._labelled.add(name)
                if len(self._labelled) >= QUEUES_LABELLED_MAX:
                    break
        return self._labelled


def of_queues(
    queues: Mapping[str, Queue], now: int, labels: Labels
) -> Generator[None, None, list[wire.QueueInfo]]:
    """The figures of every queue, the unlabelled ones in one sum."""
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
    """Many queues as if they were one."""

    def __init__(self) -> None:
        self._counts = [0] * 11
        self._oldest = 0

    def add(self, queues: list[Queue]) -> None:
        for queue in queues:
            each = (
                queue.ready, queue.leased, queue.delayed, queue.bytes, queue.pushed,
                queue.delivered, queue.acked, queue.dead_lettered, queue.expired_leases,
                queue.duplicates, len(queue.waiters),
            )  # fmt: skip
            self._counts = list(map(add, self._counts, each))
            if oldest := queue.ids.oldest():
                self._oldest = min(self._oldest or oldest, oldest)

    def info(self, now: int) -> wire.QueueInfo:
        ready, leased, delayed, size, *counters = self._counts
        oldest_ms = max(0, now - self._oldest) // 1000 if self._oldest else 0
        return wire.QueueInfo(OTHER, Settings(), ready, leased, delayed, size, oldest_ms, *counters)
