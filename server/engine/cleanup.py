"""Jobs which remove messages and records killed by a purge, a delete or expiry.

Each job is an iterator, advanced once per round by the engine. So a million dead messages cost each
round a few milliseconds instead of stopping the node.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from weft.dht import placement
from weft.persistence import layout

from . import hold as holds
from . import ledger as ledgers
from . import message_set, parent_counts, purged, stage
from . import publisher as apps
from .batch import TouchedBatch
from .dedup import expiry_slice
from .message_id_queue import Handle
from .queue import QueueState, created_of
from .state import EngineState

#: Batches, parts or records per round.
STEP: Final = 500
#: Partitions searched for records per round: a scan over what was deleted before takes long, too.
SCANNED: Final = 8


def sweep(state: EngineState, dead: QueueState) -> Generator[None]:
    """Removes all messages of a dead queue, leased messages included.

    The queue is in `state.dying` from the call on, not from the first step of the job, because
    this node may lose a partition before the first step.
    """
    state.dying.append(dead)
    return _sweep(state, dead)


def _sweep(state: EngineState, dead: QueueState) -> Generator[None]:
    for number, lease in enumerate(list(state.leases.by_nonce.values())):
        if lease.queue is dead and lease.nonce in state.leases.by_nonce:
            lease.batch.purged |= lease.mask
            lease.mask = 0
            state.leases.end(lease, state.now)
            state.lease_records.note_end(state, lease)
            state.changed(lease.batch)
        if number % (10 * STEP) == 0:
            yield
    for number, entry in enumerate(dead.ids.drain()):
        batch, part = state.part(entry)
        batch.purged |= message_set.of_range(part.first, part.count)
        state.changed(batch)
        if number % STEP == 0:
            yield
    yield from parent_counts.sweep(state, dead)
    held = [hold for hold in state.holds.by_key.values() if hold.record.queue == dead.id]
    # Messages being acknowledged before the purge, or not published yet, do not count as purged.
    reserved = [hold for hold in held if not hold.ending and not hold.record.staged]
    others = [hold for hold in held if hold.ending or hold.record.staged]
    yield from holds.end(state, reserved, put_back=False, purged=True)
    yield from holds.end(state, others, put_back=False)
    drop_ownerless(state, dead.created)
    state.dying.remove(dead)
    partition = placement.of_text(dead.name, state.partitions)
    if dead.settings.ordered and partition in state.led:
        state.overlay.delete(layout.leases(partition, dead.id))


def drop_ownerless(state: EngineState, created: int | None = None) -> None:
    """Removes the state of subscriptions and apps of deleted queues (or of one such queue)."""

    def gone(queue: int) -> bool:
        return queue not in state.by_created and created in (None, queue)

    for ledger in [each for each in state.ledgers.values() if gone(each.queue)]:
        ledgers.drop(state, ledger)
    for app in [each for each in state.apps.values() if gone(each.queue)]:
        apps.drop(state, app)
    for key in [key for key in state.fences if gone(key[1])]:
        stage.drop_fence(state, key)
    for hold in list(state.holds.by_key.values()):
        if gone(created_of(hold.record.queue)) and not hold.pieces:
            holds.dissolve(state, hold)


def remove(state: EngineState, garbage: list[TouchedBatch]) -> Generator[None]:
    """Removes batches found dead by recovery."""
    state.removing += 1
    return _remove(state, garbage)


def _remove(state: EngineState, garbage: list[TouchedBatch]) -> Generator[None]:
    for number, batch in enumerate(garbage):
        place = Handle.split_key(Handle.key(batch.handle))
        # Another node may have led the partition for a while, and removed the batch.
        if place[0] in state.led and state.overlay.read(layout.head(*place)) is not None:
            batch.parts.clear()
            state.changed(batch)
        if number % STEP == 0:
            yield
    state.removing -= 1


def forget(state: EngineState) -> Generator[None]:
    """Deletes dedup records and purge records of ended time slices."""
    last = expiry_slice(state.now, 0) - 1
    number = 0
    for at, partition in enumerate(sorted(state.led - {state.catalogue})):
        if at % SCANNED == SCANNED - 1:
            yield
        for kind in (layout.DEDUP, layout.DEDUP_KEY):
            for key, _ in state.overlay.scan(*layout.slice_range(kind, partition, last)):
                if partition not in state.led:
                    break  # now the work of another node
                state.overlay.delete(key)
                number += 1
                if number % STEP == 0:
                    yield
        for key in purged.expired(state.overlay, state.now, partition):
            if partition not in state.led:
                break
            state.overlay.delete(key)
            number += 1
            if number % STEP == 0:
                yield


def forget_pushes(state: EngineState) -> None:
    """Discards expired dedup entries in memory, also of unknown queues; most such queues are
    deleted."""
    for queue in state.queues.values():
        for window in queue.windows.values():
            window.expire(state.now)
    current = expiry_slice(state.now, 0)
    for created, pushes in list(state.stray_pushes.items()):
        kept = [pushed for pushed in pushes if pushed.expires >= current]
        if kept:
            state.stray_pushes[created] = kept
        else:
            del state.stray_pushes[created]


def retain(state: EngineState, queue: QueueState) -> Generator[None]:
    """Drops messages older than the queue's retention."""
    oldest = state.now - queue.settings.retention_ms * 1000
    number = 0
    while (entry := queue.ids.take_older(oldest)) is not None:
        batch, part = state.part(entry)
        queue.ready -= part.count
        queue.bytes -= batch.share(part.first, part.count)
        state.changed(batch)
        number += 1
        if number % STEP == 0:
            yield
