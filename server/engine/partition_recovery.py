"""Recovery: rebuild the in-memory state of led partitions from the store, partition by partition.

Recovery runs at start, and whenever this node becomes the primary of a partition it followed. Only
heads are read, never payloads, so recovery time grows with the number of waiting batches. A
checksum mismatch stops the node with the name of the file: an operator decides, not the node.

A batch of an unknown queue is an *orphan*: either an unfinished sweep after a purge or delete left
the batch behind, or the queue's catalogue record has not reached this node yet. An orphan is
garbage only when the catalogue is known to be complete (``delete_orphans``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from weft.persistence import layout

from . import (
    head,
    hold,
    lease_records,
    ledger,
    message_set,
    ordered_multicast,
    outbox,
    proposal,
    publisher,
    stage,
    table_rows,
)
from .batch import TouchedBatch
from .cleanup import drop_ownerless, remove
from .dedup import SLICE_US, DedupEntry, First
from .head import Head, Part
from .message_id_queue import (
    COUNT_SHIFT,
    LSN_SHIFT,
    PARTITION_SHIFT,
    STAMP_BITS,
    STAMP_SHIFT,
    Handle,
)
from .push import admit, admit_all, admit_copies
from .queue import created_of, was_purged
from .state import LSNS_LOST, EngineState, PartitionRecord

_decode_partition = msgspec.msgpack.Decoder(PartitionRecord).decode
_decode_first = msgspec.msgpack.Decoder(First).decode

#: A kind of batches, equal except for name, size and age: the parts of an untouched batch (None if
#: the queue is unknown), and the list for the handles of ready batches.
_Kind = tuple[list[Part] | None, list[int]]


def count_messages(
    state: EngineState, partition: int, batches_max: int
) -> tuple[dict[str, int], int]:
    """Counts the stored messages of a partition, led or not; "" stands for unknown queues."""
    messages, batches = Counter[str](), 0
    for _, data in state.overlay.scan(*layout.partition_range(layout.HEAD, partition)):
        if batches >= batches_max:
            break
        batches += 1
        for part in head.decode(data).parts:
            queue = state.by_id.get(part.queue)
            messages[queue.name if queue is not None else ""] += part.count
    return dict(messages), batches


def adopt(state: EngineState, partitions: set[int], losses: int = 0) -> None:
    """`losses`: the disks of the cluster that were lost for good."""
    state.led |= partitions
    state.losses = losses
    gathered = _Found()
    for partition in sorted(partitions - {state.catalogue}):
        record = state.overlay.read(layout.partition(partition))
        own = _decode_partition(record) if record is not None else PartitionRecord(1, 0)
        lsn = own.lsn + LSNS_LOST if own.losses <= losses else own.lsn
        state.lsns[partition] = state.lsns_aside[partition] = lsn
        state.clocks.load(partition, own.clock)
        state.last_stamp = max(state.last_stamp, own.clock)
        _dedup(state, partition)
        for keeper in (hold, ledger, outbox, publisher, stage, table_rows):
            keeper.load(state, partition)
        state.lease_records.load_ended(state, partition)
        _batches(state, partition, gathered)
        ordered_multicast.give_up_all(state, partition)
    for (queue_id, priority), handles in gathered.fresh.items():
        if handles:
            admit_all(state, state.by_id[queue_id], priority, handles)
    for queue in state.queues.values():
        for window in queue.windows.values():
            window.expire(state.now)
    proposal.release(state)
    if gathered.dead:
        state.jobs.append(remove(state, gathered.dead))
    for empty in [each for each in state.holds.by_key.values() if not each.pieces]:
        if created_of(empty.record.queue) in state.by_created:  # the hold's end was interrupted
            hold.dissolve(state, empty)
    owned = {*state.ledgers, *state.apps, *(key[1:] for key in state.fences)}
    state.ownerless = {created for created, _ in owned if created not in state.by_created}
    if state.catalogue in state.led:
        delete_orphans(state)


def delete_orphans(state: EngineState) -> None:
    dead: list[TouchedBatch] = []
    for partition in {
        Handle.partition(b.handle) for each in state.orphans.values() for b, _ in each
    }:
        lease_records.discard_unknown(state, partition)
    for orphans in state.orphans.values():
        for batch, part in orphans:
            del batch.parts[part.first]
            batch.purged |= message_set.of_range(part.first, part.count)
            if batch.gone:
                del state.touched[Handle.key(batch.handle)]
                dead.append(batch)
            else:
                state.changed(batch)
    state.orphans.clear()
    state.stray_pushes.clear()
    drop_ownerless(state)
    state.ownerless.clear()
    if dead:
        state.jobs.append(remove(state, dead))


def _dedup(state: EngineState, partition: int) -> None:
    for key, _ in _scan(state, layout.DEDUP, partition):
        _, expires, created, producer, batch = layout.unpack_dedup(key)
        if (owner := state.by_created.get(created)) is not None:
            owner.windows.of(partition, state.partitions).restore(expires, producer, batch)
        else:
            pushed = DedupEntry(partition, expires, producer, batch)
            state.stray_pushes.setdefault(created, []).append(pushed)
    for key, record in _scan(state, layout.DEDUP_KEY, partition):
        _, expires, created, name = layout.unpack_dedup_key(key)
        first = _decode_first(record)
        if (owner := state.by_created.get(created)) is not None:
            owner.windows.of(partition, state.partitions).restore_key(expires, name, first)
        else:
            pushed = DedupEntry(partition, expires, *first[:2], name, *first[2:])
            state.stray_pushes.setdefault(created, []).append(pushed)


class _Found:
    """Data collected from the heads of several partitions, to process each batch cheaply."""

    def __init__(self) -> None:
        self.dead: list[TouchedBatch] = []
        self.fresh: dict[tuple[int, int], list[int]] = {}  # (queue id, priority) -> handles
        self.kinds: dict[tuple[int, int, int], _Kind] = {}  # by queue id, priority and count
        #: Queue id -> the oldest stamp in the queue's dedup window.
        self.horizons: dict[int, int] = {}


def _batches(state: EngineState, partition: int, gathered: _Found) -> None:
    """Loads the heads of a partition. Restart time is dominated by the loop below, which runs once
    per waiting batch and therefore avoids function calls."""
    now, last_stamp = state.now, state.last_stamp
    decode, unpack_batch = head.decode, layout.unpack_batch
    fresh, kinds, horizons = gathered.fresh, gathered.kinds, gathered.horizons
    lent = lease_records.load(state, partition)
    #: Pushes within the dedup window: (queue id, slice, producer) -> batches.
    seen: dict[tuple[int, int, int], list[int]] = {}
    for key, data in _scan(state, layout.HEAD, partition):
        found = decode(data)
        _, lsn = unpack_batch(key)
        stamp, queue_id, count = found.stamp, found.queue, found.count
        if stamp > last_stamp:
            last_stamp = stamp
        if found.proposal is not None and lsn not in lent:
            proposal.load(state, partition, lsn, found)
            if not found.proposal.decided:
                continue
        horizon = horizons.get(queue_id)
        if horizon is None:
            horizon = horizons[queue_id] = _horizon(state, queue_id)
        if found.queues is not None:
            _restore_names(state, partition, found)
        elif stamp >= horizon:
            pushed = queue_id, (stamp + now - horizon) // SLICE_US, found.producer
            batches = seen.get(pushed)
            if batches is None:
                batches = seen[pushed] = []
            batches.append(found.batch)
            if found.dedup_key is not None:
                _restore_key(state, partition, found, pushed[1])
        if found.proposal is not None and lsn not in lent:
            continue  # `proposal.release` lists it
        place = queue_id, found.priority, count
        kind = kinds.get(place)
        if kind is None:
            queue = state.by_id.get(queue_id)
            # A batch of a grouped queue is listed under its group, which only its head has.
            plain = queue is not None and queue.groups is None
            parts = [Part(0, count, queue_id)] if plain else None
            kind = kinds[place] = parts, fresh.setdefault(place[:2], [])
        if lsn in lent:
            batch = TouchedBatch.load(partition, lsn, found)
            lease_records.restore(state, batch, lent.pop(lsn))
            _restore(state, batch, gathered.dead)
        elif (found.parts == kind[0] and found.tenant is None) or _is_ready(
            state, partition, lsn, found, gathered.dead
        ):
            kind[1].append(
                stamp << STAMP_SHIFT
                | partition << PARTITION_SHIFT
                | lsn << LSN_SHIFT
                | count << COUNT_SHIFT
                | found.size
            )
    for records in lent.values():  # leases of removed batches
        lease_records.discard(state, partition, records)
    state.last_stamp = last_stamp
    for (queue_id, expires, producer), batches in seen.items():
        owner = state.by_created[created_of(queue_id)].windows.of(partition, state.partitions)
        owner.restore_many(expires, producer, batches)


def _horizon(state: EngineState, queue_id: int) -> int:
    """The oldest stamp in a queue's dedup window; above every stamp if there is no window."""
    queue = state.by_created.get(created_of(queue_id))
    if queue is None or not queue.settings.dedup_window_ms:
        return 1 << STAMP_BITS
    return state.now - queue.settings.dedup_window_ms * 1000


