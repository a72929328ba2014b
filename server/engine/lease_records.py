"""Lease records: leases written to a partition's log, so the next primary continues the leases.

In the steady state a lease is volatile: a pop writes nothing. Before a planned move of a partition
(rebalancing, join, leave, an orderly stop) its primary *records* the partition: every active lease
becomes a record in the partition's state, through the log like any other change. From then on each
change of a lease updates the record in the same entry, so records and leases stay equal until the
move happens or is cancelled. The partition serves pops and acks during the whole preparation.

| partition    | new lease | changed lease  | ended lease                                     |
|--------------|-----------|----------------|-------------------------------------------------|
| not recorded | nothing   | delete record  | delete record                                   |
| recorded     | write     | write          | delete record; write to a group of ended leases |

Invariants:

- The log entry which changes a lease also deletes or rewrites the lease's record. So every record
  in the store is true under any primary, and after a crash, too.
- A record counts only if its messages are still in the lending queue (``restore``).
- Leases ended within ``lease.ENDED_US`` are handed over as well, in groups: a retried ack, with an
  answer lost by the old primary, is answered "already", not "lost".
- Time is a duration, not a date: the next primary grants the time left when the record was written,
  because two nodes' clocks may differ. A move never shortens a lease.

The leases of ordered queues are always in the log (``ordered_leases``); this module records only
their ended leases. The leases of grouped queues, and of queues with `keep_leases`, are always
recorded here, with or without a planned move: a lease lost with its primary would let the next
primary lend the group, or the messages, to a second consumer.
Outside of a planned move such a record does not tell if the answer was sent, so after a crash the
messages count as delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from weft.persistence import layout
from weft.proto import wire

from . import message_set
from .batch import TouchedBatch
from .head import Part
from .lease import ENDED_US, EndedLease, Lease
from .message_id_queue import Handle
from .queue import QueueState, created_of

if TYPE_CHECKING:
    from .state import Answered, EngineState

#: Backlog leases written per round, over all partitions: about 10 us each, for small log entries.
RECORDS_PER_ROUND: Final = 2048
#: Ended leases in one record.
ENDED_PER_RECORD: Final = 512


class LeaseRecord(msgspec.Struct, array_like=True, frozen=True):
    """The stored form of a lease."""

    nonce: int
    lsn: int
    first: int
    count: int
    #: The messages still leased, one bit per message, little-endian.
    mask: bytes
    #: When the lease ends, in microseconds since 1970, and the granted duration.
    until: int
    lease_us: int
    #: The messages handed out, as `mask`; nil: all.
    handed: bytes | None = None
    #: The messages acked and nacked under the lease, as `mask`.
    acked: bytes = b""
    nacked: bytes = b""
    #: The queue's id; 0 for an ordered queue, because the key of the record has the id.
    queue: int = 0
    #: Microseconds left when the record was written; 0: the full duration starts again.
    left_us: int = 0
    #: The answer was unsent when the record was written, and perhaps never left: if the lease
    #: expires at the next primary, no delivery is counted.
    unsent: bool = False


class EndedRecord(msgspec.Struct, array_like=True, frozen=True):
    """The stored form of an ended lease (``lease.EndedLease``)."""

    nonce: int
    queue: int
    lsn: int
    first: int
    count: int
    acked: bytes
    nacked: bytes


#: The leases of a batch, each with its queue.
Found = list[tuple[QueueState, LeaseRecord]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LeaseRecord).decode
_decode_list = msgspec.msgpack.Decoder(list[LeaseRecord]).decode
_decode_ended = msgspec.msgpack.Decoder(list[EndedRecord]).decode


def record_of(state: EngineState, lease: Lease) -> LeaseRecord:
    """The record of a lease in its current state. An answer leaves after the round granting its
    leases, and lease time does not run while the answer is held back; so a lease with its full
    time left counts as unsent."""
    full = state.now + lease.lease_us
    until = state.leases.timers.when(lease.nonce, full)
    unsent = lease.sent is False or (lease.sent is None and until >= full)
    return LeaseRecord(
        lease.nonce, Handle.split_key(lease.key)[1], lease.part.first, lease.part.count,
        message_set.to_bytes(lease.mask), until, lease.lease_us, message_set.to_bytes(lease.handed),
        message_set.to_bytes(lease.acked), message_set.to_bytes(lease.nacked),
        lease.queue.id, max(1, until - state.now), unsent,
    )  # fmt: skip


class LeaseRecords:
    """The recorded partitions, and the records still to be written."""

    def __init__(self) -> None:
        self.partitions: set[int] = set()
        #: To be written by `write`: changed leases of this round by nonce, ended leases by
        #: partition, and by partition the leases granted before recording began.
        self.changed: dict[int, Lease] = {}
        self.ended: dict[int, list[EndedRecord]] = {}
        self.backlog: dict[int, list[Lease]] = {}
        #: (time, partition, key) of each group of ended leases in the store.
        self._groups: deque[tuple[int, int, bytes]] = deque()

    def is_complete(self, partition: int) -> bool:
        """True if all leases of a recorded partition are written, or in this round's changes."""
        return partition in self.partitions and partition not in self.backlog

    def begin(self, state: EngineState, partitions: set[int]) -> None:
        """Starts to record partitions."""
        new = partitions - self.partitions
        self.partitions |= new
        for lease in state.leases.by_nonce.values():
            partition = Handle.partition(lease.batch.handle)
            if partition in new and not lease.queue.settings.ordered:
                self.backlog.setdefault(partition, []).append(lease)
        for nonce, ended in state.leases.ended.items():
            partition = Handle.split_key(ended.key)[0]
            if partition in new:
                self.ended.setdefault(partition, []).append(_ended_record(nonce, ended))

    def end(self, partitions: set[int]) -> None:
        """Stops recording: the move was cancelled, or is complete. Existing records stay until
        their leases change."""
        self.partitions -= partitions
        for partition in partitions:
            self.backlog.pop(partition, None)

    def forget(self, partitions: set[int]) -> None:
        """Discards the state of partitions now led by another node, the owner of the records."""
        self.end(partitions)
        for partition in partitions:
            self.ended.pop(partition, None)
        for nonce, lease in list(self.changed.items()):
            if Handle.partition(lease.batch.handle) in partitions:
                del self.changed[nonce]
        if self._groups:
            self._groups = deque(each for each in self._groups if each[1] not in partitions)

    def returned(
        self, state: EngineState, partitions: set[int]
    ) -> Iterator[tuple[str, wire.Receipt]]:
        """(queue, receipt) of returned messages with a stale record of their lease: the round would
        have deleted the record, but this node lost the partitions."""
        for lease in self.changed.values():
            partition, lsn = Handle.split_key(lease.key)
            rest = (
                message_set.of_range(lease.part.first, lease.part.count)
                & ~lease.acked
                & ~lease.nacked
            )
            stored = lease.recorded or lease.queue.settings.ordered
            gone = stored and lease.nonce not in state.leases.by_nonce
            if gone and rest and partition in partitions:
                ranges = list(message_set.runs(rest))
                yield lease.queue.name, wire.Receipt(partition, lsn, lease.nonce, ranges)

    def note(self, lease: Lease) -> None:
        """Notes a new or changed lease."""
        self.changed[lease.nonce] = lease

    def note_end(self, state: EngineState, lease: Lease) -> None:
        """Notes an ended lease."""
        self.changed[lease.nonce] = lease
        partition = Handle.partition(lease.batch.handle)
        if partition in self.partitions:
            ended = _ended_record(lease.nonce, state.leases.ended[lease.nonce])
            self.ended.setdefault(partition, []).append(ended)

    def write(self, state: EngineState) -> None:
        """Adds changed leases and a share of the backlog to the round's changes."""
        for lease in self.changed.values():
            self._write(state, lease)
        self.changed.clear()
        room = RECORDS_PER_ROUND
        for partition, leases in list(self.backlog.items()):
            batch, self.backlog[partition] = leases[:room], leases[room:]
            room -= len(batch)
            for lease in batch:
                self._write(state, lease)
            if not self.backlog[partition]:
                del self.backlog[partition]
        for partition, ended in self.ended.items():
            for start in range(0, len(ended), ENDED_PER_RECORD):
                group = ended[start : start + ENDED_PER_RECORD]
                key = layout.ended(partition, group[0].nonce)
                state.overlay.put(key, _encode(group))
                self._groups.append((state.now, partition, key))
        self.ended.clear()

    def _write(self, state: EngineState, lease: Lease) -> None:
        partition, lsn = Handle.split_key(lease.key)
        out, moves = lease.nonce in state.leases.by_nonce, partition in self.partitions
        always = lease.queue.records_leases
        if out and (moves or always) and not lease.queue.settings.ordered:
            lease.recorded = True
            record = record_of(state, lease)
            if not moves and record.unsent:
                record = msgspec.structs.replace(record, unsent=False)
            state.overlay.put(layout.lease(partition, lsn, lease.nonce), _encode(record))
        elif lease.recorded:
            lease.recorded = False
            state.overlay.delete(layout.lease(partition, lsn, lease.nonce))

    def tidy(self, state: EngineState) -> None:
        """Deletes groups of ended leases written more than `ENDED_US` ago."""
        groups = self._groups
        while groups and groups[0][0] < state.now - ENDED_US:
            _, partition, key = groups.popleft()
            if partition in state.led:
                state.overlay.delete(key)

    def load_ended(self, state: EngineState, partition: int) -> None:
        """Loads the ended leases of an adopted partition."""
        for key, data in state.overlay.scan(*layout.partition_range(layout.ENDED, partition)):
            self._groups.append((state.now, partition, key))
            for one in _decode_ended(data):
                acked, nacked = (int.from_bytes(bits, "little") for bits in (one.acked, one.nacked))
                state.leases.remember(
                    one.nonce,
                    EndedLease(
                        one.queue, Handle.key_of(partition, one.lsn), one.first, one.count,
                        acked, nacked, state.now,
                    ),
                )  # fmt: skip


