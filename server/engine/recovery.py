"""Recovery: everything that is in memory, rebuilt from the store at start.

Only heads are read, never payloads, so the time to start follows the number of waiting batches. A
checksum that does not match stops the start with the name of the file: an operator decides, not
the node. What a purge or delete had no time to sweep away is recognised by its dead queue id.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from weft.persistence import layout

from . import head
from . import queue as stored
from .batch import Batch
from .dedup import First, expiry_slice
from .handle import pack as pack_handle
from .head import Head
from .push import admit, admit_all, readmit
from .queue import Queue, created_of
from .state import PartitionRecord, State
from .sweep import remove

_decode_partition = msgspec.msgpack.Decoder(PartitionRecord).decode
_decode_first = msgspec.msgpack.Decoder(First).decode


def recover(state: State) -> None:
    for key, record in _scan(state, layout.PARTITION):
        state.lsns[layout.unpack_partition(key)] = _decode_partition(record).lsn
    for key, record in _scan(state, layout.QUEUE):
        queue = Queue(key[1:].decode(), stored.decode(record))
        state.queues[queue.name] = queue
        state.by_id[queue.id] = queue
        state.by_created[queue.created] = queue
    for key, _ in _scan(state, layout.DEDUP):
        expires, _, created, producer, batch = layout.unpack_dedup(key)
        if (owner := state.by_created.get(created)) is not None:
            owner.dedup.restore(expires, producer, batch)
    for key, record in _scan(state, layout.DEDUP_KEY):
        expires, _, created, name = layout.unpack_dedup_key(key)
        if (owner := state.by_created.get(created)) is not None:
            owner.dedup.restore_key(expires, name, _decode_first(record))
    _batches(state)
    for queue in state.queues.values():
        queue.dedup.expire(state.now)


def _batches(state: State) -> None:
    """A restart's time is this loop's: it runs once for each waiting batch."""
    dead: list[Batch] = []
    fresh: dict[tuple[int, int], list[int]] = {}  # (queue id, priority) -> handles
    by_id = state.by_id
    now, last_stamp = state.now, state.last_stamp
    decode, unpack_batch = head.decode, layout.unpack_batch
    #: Each queue's window in microseconds, and what was pushed lately: by queue, slice, producer.
    windows = {queue.created: queue.dedup.window_ms * 1000 for queue in state.queues.values()}
    seen: dict[tuple[int, int, int], list[int]] = {}
    for key, data in _scan(state, layout.HEAD):
        found = decode(data)
        partition, lsn = unpack_batch(key)
        stamp, queue_id = found.stamp, found.queue
        if stamp > last_stamp:
            last_stamp = stamp
        created = created_of(queue_id)
        window = windows.get(created)
        if window and stamp >= now - window:
            pushed = created, expiry_slice(stamp, window // 1000), found.producer
            if pushed in seen:
                seen[pushed].append(found.batch)
            else:
                seen[pushed] = [found.batch]
            if found.dedup_key is not None:
                first = First(found.producer, found.batch, found.count)
                state.by_created[created].dedup.restore_key(pushed[1], found.dedup_key, first)
        if not _untouched(found):
            _restore(state, Batch.load(partition, lsn, found), dead)
        elif queue_id not in by_id:
            dead.append(Batch.load(partition, lsn, found))
        elif found.parts[0].due > now:
            admit(state, by_id[queue_id], partition, lsn, found)
        else:
            place = queue_id, found.priority
            handles = fresh.get(place)
            if handles is None:
                handles = fresh[place] = []
            handles.append(pack_handle(stamp, partition, lsn, found.count, found.size))
    state.last_stamp = last_stamp
    for (created, expires, producer), batches in seen.items():
        state.by_created[created].dedup.restore_many(expires, producer, batches)
    for (queue_id, priority), handles in fresh.items():
        admit_all(by_id[queue_id], priority, handles)
    if dead:
        state.jobs.append(remove(state, dead))


def _restore(state: State, batch: Batch, dead: list[Batch]) -> None:
    parts, batch.parts = batch.parts, {}
    for part in parts.values():
        queue = state.by_id.get(part.queue)
        if queue is not None:
            readmit(state, queue, batch, part)
    if len(batch.parts) < len(parts):
        if batch.parts:
            state.changed(batch)
        else:
            dead.append(batch)


def _untouched(found: Head) -> bool:
    if len(found.parts) != 1:
        return False
    part = found.parts[0]
    return part.count == found.count and part.queue == found.queue and not part.deliveries


def _scan(state: State, kind: bytes) -> Iterator[tuple[bytes, memoryview]]:
    return state.overlay.scan(*layout.kind_range(kind))
