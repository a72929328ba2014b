"""Pushes of batches whose messages wait for others: see ``parent_counts``."""

from __future__ import annotations

from collections.abc import Iterator

from weft import limits
from weft.errors import InvalidArgument
from weft.persistence import layout
from weft.proto import wire

from . import head, push
from .batch import TouchedBatch
from .dedup import DedupWindow
from .handlers import handles
from .head import RELEASED, Head, Part
from .message_id_queue import Handle
from .queue import QueueState
from .state import EngineState


@handles(wire.PushWaiting)
def push_waiting(
    state: EngineState, request: wire.PushWaiting, payload: bytes, to: object, durability: str
) -> None:
    queue, partition, window = push.where(state, request, payload)
    check(queue, request)
    found = push.first(window, request)
    if found is not None:
        queue.duplicates += 1
        known = wire.Pushed(partition, *found[:3], True, durability, found.first)
        state.answer(to, known, (), {partition})
        return
    push.check_room(state, queue, request)
    store(state, queue, partition, window, request, payload)
    state.answer(to, push.answer(queue, request, partition, durability), (), {partition})


def check(queue: QueueState, request: wire.PushWaiting) -> None:
    if not queue.settings.graphs:
        raise InvalidArgument(
            f"{queue.name} takes no messages that wait for others: switch its setting graphs on "
            f"(weft queue update {queue.name} --graphs)"
        )
    if len(request.waits) != request.count:
        raise InvalidArgument(f"waits has {len(request.waits)} counts, not {request.count}")
    limits.check_range("waits", min(request.waits), 0, limits.GRAPH_PARENTS_MAX)
    limits.check_range("waits", max(request.waits), 0, limits.GRAPH_PARENTS_MAX)
    if request.dedup_key is not None:
        raise InvalidArgument(
            "a batch that waits for others is named by its producer: no dedup key"
        )


def store(
    state: EngineState,
    queue: QueueState,
    partition: int,
    window: DedupWindow,
    request: wire.PushWaiting,
    payload: bytes,
) -> None:
    """Stores a checked batch, and lists its messages without parents."""
    stamp, lsn = state.stamp(), state.next_lsn(partition)
    due = state.now + request.delay_ms * 1000 if request.delay_ms else 0
    new = Head(
        queue.id, request.producer, request.batch, request.count, len(payload), stamp,
        request.priority, None, list(_parts(queue.id, request.waits, due)),
    )  # fmt: skip
    state.overlay.put_records(layout.batch_records(partition, lsn, head.encode(new), payload))
    state.payloads.add(Handle.key_of(partition, lsn), payload)
    window.add(stamp, new.producer, new.batch, None, new.count)
    queue.pushed += new.count
    batch = TouchedBatch.load(partition, lsn, new)
    state.touched[batch.key] = batch
    for part in new.parts:
        state.wait(queue, batch, part)


def _parts(queue_id: int, waits: list[int], due: int) -> Iterator[Part]:
    """One part for each run of messages with equal counts."""
    first = 0
    for index in range(1, len(waits) + 1):
        if index == len(waits) or waits[index] != waits[first]:
            yield Part(first, index - first, queue_id, 0, due, waits=waits[first] or RELEASED)
            first = index