def _ended_record(nonce: int, ended: EndedLease) -> EndedRecord:
    return EndedRecord(
        nonce, ended.queue_id, Handle.split_key(ended.key)[1], ended.first, ended.messages,
        message_set.to_bytes(ended.acked), message_set.to_bytes(ended.nacked),
    )  # fmt: skip


def load(state: EngineState, partition: int) -> dict[int, Found]:
    """Loads the stored leases of an adopted partition, by the batch's lsn. Records of unknown
    queues stay: the queue's catalogue record may arrive later (``catalogue.enter``)."""
    found: dict[int, Found] = {}
    for key, data in state.overlay.scan(*layout.partition_range(layout.LEASES, partition)):
        queue = state.by_id.get(layout.unpack_batch(key)[1])
        if queue is not None:
            for record in _decode_list(data):
                found.setdefault(record.lsn, []).append((queue, record))
    for record in _records(state, partition):
        queue = state.by_id.get(record.queue)
        known = state.by_created.get(created_of(record.queue))
        if queue is not None:
            found.setdefault(record.lsn, []).append((queue, record))
        elif known is not None and record.queue < known.id:  # the queue was purged later
            state.overlay.delete(layout.lease(partition, record.lsn, record.nonce))
    return found


def _records(state: EngineState, partition: int) -> Iterator[LeaseRecord]:
    for _, data in state.overlay.scan(*layout.partition_range(layout.LEASE, partition)):
        yield _decode(data)


