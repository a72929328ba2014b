"""Stages on the partitions of their messages: stage, reveal, drop.

A staged batch is a push into a hold: stored, replicated, and invisible to consumers. `reveal` makes
the winners of a batch visible, in one entry of each partition's log, and drops the other stages.
From then on the partition refuses stages of the batch (the *fence*), so a late or duplicate request
changes nothing. A message counts as pushed, and gets its stamp, at the reveal.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import msgspec

from weft import limits
from weft.dht import placement
from weft.persistence import layout
from weft.proto import pipelines, wire

from . import group_push as groups
from . import head
from . import hold as holds
from .handlers import handles
from .head import Head, Part
from .hold import Hold, HoldRecord
from .message_id_queue import Handle
from .publisher import already, check_numbers
from .push import admit, check_batch, check_room
from .queue import QueueState

if TYPE_CHECKING:
    from .state import EngineState

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(int).decode

#: (partition, created of the queue, app).
FenceKey = tuple[int, int, str]


def load(state: EngineState, partition: int) -> None:
    """Loads the fences of an adopted partition."""
    for key, data in state.overlay.scan(*layout.partition_range(layout.FENCE, partition)):
        created, name = layout.unpack_named(key)
        state.fences[partition, created, name] = _decode(data)


def forget(state: EngineState, partitions: set[int]) -> None:
    for key in [each for each in state.fences if each[0] in partitions]:
        del state.fences[key]


def drop_fence(state: EngineState, key: FenceKey) -> None:
    """Deletes a fence after its queue was deleted."""
    del state.fences[key]
    state.overlay.delete(layout.named(layout.FENCE, *key))


def place_of(queue: str, request: pipelines.StageBatch, partitions: int, *, ordered: bool) -> int:
    return placement.of_push(queue, ordered, request.producer, request.number, None, partitions)


@handles(pipelines.StageBatch)
def stage(
    state: EngineState, request: pipelines.StageBatch, payload: bytes, to: object, durability: str
) -> None:
    queue = state.queue(request.queue)
    groups.refuse(queue.name, queue.settings, "a stage")
    limits.check_name("an app", request.app)
    check_numbers(request.batch, request.part, request.attempt)
    limits.check_range("token", request.token, 1, limits.NUMBER_MAX)
    push = wire.Push(request.queue, request.producer, request.number, request.count)
    check_batch(push, payload)
    ordered = queue.settings.ordered
    partition = place_of(queue.name, request, state.partitions, ordered=ordered)
    if request.batch <= state.fences.get((partition, queue.created, request.app), -1):
        raise already(request.app, request.batch)
    hold = _hold(state, queue, partition, request)
    name = request.producer, request.number
    duplicate = hold is not None and name in hold.names
    if not duplicate:
        check_room(state, queue, push)
        if hold is None:
            hold = _make(state, queue, partition, request)
        _store(state, queue, hold, push, payload)
    answer = wire.Pushed(partition, *name, request.count, duplicate, durability)
    state.answer(to, answer, (), {partition})


def _hold(
    state: EngineState, queue: QueueState, partition: int, request: pipelines.StageBatch
) -> Hold | None:
    stages = state.holds.stages.get((queue.created, request.app), {})
    found = stages.get((partition, request.token))
    if found is None or found.ending or found.record.queue != queue.id:
        return None
    return found


def _make(
    state: EngineState, queue: QueueState, partition: int, request: pipelines.StageBatch
) -> Hold:
    record = HoldRecord(
        queue.id, request.app, request.batch, request.token, True, state.now, request.part,
        request.attempt,
    )  # fmt: skip
    return holds.make(state, partition, record)


def _store(
    state: EngineState, queue: QueueState, hold: Hold, push: wire.Push, payload: bytes
) -> None:
    partition = hold.partition
    stamp, lsn = state.stamp(), state.next_lsn(partition)
    part = Part(0, push.count, queue.id, hold=hold.id)
    new = Head(
        queue.id, push.producer, push.batch, push.count, len(payload), stamp, 0, None, [part]
    )
    state.overlay.put(layout.head(partition, lsn), head.encode(new))
    state.overlay.put(layout.body(partition, lsn), payload)
    batch_handle = Handle.pack(stamp, partition, lsn, push.count, len(payload))
    holds.keep(queue, hold, batch_handle, (1 << push.count) - 1, len(payload))
    hold.names.add((push.producer, push.batch))


@handles(pipelines.Reveal)
def reveal(state: EngineState, request: pipelines.Reveal, to: object) -> None:
    queue = state.queue(request.queue)
    tokens = set(request.tokens)
    found = [
        hold
        for hold in state.holds.of_app((queue.created, request.app))
        if hold.record.number <= request.batch
    ]
    winners = [
        hold
        for hold in found
        if hold.record.number == request.batch
        and hold.record.token in tokens
        and hold.record.queue == queue.id
        and not hold.ending
    ]
    count = sum(hold.messages for hold in winners)
    _reveal(state, queue, winners)
    losers = [hold for hold in found if hold not in winners]
    if losers:
        state.jobs.append(holds.end(state, losers, put_back=False))
    for partition in {hold.partition for hold in found}:
        key = partition, queue.created, request.app
        if state.fences.get(key, -1) < request.batch:
            state.fences[key] = request.batch
            state.overlay.put(layout.named(layout.FENCE, *key), _encode(request.batch))
    # Only the current primary may report a partition without stages.
    state.answer(to, wire.Done(count), (), set(request.partitions), sure=True)


def _reveal(state: EngineState, queue: QueueState, winners: list[Hold]) -> None:
    """Publishes the batches of the winners as pushed now: by part, in the order of staging."""
    batches = sorted((hold.record.part, each) for hold in winners for each in hold.pieces)
    for _, batch_handle in batches:
        key = Handle.key(batch_handle)
        partition, lsn = Handle.split_key(key)
        staged = state.head_of(key)
        assert len(staged.parts) == 1, "a staged batch is in one hold"
        new = Head(
            queue.id, staged.producer, staged.batch, staged.count, staged.size, state.stamp(),
            staged.priority, staged.dedup_key, [Part(0, staged.count, queue.id)],
        )  # fmt: skip
        state.overlay.put(layout.head(partition, lsn), head.encode(new))
        state.remember(key, new)
        window = queue.windows.of(partition, state.partitions)
        window.add(new.stamp, new.producer, new.batch, None, new.count)
        admit(state, queue, partition, lsn, new)
    for hold in winners:
        queue.pushed += hold.messages
        holds.empty(queue, hold)
        holds.dissolve(state, hold)


@handles(pipelines.ListStages)
def list_stages(state: EngineState, request: pipelines.ListStages, to: object) -> None:
    queue = state.queue(request.queue)
    found = [
        hold.record.token
        for hold in state.holds.of_app((queue.created, request.app))
        if hold.record.number == request.batch
    ]
    state.answer(to, pipelines.StageTokens(sorted(set(found))))


@handles(pipelines.DropStages)
def drop_stages(state: EngineState, request: pipelines.DropStages, to: object) -> None:
    queue = state.queue(request.queue)
    tokens = set(request.tokens)
    found = [
        hold
        for hold in state.holds.of_app((queue.created, request.app))
        if hold.record.token in tokens
    ]
    state.jobs.append(_drop(state, found, to))


def _drop(state: EngineState, found: list[Hold], to: object) -> Generator[None]:
    count = sum(hold.messages for hold in found)
    partitions = {hold.partition for hold in found}
    yield from holds.end(state, found, put_back=False)
    state.answer(to, wire.Done(count), (), partitions)
