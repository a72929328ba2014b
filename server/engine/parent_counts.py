"""Waiting messages: the messages of task graphs whose parents have not all ended.

Paper 4, chapter 5 (Albatross) keeps a count of parents and a list of children with each task.
Here the count is in the head of the child's batch (`Part.waits`), so it is replicated, stored and
recovered like everything else in the head; the list is known to the clients alone. A commit that
ends a parent names the children in its *arrivals*. On the home of the commit an arrival takes
effect in the entry that acknowledges the parent, elsewhere by the channel between the partitions
(``outbox``), once. The paper decrements after the execution, in a step of its own: a worker that
dies in between counts twice or never.

| `Part.waits` | the messages                                                                |
|--------------|-----------------------------------------------------------------------------|
| 0            | are of no graph                                                             |
| n > 0        | wait for n parents: in no list, no pop gets them                            |
| -1           | were released, or had no parents: listed like others, never removed alone   |

Invariants:

- A message is listed iff `waits` of its part is not positive. It becomes listed when its count
  reaches 0, or when a parent has failed; then its part has the reason.
- A part that waits has one message in memory, so an arrival finds it by its index. On disk,
  neighbours with equal counts are one part.
- `WaitingBatches` has exactly the batches with a waiting message, so an arrival for any other batch
  changes nothing: all its messages were released, or are gone.
- A message of a graph ends by a commit, or with its queue: `cancel` leaves it alone, because its
  children would wait for ever.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

import msgspec

from weft import limits
from weft.errors import InvalidArgument
from weft.proto import wire

from . import message_set
from .batch import TouchedBatch
from .head import RELEASED, Part
from .message_id_queue import Handle
from .queue import QueueState

if TYPE_CHECKING:
    from .state import EngineState

#: Batches per round of a purge or delete.
_STEP: Final = 500

#: (partition, queue id, producer, batch)
Name = tuple[int, int, int, int]


class WaitingBatches:
    """The batches with waiting messages, on the partitions that this node leads."""

    def __init__(self) -> None:
        self.by_name: dict[Name, TouchedBatch] = {}


class DecidedArrival(msgspec.Struct, array_like=True, frozen=True):
    """The stored form of an arrival in an outbox; `queue` is the id at the time of the commit."""

    queue: int
    producer: int
    batch: int
    ended: list[tuple[int, int, int]]
    failed: list[tuple[int, int]]
    reason: str


# --- arrivals -----------------------------------------------------------------------------------


def check_arrival(arrival: wire.Arrival, partitions: int) -> None:
    limits.check_queue_name(arrival.queue)
    limits.check_range("partition", arrival.partition, 0, partitions - 1)
    if len(arrival.ended) + len(arrival.failed) > limits.GRAPH_RANGES_MAX:
        raise InvalidArgument(f"an arrival has at most {limits.GRAPH_RANGES_MAX} ranges")
    ranges = [*arrival.failed, *((first, count) for first, count, _ in arrival.ended)]
    for first, count in ranges:
        if first < 0 or count < 1 or first + count > limits.BATCH_COUNT_MAX:
            raise InvalidArgument("a range of an arrival is inside its batch")
    for _, _, parents in arrival.ended:
        limits.check_range("parents", parents, 1, limits.GRAPH_PARENTS_MAX)
    if len(arrival.reason.encode()) > limits.REASON_BYTES_MAX:
        raise InvalidArgument(f"a reason has at most {limits.REASON_BYTES_MAX} bytes")
    if arrival.failed and not arrival.reason:
        raise InvalidArgument("an arrival of a failed parent has a reason")


def decided(queue: QueueState, arrival: wire.Arrival) -> DecidedArrival:
    return DecidedArrival(
        queue.id, arrival.producer, arrival.batch, arrival.ended, arrival.failed, arrival.reason
    )


def apply(state: EngineState, partition: int, arrival: DecidedArrival) -> None:
    """Counts ended parents, and releases the messages that wait no longer."""
    queue = state.by_id.get(arrival.queue)
    if queue is None:
        state.channels.dropped += 1
        return
    name = partition, arrival.queue, arrival.producer, arrival.batch
    batch = state.waiting_batches.by_name.get(name)
    if batch is None:
        return
    parts, released = batch.parts, 0
    for first, count, parents in arrival.ended:
        for index in range(first, first + count):
            part = parts.get(index)
            if part is None or part.waits <= 0 or part.queue != queue.id:
                continue
            parts[index] = _counted(part, max(0, part.waits - parents))
            if part.waits <= parents:
                released |= 1 << index
    _release(state, queue, batch, released, "")
    failed = 0
    for first, count in arrival.failed:
        for index in range(first, first + count):
            part = parts.get(index)
            if part is not None and part.waits > 0 and part.queue == queue.id:
                failed |= 1 << index
    _release(state, queue, batch, failed, arrival.reason)
    state.changed(batch)


def _counted(part: Part, waits: int) -> Part:
    return Part(
        part.first, part.count, part.queue, part.deliveries, part.due, part.reason, part.origin,
        part.hold, part.crashes, waits,
    )  # fmt: skip


def _release(
    state: EngineState, queue: QueueState, batch: TouchedBatch, bits: int, reason: str
) -> None:
    """Lists waiting messages; neighbours become one part, and so one lease."""
    if not bits:
        return
    for first, count in message_set.runs(bits):
        due = batch.parts[first].due
        for index in range(first, first + count):
            del batch.parts[index]
        _count(queue, batch, first, -count)
        state.wait(queue, batch, Part(first, count, queue.id, 0, due, reason, waits=RELEASED))
    if not any(part.waits > 0 and part.queue == queue.id for part in batch.parts.values()):
        del state.waiting_batches.by_name[_name(queue, batch)]


# --- memory -------------------------------------------------------------------------------------


def attach(state: EngineState, queue: QueueState, batch: TouchedBatch, part: Part) -> None:
    """Adds a waiting part to the index: after its push, or after a restart."""
    for index in range(part.first, part.first + part.count):
        batch.parts[index] = Part(
            index, 1, part.queue, part.deliveries, part.due, part.reason, part.origin,
            part.hold, part.crashes, part.waits,
        )  # fmt: skip
    _count(queue, batch, part.first, part.count)
    state.waiting_batches.by_name[_name(queue, batch)] = batch


def _name(queue: QueueState, batch: TouchedBatch) -> Name:
    return Handle.partition(batch.handle), queue.id, batch.head.producer, batch.head.batch


def _count(queue: QueueState, batch: TouchedBatch, first: int, count: int) -> None:
    """Changes the queue's numbers by `count` messages from `first` on; a negative count removes."""
    size = batch.share(first, abs(count))
    size = size if count > 0 else -size
    queue.waiting += count
    queue.bytes += size
    queue.held_bytes += size


def forget(state: EngineState, partitions: set[int]) -> None:
    """Discards the waiting messages of partitions that this node no longer leads."""
    dying = {queue.id: queue for queue in state.dying}
    by_name = state.waiting_batches.by_name
    for name in [name for name in by_name if name[0] in partitions]:
        batch = by_name.pop(name)
        queue = state.by_id.get(name[1]) or dying.get(name[1])
        for part in batch.parts.values():
            if part.waits > 0 and queue is not None and part.queue == queue.id:
                _count(queue, batch, part.first, -part.count)


def sweep(state: EngineState, dead: QueueState) -> Generator[None]:
    """Removes the waiting messages of a queue that was purged or deleted."""
    by_name = state.waiting_batches.by_name
    for number, name in enumerate([name for name in by_name if name[1] == dead.id]):
        batch = by_name.pop(name, None)
        if batch is None:
            continue  # another node leads the partition by now
        for part in [each for each in batch.parts.values() if each.waits > 0]:
            if part.queue == dead.id:
                del batch.parts[part.first]
                batch.purged |= message_set.of_range(part.first, part.count)
        state.changed(batch)
        if number % _STEP == 0:
            yield
