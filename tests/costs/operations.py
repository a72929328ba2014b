"""The fixed runs: what is done, how often, and what is counted meanwhile.

A figure is a counter's growth for one operation. Counters may belong to another thread or process,
which can still be busy with the last operation when a section ends: over many it does not show.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final, NamedTuple

import weft
from weft.client import connection, link_blocking
from weft.proto import wire

BODY: Final = bytes(range(128))
BATCH: Final = [BODY] * 1000
#: A batch's payload frame as it goes over the wire and to the disk.
BATCH_BYTES: Final = len(wire.encode(wire.Payload(BATCH)))
_WARM_UP: Final = 5
_WAIT_MS: Final = 20_000

#: Longer than any operation takes here.
_PATIENCE_MS: Final = 10_000

#: Counters by name, ever growing.
Counts = Mapping[str, float]


@contextmanager
def patient() -> Iterator[None]:
    """Clients that connect in here wait for an answer in their plainest way, however long it takes:
    on a slow machine an fsync outlasts the blink after which they look at clocks and connections,
    and what that costs would be counted on some machines and not on others. How often one who waits
    awake looks depends on the machine, too: here they sleep."""
    before = connection.BLINK_MS, link_blocking.BLINK_S
    awake = os.environ.get("WEFT_AWAKE_US")
    os.environ["WEFT_AWAKE_US"] = "0"
    connection.BLINK_MS, link_blocking.BLINK_S = _PATIENCE_MS, _PATIENCE_MS / 1000  # type: ignore[misc]
    try:
        yield
    finally:
        connection.BLINK_MS, link_blocking.BLINK_S = before  # type: ignore[misc]
        del os.environ["WEFT_AWAKE_US"]
        if awake is not None:
            os.environ["WEFT_AWAKE_US"] = awake


def low(values: Sequence[float]) -> float:
    """What nine of ten are not below: the operation that no timer and no other thread added to."""
    return sorted(values)[len(values) // 10]


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
    queue: weft.Queue, count: Callable[[], Counts], plan: Plan, *, one_by_one: bool = False
) -> dict[str, float]:
    """Figures as "operation: counter", after a warm-up that makes connections and fills caches.

    They are means, or with `one_by_one` what the lowest tenth of the operations takes: timers of a
    thread that is counted add to some operations, to more of them on a slower machine.
    """
    for section in sections(queue, plan):
        for _ in range(_WARM_UP):
            section.call()
    found: dict[str, float] = {}
    for name, times, call in sections(queue, plan):
        seen = [dict(count())]
        for _ in range(times):
            call()
            if one_by_one:
                seen.append(dict(count()))
        if not one_by_one:
            seen.append(dict(count()))
        for what in seen[0]:
            if one_by_one:
                steps = [after[what] - before[what] for before, after in pairwise(seen)]
                found[f"{name}: {what}"] = low(steps)
            else:
                found[f"{name}: {what}"] = (seen[-1][what] - seen[0][what]) / times
    return found
