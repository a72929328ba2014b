"""The leases of an ordered queue, which are stored and replicated, unlike others.

An ordered queue lends one lot at a time. If a lease were lost with the node that gave it, the next
one could lend the same messages while the first consumer still works on them. So every change of
the queue's leases is an entry in its partition's log, and whoever leads next goes on with them: the
receipts stay good. Their time begins anew then. Nobody can say how long an answer was held back
before it went out, nor how far the two nodes' clocks are apart; and a lot that is lent for too long
only waits, while one that is lent twice at a time is no lot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.dht import placement
from weft.persistence import layout

from . import handle, mask
from .batch import Batch
from .head import Part
from .lease import Lease

if TYPE_CHECKING:
    from .queue import Queue
    from .state import State


class LeaseRecord(msgspec.Struct, array_like=True, frozen=True):
    """A lease as it is stored."""

    nonce: int
    lsn: int
    first: int
    count: int
    #: Which of them are still out, a bit for each, little end first.
    mask: bytes
    #: When it ends, in microseconds since 1970, and how long it was given for.
    until: int
    lease_us: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[LeaseRecord]).decode


def write(state: State, queue: Queue) -> None:
    """Puts the leases of a queue into the round's changes."""
    partition = placement.of_text(queue.name, state.partitions)
    records = [
        LeaseRecord(
            lease.nonce, handle.split_key(lease.key)[1], lease.part.first, lease.part.count,
            lease.mask.to_bytes(-(-lease.mask.bit_length() // 8), "little"),
            state.leases.timers.when(lease.nonce, state.now + lease.lease_us), lease.lease_us,
        )
        for lease in state.leases.by_nonce.values()
        if lease.queue is queue
    ]  # fmt: skip
    key = layout.leases(partition, queue.id)
    if records:
        state.overlay.put(key, _encode(records))
    else:
        state.overlay.delete(key)


def load(state: State, partition: int) -> dict[int, list[tuple[Queue, LeaseRecord]]]:
    """The stored leases of a partition that is adopted, by the batch's lsn."""
    found: dict[int, list[tuple[Queue, LeaseRecord]]] = {}
    for key, data in state.overlay.scan(*layout.partition_range(layout.LEASES, partition)):
        _, queue_id = layout.unpack_batch(key)
        queue = state.by_id.get(queue_id)
        if queue is not None:
            for record in _decode(data):
                found.setdefault(record.lsn, []).append((queue, record))
    return found


def restore(state: State, batch: Batch, records: list[tuple[Queue, LeaseRecord]]) -> None:
    """Takes what is lent out of a batch's parts, and goes on with the leases."""
    for queue, record in records:
        out = int.from_bytes(record.mask, "little")
        lent = [
            part for part in batch.parts.values() if mask.of_range(part.first, part.count) & out
        ]
        if not lent:
            continue  # all of it was settled
        kind = lent[0]
        for part in lent:
            del batch.parts[part.first]
            for run in mask.runs(mask.of_range(part.first, part.count) & ~out):
                batch.parts[run[0]] = _part(part, *run)
        lease = Lease(
            record.nonce, queue, batch, _part(kind, record.first, record.count), record.lease_us
        )
        lease.mask = out
        state.leases.add(lease, state.now + record.lease_us)
        queue.leased += out.bit_count()
        queue.bytes += sum(batch.share(*run) for run in mask.runs(out))


def _part(kind: Part, first: int, count: int) -> Part:
    return Part(first, count, kind.queue, kind.deliveries, kind.due, kind.reason, kind.origin)
