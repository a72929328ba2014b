"""Leases of ordered queues: stored and replicated, unlike other leases.

An ordered queue lends one lot at a time. If a lease were lost with its primary, the next primary
could lend the same messages while the first consumer still works on them. So every change of the
queue's leases is an entry in the partition's log, and the next primary continues the leases
(``lease_records``): receipts stay valid. The lease time then starts again in full, because no node
knows how long the answer was held back before sending, nor the difference of the two nodes' clocks.
A lot leased for too long only delays the queue; a lot leased twice at a time breaks the order.

A record is written in the round of the pop, so in every record the answer is still unsent. Before a
planned move the records are rewritten, with the sent state of each answer (``unsent``): a lot never
received by a consumer does not count as delivered. After a crash the state is unknown, and the lot
counts as delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.dht import placement
from weft.persistence import layout

from .lease_records import record_of
from .message_id_queue import Handle

if TYPE_CHECKING:
    from .queue import QueueState
    from .state import EngineState

_encode = msgspec.msgpack.Encoder().encode


def write_again(state: EngineState, partitions: set[int]) -> None:
    """Schedules a rewrite of the leases in this round, for queues whose leases are always in the
    log."""
    for lease in state.leases.by_nonce.values():
        partition = Handle.partition(lease.batch.handle)
        if partition in partitions and lease.queue.settings.ordered:
            state.lent_in_order.add(lease.queue)
        elif partition in partitions and lease.queue.records_leases:
            state.lease_records.note(lease)


def write(state: EngineState, queue: QueueState) -> None:
    """Adds the leases of a queue to the round's changes."""
    partition = placement.of_text(queue.name, state.partitions)
    moves = partition in state.lease_records.partitions
    found = [
        record_of(state, lease) for lease in state.leases.by_nonce.values() if lease.queue is queue
    ]
    records = [
        msgspec.structs.replace(each, queue=0, left_us=0, unsent=moves and each.unsent)
        for each in found
    ]
    key = layout.leases(partition, queue.id)
    if records:
        state.overlay.put(key, _encode(records))
    else:
        state.overlay.delete(key)