def _restore_key(state: EngineState, partition: int, found: Head, expires: int) -> None:
    assert found.dedup_key is not None
    first = First(found.producer, found.batch, found.count)
    owner = state.by_created[created_of(found.queue)].windows.of(partition, state.partitions)
    owner.restore_key(expires, found.dedup_key, first)


def _is_ready(
    state: EngineState, partition: int, lsn: int, found: Head, dead: list[TouchedBatch]
) -> bool:
    """Handles an unusual batch; returns True if the batch is untouched and ready after all."""
    if found.queues is not None and _are_whole_copies(state, found):
        state.remember(Handle.key_of(partition, lsn), found)
        admit_copies(state, partition, lsn, found)
        return False
    queue, parts = state.by_id.get(found.queue), found.parts
    whole = len(parts) == 1 and parts[0].count == found.count and parts[0].queue == found.queue
    if queue is None or not whole or parts[0].deliveries or parts[0].hold or (parts[0].waits > 0):
        _restore(state, TouchedBatch.load(partition, lsn, found), dead)
        return False
    if parts[0].due > state.now or queue.groups is not None or found.tenant is not None:
        state.remember(Handle.key_of(partition, lsn), found)
        admit(state, queue, partition, lsn, found)
        return False
    return True


def _are_whole_copies(state: EngineState, found: Head) -> bool:
    """True for a multicast whose remaining parts are whole copies in known queues."""
    bodies = found.bodies
    return all(
        part.count == bodies
        and part.first % bodies == 0
        and part.queue in state.by_id
        and not part.hold
        for part in found.parts
    )


