"""The fixed runs: the operations, how often they run, and the counters.

A figure is a counter's growth for one operation. Counters may belong to another thread or process,
which can still be busy with the last operation when a section ends: the mean over many operations
hides the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final, NamedTuple

import weft
from weft.client.transport import blocking_link, connection
from weft.proto import wire

BODY: Final = bytes(range(128))
BATCH: Final = [BODY] * 1000
#: A batch's payload frame, on the wire and on the disk.
BATCH_BYTES: Final = len(wire.encode(wire.Payload(BATCH)))
_WARM_UP: Final = 5
_WAIT_MS: Final = 20_000

#: Longer than any operation takes here.
_PATIENCE_MS: Final = 10_000

#: Counters by name, monotonically increasing.
Counts = Mapping[str, float]


@contextmanager
def patient() -> Iterator[None]:
    """Make clients that connect in this block wait for answers in the simplest way.

    On a slow machine an fsync outlasts the short time after which clients check clocks and
    connections, and the cost of these checks would be counted on some machines and not on others.
    How often a spinning client polls depends on the machine, too: here clients block instead.
    """
    before = connection.BLINK_MS, blocking_link.BLINK_S
    awake = os.environ.get("WEFT_AWAKE_US")
    os.environ["WEFT_AWAKE_US"] = "0"
    connection.BLINK_MS, blocking_link.BLINK_S = _PATIENCE_MS, _PATIENCE_MS / 1000  # type: ignore[misc]
    try:
        yield
    finally:
        connection.BLINK_MS, blocking_link.BLINK_S = before  # type: ignore[misc]
        del os.environ["WEFT_AWAKE_US"]
        if awake is not None:
            os.environ["WEFT_AWAKE_US"] = awake


def low(values: Sequence[float]) -> float:
    """The tenth percentile: an operation without extra work by a timer or another thread."""
    return sorted(values)[len(values) // 10]


class Section(NamedTuple):
    name: str
    times: int
    call: Callable[[], object]


class Plan(NamedTuple):
    """How often each operation runs."""

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


def transaction(client: weft.Client, plan: Plan) -> Section:
    """A pop, and one commit with its ack and a push. The message goes round: its output is the next
    input."""
    client.create_queue("costs.round")
    queue = client.queue("costs.round")
    queue.push(BODY)

    def pop_commit() -> None:
        message = queue.pop(wait_ms=_WAIT_MS)
        assert message is not None
        with client.transaction() as tx:
            tx.ack(message)
            tx.push(queue.name, message.body)

    return Section("pop+commit", plan.singles, pop_commit)


def run(
    queue: weft.Queue,
    count: Callable[[], Counts],
    plan: Plan,
    *more: Section,
    one_by_one: bool = False,
) -> dict[str, float]:
    """Figures as "operation: counter", after a warm-up that makes connections and fills caches.

    The figures are means, or with `one_by_one` the value of the lowest tenth of the operations:
    timers of a counted thread add to some operations, and to more of them on a slower machine.
    """
    all_sections = [*sections(queue, plan), *more]
    for section in all_sections:
        for _ in range(_WARM_UP):
            section.call()
    found: dict[str, float] = {}
    for name, times, call in all_sections:
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
