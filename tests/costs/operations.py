"""The fixed runs: what is done, how often, and what is counted meanwhile.

A figure is a counter's growth for one operation. Counters may belong to another thread or process,
which can still be busy with the last operation when a section ends: over many it does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

import weft
from weft.proto import wire

BODY: Final = bytes(range(128))
BATCH: Final = [BODY] * 1000
#: A batch's payload frame as it goes over the wire and to the disk.
BATCH_BYTES: Final = len(wire.encode(wire.Payload(BATCH)))
_WARM_UP: Final = 5
_WAIT_MS: Final = 20_000

#: Counters by name, ever growing.
Counts = Mapping[str, float]


class Section(NamedTuple):
    name: str
    times: int
    call: Callable[[], object]


class Plan(NamedTuple):
    """How often each is done."""

    singles: int = 200
    batches: int = 50


def sections(queue: weft.Queue, plan: Plan) -> list[Section]:
    """Every push has its pop, so the queue is empty at the end."""

    def pop_ack() -> None:
        message = queue.pop(wait_ms=_WAIT_MS)
        assert message is not None
        message.ack()

    def pop_ack_batch() -> None:
        messages = queue.pop_many(len(BATCH), wait_ms=_WAIT_MS)
        assert len(messages) == len(BATCH)
        queue.ack_many(messages)

    return [
        Section("push", plan.singles, lambda: queue.push(BODY)),
        Section("pop+ack", plan.singles, pop_ack),
        Section("batch push", plan.batches, lambda: queue.push_many(BATCH)),
        Section("batch pop+ack", plan.batches, pop_ack_batch),
    ]


def run(
    queue: weft.Queue, count: Callable[[], Counts], plan: Plan, *, middle: bool = False
) -> dict[str, float]:
    """Figures as "operation: counter", after a warm-up that makes connections and fills caches.

    With `middle` it is the median operation's, or else the mean: timers of a thread that is counted
    add to some operations, the more the slower the machine is.
    """
    for section in sections(queue, plan):
        for _ in range(_WARM_UP):
            section.call()
    found: dict[str, float] = {}
    for name, times, call in sections(queue, plan):
        seen = [dict(count())]
        for _ in range(times):
            call()
            if middle:
                seen.append(dict(count()))
        if not middle:
            seen.append(dict(count()))
        for what in seen[0]:
            if middle:
                steps = [after[what] - before[what] for before, after in pairwise(seen)]
                found[f"{name}: {what}"] = median(steps)
            else:
                found[f"{name}: {what}"] = (seen[-1][what] - seen[0][what]) / times
    return found