def _restore_names(state: EngineState, partition: int, found: Head) -> None:
    """Restores the name and the dedup key of a multicast for each of its destinations."""
    name, bodies = (found.producer, found.batch, found.dedup_key), found.bodies
    for number, queue_id in enumerate(found.destinations):
        owner = state.by_created.get(created_of(queue_id))
        if owner is not None:
            window = owner.windows.of(partition, state.partitions)
            window.add(found.stamp, *name, bodies, number * bodies)


def _restore(state: EngineState, batch: TouchedBatch, dead: list[TouchedBatch]) -> None:
    """Restores a touched batch, or a batch of an unknown queue."""
    parts, batch.parts = batch.parts, {}
    key = Handle.key(batch.handle)
    state.touched[key] = batch  # before `wait`: a grouped queue looks the batch's group up
    for part in parts.values():
        queue = state.by_id.get(part.queue)
        if queue is not None:
            state.wait(queue, batch, part)
        elif not was_purged(part.queue, state.by_created):
            batch.parts[part.first] = part
            state.orphans.setdefault(part.queue, []).append((batch, part))
        else:
            batch.purged |= message_set.of_range(part.first, part.count)
    if batch.gone:
        del state.touched[key]
        dead.append(batch)
        return
    if len(batch.parts) == len(parts) and batch.is_set_aside(state.by_id):
        del state.touched[key]
        return
    if len(batch.parts) < len(parts):
        state.changed(batch)


def _scan(state: EngineState, kind: bytes, partition: int) -> Iterator[tuple[bytes, bytes]]:
    return state.overlay.scan(*layout.partition_range(kind, partition))
