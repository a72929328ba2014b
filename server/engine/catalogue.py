"""The queues this node knows: the catalogue's records, and what follows when one changes.

The catalogue is a partition of its own that every node follows. Its primary changes it at once, in
the verbs of ``admin``; the others hear of it when it is committed, and end up here.
"""

from __future__ import annotations

from typing import Final

from weft.dht import placement
from weft.persistence import layout
from weft.proto import wire

from . import handle, in_order
from . import queue as stored
from .dedup import First
from .in_order import LeaseRecord
from .pop import strike
from .queue import Queue, QueueRecord, created_of
from .state import State
from .sweep import sweep

#: Since the node started: a purge does not set them back.
_COUNTERS: Final = (
    "pushed", "delivered", "acked", "dead_lettered", "expired_leases", "duplicates",
)  # fmt: skip


def load(state: State) -> None:
    """All records as the store has them; what is known and not there is dropped."""
    records = {
        key[1:].decode(): stored.decode(data)
        for key, data in state.overlay.scan(*layout.kind_range(layout.QUEUE))
    }
    for queue in [queue for name, queue in state.queues.items() if name not in records]:
        drop(state, queue)
    for name, record in records.items():
        _become(state, name, record)


def learn(state: State, key: bytes, record: bytes | None) -> None:
    """One record, sealed, as it stands in the store now."""
    name = key[1:].decode()
    if record is not None:
        _become(state, name, stored.decode(layout.unseal(key, record, state.overlay.path)))
    elif (known := state.queues.get(name)) is not None:
        drop(state, known)


def _become(state: State, name: str, record: QueueRecord) -> None:
    known = state.queues.get(name)
    if known is not None and known.created != record.created:
        drop(state, known)
        known = None
    if known is None:
        enter(state, Queue(name, record))
    elif known.generation != record.generation:
        renew(state, known, record)
    else:
        settle(known, record)


def enter(state: State, queue: Queue) -> None:
    """A queue that is new here; what was stored for it before its record came is let in."""
    state.queues[queue.name] = queue
    state.by_id[queue.id] = queue
    state.by_created[queue.created] = queue
    for pushed in state.stray_pushes.pop(queue.created, ()):
        window = queue.window(pushed.partition, state.partitions)
        window.restore(pushed.expires, pushed.producer, pushed.batch)
        if pushed.key is not None:
            first = First(pushed.producer, pushed.batch, pushed.messages)
            window.restore_key(pushed.expires, pushed.key, first)
    strays = {handle.key(batch.handle): batch for batch, _ in state.strays.pop(queue.id, ())}
    lent = _lent_in_order(state, queue) if strays else {}
    for key, batch in strays.items():
        head = batch.head
        partition, lsn = handle.split_key(key)
        if queue.settings.dedup_window_ms and created_of(head.queue) == queue.created:
            window = queue.window(partition, state.partitions)
            window.add(head.stamp, head.producer, head.batch, head.dedup_key, head.count)
        if lsn in lent:
            in_order.restore(state, batch, lent[lsn])
        for part in [part for part in batch.parts.values() if part.queue == queue.id]:
            state.wait(queue, batch, part)


def _lent_in_order(state: State, queue: Queue) -> dict[int, list[tuple[Queue, LeaseRecord]]]:
    """What another node has lent of an ordered queue before this one had heard of the queue."""
    partition = placement.of_text(queue.name, state.partitions)
    if not queue.settings.ordered or partition not in state.led:
        return {}
    found = in_order.load(state, partition)
    return {lsn: own for lsn, each in found.items() if (own := [r for r in each if r[0] is queue])}


def settle(queue: Queue, record: QueueRecord) -> None:
    """Other settings."""
    queue.settings = record.settings
    for window in queue.windows.values():
        if window.window_ms != record.settings.dedup_window_ms:
            window.resize(record.settings.dedup_window_ms)


def renew(state: State, old: Queue, record: QueueRecord) -> Queue:
    """A new generation, which starts empty; lent messages are dropped, too."""
    new = Queue(old.name, record)
    new.windows = old.windows
    settle(new, record)
    for counter in _COUNTERS:
        setattr(new, counter, getattr(old, counter))
    new.waiters, old.waiters = old.waiters, new.waiters
    for waiter in new.waiters:
        waiter.queue = new
    del state.by_id[old.id]
    enter(state, new)
    state.jobs.append(sweep(state, old))
    return new


def drop(state: State, queue: Queue) -> None:
    """The queue is no more."""
    del state.queues[queue.name], state.by_id[queue.id], state.by_created[queue.created]
    while queue.waiters:
        waiter = queue.waiters.popleft()
        strike(state, waiter)
        state.answer(waiter.to, wire.Failure("QUEUE_NOT_FOUND", "the queue was deleted", False))
    state.jobs.append(sweep(state, queue))
