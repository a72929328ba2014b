"""Eviction: discard the in-memory state of partitions which this node no longer leads.

Nothing is written, because another node leads the partition. Leases are discarded: the next primary
continues the leases recorded in the log (``lease_records``) and redelivers all other leased
messages.
"""

from __future__ import annotations

from . import (
    hold,
    ledger,
    message_set,
    outbox,
    parent_counts,
    proposal,
    publisher,
    stage,
    table_watch,
)
from .message_id_queue import WHOLE, Handle, IdEntry
from .state import EngineState


def abandon(state: EngineState, partitions: set[int]) -> None:
    state.led -= partitions
    queues = [*state.by_id.values(), *state.dying]
    _leases(state, partitions)
    state.lease_records.forget(partitions)
    for keeper in (hold, ledger, outbox, proposal, publisher, stage, parent_counts):
        keeper.forget(state, partitions)
    table_watch.abandon(state, partitions)
    state.table.forget(partitions)
    for queue in queues:
        for entry, delayed in queue.ids.drop(partitions):
            count, size = _extent(state, entry)
            queue.bytes -= size
            if delayed:
                queue.delayed -= count
            else:
                queue.ready -= count
        for partition in partitions:
            queue.windows.pop(partition, None)
    for key in [key for key in state.touched if Handle.split_key(key)[0] in partitions]:
        del state.touched[key]
    for key in [key for key in state.recent if Handle.split_key(key)[0] in partitions]:
        del state.recent[key]
    state.payloads.drop_partitions(partitions)
    for queue_id, orphans in list(state.orphans.items()):
        kept = [each for each in orphans if Handle.partition(each[0].handle) not in partitions]
        if kept:
            state.orphans[queue_id] = kept
        else:
            del state.orphans[queue_id]
    for created, pushes in list(state.stray_pushes.items()):
        state.stray_pushes[created] = [p for p in pushes if p.partition not in partitions]
    for partition in partitions - {state.catalogue}:
        state.lsns[partition] = state.lsns_aside[partition] = 0
        state.clocks.load(partition, 0)


def _leases(state: EngineState, partitions: set[int]) -> None:
    for lease in list(state.leases.by_nonce.values()):
        if Handle.partition(lease.batch.handle) in partitions:
            lease.queue.leased -= lease.mask.bit_count()
            lease.queue.bytes -= sum(
                lease.batch.share(*run) for run in message_set.runs(lease.mask)
            )
            state.leases.forget(lease)


def _extent(state: EngineState, entry: IdEntry) -> tuple[int, int]:
    """The messages and the bytes of an entry."""
    if entry.first == WHOLE:
        return Handle.count(entry.handle), Handle.size(entry.handle)
    batch = state.touched.get(Handle.key(entry.handle))
    if batch is None:  # a whole copy of a multicast
        return Handle.count(entry.handle), Handle.size(entry.handle)
    count = batch.parts[entry.first].count
    return count, batch.share(entry.first, count)
