"""The queues known to this node: loads catalogue records and applies their changes.

The catalogue is a separate partition, followed by every node. The catalogue's primary applies a
change immediately, in the verbs of ``admin``; other nodes apply the change here, once committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from weft.persistence import layout
from weft.proto import wire

from . import idle_queues, lease_records, room, topic
from . import queue as stored
from .batch import TouchedBatch
from .cleanup import sweep
from .dedup import First
from .message_id_queue import Handle
from .pop import strike
from .queue import QueueRecord, QueueState, created_of
from .state import EngineState

#: Counters since the node started; a purge does not reset a counter.
_COUNTERS: Final = (
    "pushed", "delivered", "acked", "dead_lettered", "expired_leases", "duplicates", "empty_pops",
)  # fmt: skip


def load(state: EngineState) -> None:
    """Loads all records from the store; drops known queues without a record."""
    records = {
        key[1:].decode(): stored.decode(data)
        for key, data in state.overlay.scan(*layout.kind_range(layout.QUEUE))
    }
    for queue in [queue for name, queue in state.queues.items() if name not in records]:
        drop(state, queue)
    for name, record in records.items():
        _become(state, name, record)
    state.topics = {
        key[1:].decode(): topic.TopicState(key[1:].decode(), topic.decode(data))
        for key, data in state.overlay.scan(*layout.kind_range(layout.TOPIC))
    }
    features = state.overlay.scan(*layout.kind_range(layout.FEATURE))
    state.features = {key[1:].decode() for key, _ in features}


def learn(state: EngineState, key: bytes, record: bytes | None) -> None:
    """Applies one sealed record from the store; None: the record was deleted."""
    name = key[1:].decode()
    data = None if record is None else layout.unseal(key, record, state.overlay.path)
    if key[:1] == layout.TOPIC:
        topic.learn(state, name, None if data is None else topic.decode(data))
    elif key[:1] == layout.FEATURE:
        state.features.add(name)
    elif data is not None:
        _become(state, name, stored.decode(data))
    elif (known := state.queues.get(name)) is not None:
        drop(state, known)


def _become(state: EngineState, name: str, record: QueueRecord) -> None:
    known = state.queues.get(name)
    if known is not None and known.created != record.created:
        drop(state, known)
        known = None
    if known is None:
        enter(state, QueueState(name, record, state.describe))
    elif known.generation != record.generation:
        renew(state, known, record)
    else:
        settle(state, known, record)
        idle_queues.note(state, known)


def enter(state: EngineState, queue: QueueState) -> None:
    """Adds a new queue, and admits data stored before the queue's record arrived."""
    queue.apply(queue.settings, state.cluster_part)
    state.queues[queue.name] = queue
    state.by_id[queue.id] = queue
    state.by_created[queue.created] = queue
    if queue.buffer is not None:
        state.stochastic[queue.name] = queue
    idle_queues.note(state, queue)
    for pushed in state.stray_pushes.pop(queue.created, ()):
        window = queue.windows.of(pushed.partition, state.partitions)
        window.restore(pushed.expires, pushed.producer, pushed.batch)
        if pushed.key is not None:
            first = First(pushed.producer, pushed.batch, pushed.messages, pushed.first)
            window.restore_key(pushed.expires, pushed.key, first)
    orphans = {Handle.key(batch.handle): batch for batch, _ in state.orphans.pop(queue.id, ())}
    lent = _lent(state, queue, orphans.values())
    for key, batch in orphans.items():
        head = batch.head
        partition = Handle.partition(batch.handle)
        for number, queue_id in enumerate(head.destinations):
            if queue.settings.dedup_window_ms and created_of(queue_id) == queue.created:
                window = queue.windows.of(partition, state.partitions)
                name, bodies = (head.producer, head.batch, head.dedup_key), head.bodies
                window.add(head.stamp, *name, bodies, number * bodies)
        if key in lent:
            lease_records.restore(state, batch, lent[key])
        for part in [part for part in batch.parts.values() if part.queue == queue.id]:
            state.wait(queue, batch, part)


def _lent(
    state: EngineState, queue: QueueState, batches: Iterable[TouchedBatch]
) -> dict[int, lease_records.Found]:
    """Leases granted by another node before this node knew the queue, by batch."""
    found: dict[int, lease_records.Found] = {}
    for partition in {Handle.partition(batch.handle) for batch in batches} & state.led:
        for lsn, records in lease_records.load(state, partition).items():
            own = [each for each in records if each[0] is queue]
            if own:
                found[Handle.key_of(partition, lsn)] = own
    return found


def settle(state: EngineState, queue: QueueState, record: QueueRecord) -> None:
    """Applies changed settings."""
    queue.apply(record.settings, state.cluster_part)
    state.ready_queues[queue.id] = queue  # a limit may be higher
    queue.windows.resize(record.settings.dedup_window_ms)


def renew(state: EngineState, old: QueueState, record: QueueRecord) -> QueueState:
    """Starts a new, empty generation of a queue; drops leased messages, too."""
    new = QueueState(old.name, record, state.describe)
    new.windows = old.windows
    room.renewed(state, old, new)
    settle(state, new, record)
    for counter in _COUNTERS:
        setattr(new, counter, getattr(old, counter))
    new.waiters, old.waiters = old.waiters, new.waiters
    for waiter in new.waiters:
        waiter.queue = new
    del state.by_id[old.id]
    enter(state, new)
    state.jobs.append(sweep(state, old))
    return new


def drop(state: EngineState, queue: QueueState) -> None:
    """Removes a deleted queue and fails its waiting pops."""
    state.stochastic.pop(queue.name, None)
    del state.queues[queue.name], state.by_id[queue.id], state.by_created[queue.created]
    idle_queues.note(state, queue)
    while queue.waiters:
        waiter = queue.waiters.popleft()
        strike(state, waiter)
        state.answer(waiter.to, wire.Failure("QUEUE_NOT_FOUND", "the queue was deleted", False))
    room.dropped(state, queue)
    state.jobs.append(sweep(state, queue))