def restore(state: EngineState, batch: TouchedBatch, records: Found) -> None:
    """Moves leased messages from a batch's parts into restored leases."""
    for queue, record in records:
        out, lent = 0, []
        wanted = int.from_bytes(record.mask, "little")
        for part in batch.parts.values():
            bits = message_set.of_range(part.first, part.count) & wanted
            if bits and part.queue == queue.id:
                out |= bits
                lent.append(part)
        if not lent:
            discard(state, Handle.partition(batch.handle), [(queue, record)])
            continue  # all messages of the lease are settled
        kind = lent[0]
        for part in lent:
            del batch.parts[part.first]
            for run in message_set.runs(message_set.of_range(part.first, part.count) & ~out):
                batch.parts[run[0]] = _part(part, *run)
        lease = Lease(
            record.nonce, queue, batch, _part(kind, record.first, record.count), record.lease_us
        )
        lease.mask = out
        lease.acked = int.from_bytes(record.acked, "little")
        lease.nacked = int.from_bytes(record.nacked, "little")
        lease.recorded = record.queue != 0
        lease.sent = not record.unsent
        if record.handed is not None:
            lease.handed = int.from_bytes(record.handed, "little")
        state.leases.add(lease, state.now + (record.left_us or record.lease_us))
        queue.leased += out.bit_count()
        if queue.groups is not None:
            queue.groups.lend(batch.head.group or "", batch.handle)
        queue.bytes += sum(batch.share(*run) for run in message_set.runs(out))


def discard(state: EngineState, partition: int, records: Found) -> None:
    """Deletes records of removed messages."""
    for _, record in records:
        if record.queue:
            state.overlay.delete(layout.lease(partition, record.lsn, record.nonce))


def discard_unknown(state: EngineState, partition: int) -> None:
    """Deletes the records of unknown queues. Call only when the catalogue is complete."""
    for record in _records(state, partition):
        if record.queue not in state.by_id:
            state.overlay.delete(layout.lease(partition, record.lsn, record.nonce))


def _part(kind: Part, first: int, count: int) -> Part:
    return Part(
        first, count, kind.queue, kind.deliveries, kind.due, kind.reason, kind.origin,
        crashes=kind.crashes, waits=kind.waits,
    )  # fmt: skip


def undelivered(state: EngineState, gone: set[int], unsent: Sequence[Answered]) -> list[wire.Nack]:
    """Nacks for the messages of lost partitions that no consumer has received: their answers were
    not sent, or they came back and the record of their lease is stale. Nothing is counted."""
    by_queue: dict[str, list[wire.Receipt]] = {}
    leases = state.leases.by_nonce
    for queue, receipt in state.lease_records.returned(state, gone):
        by_queue.setdefault(queue, []).append(receipt)
    for answered in unsent:
        if isinstance(answered.answer, wire.Popped):
            for lent in answered.answer.lent:
                lease = leases.get(lent.nonce)
                if lease is not None and lent.partition in gone:
                    receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce)
                    by_queue.setdefault(lease.queue.name, []).append(receipt)
    return [wire.Nack(queue, each, counted=False) for queue, each in by_queue.items()]
