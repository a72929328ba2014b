"""Engine state shared by all verbs: queues, touched batches, leases, and one round's changes.

A *round* is the driver's work between two polls of the network: many requests, then one atomic
write of all changes, then all answers. So no verb has to enforce persist-before-you-send: verbs
only put changes into the ``overlay`` and answers into ``answers``.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence, Set
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from weft.errors import Overloaded, QueueNotFound, StorageFull, StoreDamaged
from weft.persistence import layout
from weft.persistence.overlay import Overlay
from weft.persistence.store import Change, StoreReader
from weft.proto import wire

from . import handle, head, hold, ordered_leases, purged
from .backpressure import Backpressure, NoBackpressure
from .batch import TouchedBatch
from .dedup import First, expiry_slice
from .head import Head, Part
from .hold import AppKey, Holds
from .lease import Leases
from .lease_records import LeaseRecords
from .message_id_queue import WHOLE, IdEntry
from .payloads import Payloads
from .queue import QueueState, Waiter, created_of
from .timers import Timers

if TYPE_CHECKING:
    from .ledger import LedgerKey, SubscriptionLedger
    from .publisher import Publisher
    from .stage import FenceKey

#: Cached heads of recent pushes: a pop soon after the push reads nothing from the store.
_RECENT_MAX: Final = 8192
#: Lsns reserved by one write of the partition's record; pushes using a reserved lsn do not write
#: the record. A new primary of the partition continues after the last reserved lsn.
LSNS_AHEAD: Final = 1024


class Answered(NamedTuple):
    """An answer for one caller, to be sent once the round is on disk."""

    to: object
    answer: wire.AnyAnswer
    payload: Sequence[bytes] = ()
    #: The partitions changed or read for the answer; their entries must be committed first.
    rests_on: Set[int] = frozenset()
    #: The answer reports an absence, or changes nothing: valid only from the current primary.
    sure: bool = False


class DedupEntry(NamedTuple):
    """A push in the dedup window, until its time slice expires."""

    partition: int
    expires: int
    producer: int
    batch: int
    key: str | None = None
    messages: int = 0


class PartitionRecord(msgspec.Struct, array_like=True, frozen=True):
    """A partition's own state: no lsn above `lsn` was assigned. (`epoch` is unused.)"""

    epoch: int
    lsn: int


class EngineState:
    def __init__(
        self, store: StoreReader, partitions: int, cache_bytes: int, entropy: Callable[[], int]
    ) -> None:
        self.overlay = Overlay(store)
        self.partitions = partitions
        #: 63 random bits, for nonces.
        self.entropy = entropy
        self.now = 0
        self.last_stamp = 0
        self.full = False
        #: The partitions led by this node; memory holds only their contents.
        self.led: set[int] = set()
        self.lsns = [0] * partitions
        #: The last lsn reserved by each partition's record.
        self.lsns_aside = [0] * partitions
        self.queues: dict[str, QueueState] = {}
        self.by_id: dict[int, QueueState] = {}
        self.by_created: dict[int, QueueState] = {}
        #: Purged or deleted queues whose messages a sweep job is still removing.
        self.dying: list[QueueState] = []
        #: Number of running jobs which remove batches found dead by recovery.
        self.removing = 0
        #: Batches of unknown queues, by queue id: either the queue is deleted, or the queue's
        #: record has not arrived yet.
        self.orphans: dict[int, list[tuple[TouchedBatch, Part]]] = {}
        #: Dedup entries of queues unknown to this node, by `created`.
        self.stray_pushes: dict[int, list[DedupEntry]] = {}
        self.touched: dict[int, TouchedBatch] = {}
        self.recent: OrderedDict[int, Head] = OrderedDict()
        self.payloads = Payloads(self._load_payload, cache_bytes)
        self.leases = Leases()
        self.lease_records = LeaseRecords()
        self.holds = Holds()
        self.ledgers: dict[LedgerKey, SubscriptionLedger] = {}
        self.apps: dict[AppKey, Publisher] = {}
        #: The last batch of an app revealed on a partition.
        self.fences: dict[FenceKey, int] = {}
        #: Ledgers and apps with decisions not yet carried out on all partitions.
        self.owing: set[LedgerKey] = set()
        self.publishing: set[AppKey] = set()
        #: Unknown queues (`created`) of subscriptions or apps: deleted, or not received yet.
        self.ownerless: set[int] = set()
        self.waiters: dict[int, Waiter] = {}
        self.waiting: dict[object, Waiter] = {}  # the same, by caller
        self.waiter_timers = Timers()
        self.backpressure: Backpressure = NoBackpressure()
        #: Queues with ready messages for pops deferred by backpressure, by connection, in order.
        self.deferred: dict[int, dict[str, None]] = {}
        self.delay_timers = Timers()  # by queue id
        #: Long-running jobs; the engine runs one step of each per round.
        self.jobs: deque[Generator[None]] = deque()
        # State of one round:
        self.answers: list[Answered] = []
        self.dirty: dict[int, TouchedBatch] = {}
        self.grown: set[int] = set()  # partitions with no reserved lsns left
        #: Queues which may have messages for waiting pops.
        self.ready_queues: dict[int, QueueState] = {}
        #: Queues with ready messages left after the waiting pops of this node were served.
        self.became_ready: set[str] = set()
        self.lent_in_order: set[QueueState] = set()  # ordered queues with changed leases
        self.barriers: set[int] = set()  # partitions read; this node must still lead them

    # --- time, numbers --------------------------------------------------------------------

    def stamp(self) -> int:
        """A unique time in microseconds, greater than every earlier stamp of this node."""
        self.last_stamp = max(self.now, self.last_stamp + 1)
        return self.last_stamp

    @property
    def catalogue(self) -> int:
        """The partition of the queue records, numbered after the last data partition."""
        return self.partitions

    def share(self, most: int) -> int:
        """This node's share of a queue-wide limit, in proportion to the partitions led."""
        led = len(self.led) - (self.catalogue in self.led)
        return -(-most * led // self.partitions)

    def next_lsn(self, partition: int) -> int:
        lsn = self.lsns[partition] = self.lsns[partition] + 1
        if lsn > self.lsns_aside[partition]:
            self.grown.add(partition)
        return lsn

    # --- the store ------------------------------------------------------------------------

    def _load_payload(self, key: int) -> bytes:
        place = layout.body(*handle.split_key(key))
        data = self.overlay.read_bytes(place)
        if data is None:
            raise StoreDamaged(f"{self.overlay.path} has lost the payload under key {place.hex()}")
        return data

    # --- queues ---------------------------------------------------------------------------

    def queue(self, name: str) -> QueueState:
        found = self.queues.get(name)
        if found is None:
            raise QueueNotFound(
                f"there is no queue {name[:100]!r}: create it first (weft queue create)"
            )
        return found

    # --- batches --------------------------------------------------------------------------

    def remember(self, key: int, batch_head: Head) -> None:
        self.recent[key] = batch_head
        if len(self.recent) > _RECENT_MAX:
            self.recent.popitem(last=False)

    def head_of(self, key: int) -> Head:
        found = self.recent.pop(key, None)
        if found is not None:
            return found
        place = layout.head(*handle.split_key(key))
        data = self.overlay.read(place)
        if data is None:
            raise StoreDamaged(f"{self.overlay.path} has lost the head under key {place.hex()}")
        return head.decode(data)

    def look(self, key: int) -> Head:
        """Like `head_of`, but for reading only: the head stays cached."""
        batch = self.touched.get(key)
        if batch is not None:
            return batch.stored()
        found = self.head_of(key)
        self.remember(key, found)
        return found

    def touch(self, batch_handle: int) -> TouchedBatch:
        """The batch of a handle, loaded into memory."""
        key = handle.key(batch_handle)
        batch = self.touched.get(key)
        if batch is None:
            batch = self.touched[key] = TouchedBatch(batch_handle, self.head_of(key))
        return batch

    def part(self, entry: IdEntry) -> tuple[TouchedBatch, Part]:
        """The batch and the part of an entry; removes the part from the batch."""
        batch = self.touch(entry.handle)
        return batch, batch.parts.pop(0 if entry.first == WHOLE else entry.first)

    def changed(self, batch: TouchedBatch) -> None:
        """Marks a batch dirty: `take_writes` writes the head, or deletes an empty batch."""
        self.dirty[handle.key(batch.handle)] = batch

    def wait(self, queue: QueueState, batch: TouchedBatch, part: Part) -> None:
        """Lists a part in the queue as ready or delayed, or adds a held part to its hold."""
        batch.parts[part.first] = part
        if part.hold:
            hold.attach(self, queue, batch, part)
            return
        entry = IdEntry(batch.handle, part.first)
        queue.bytes += batch.share(part.first, part.count)
        if part.due > self.now:
            queue.delayed += part.count
            queue.ids.add_delayed(part.due, batch.head.priority, entry)
            self.delay(queue)
        else:
            queue.ready += part.count
            queue.ids.add_returned(batch.head.priority, entry)
            self.ready_queues[queue.id] = queue

    def delay(self, queue: QueueState) -> None:
        """Sets the queue's timer to the due time of its next delayed part."""
        due = queue.ids.next_due()
        if due is not None:
            self.delay_timers.set(queue.id, due)

    def _write_batch(self, key: int, batch: TouchedBatch) -> None:
        partition, lsn = handle.split_key(key)
        if batch.purged:
            name = batch.head.producer, batch.head.batch
            purged.write(self.overlay, self.now, partition, *name, batch.purged)
            batch.purged = 0
        if not batch.gone:
            self.overlay.put(layout.head(partition, lsn), head.encode(batch.stored()))
            if self.is_set_aside(batch):
                self.touched.pop(key, None)
            return
        self.touched.pop(key, None)
        self.payloads.drop(key)
        self.overlay.delete(layout.head(partition, lsn))
        self.overlay.delete(layout.body(partition, lsn))
        self._write_dedup_record(partition, batch.head)

    def is_set_aside(self, batch: TouchedBatch) -> bool:
        """True if holds have all messages of the batch, so only the holds refer to the batch."""
        return not batch.leases and all(
            part.hold and part.queue in self.by_id for part in batch.parts.values()
        )

    def _write_dedup_record(self, partition: int, dead: Head) -> None:
        """Records a removed batch until its dedup window ends."""
        created = created_of(dead.queue)
        queue = self.by_created.get(created)
        window_ms = queue.settings.dedup_window_ms if queue is not None else 0
        if not window_ms:
            return
        expires = expiry_slice(dead.stamp, window_ms)
        if expires < expiry_slice(self.now, 0):
            return
        self.overlay.put(layout.dedup(partition, expires, created, dead.producer, dead.batch), b"")
        if dead.dedup_key is not None:
            first = First(dead.producer, dead.batch, dead.count)
            self.overlay.put(
                layout.dedup_key(partition, expires, created, dead.dedup_key),
                msgspec.msgpack.encode(first),
            )

    # --- the round ------------------------------------------------------------------------

    def answer(
        self,
        to: object,
        answer: wire.AnyAnswer,
        payload: Sequence[bytes] = (),
        rests_on: Set[int] = frozenset(),
        *,
        sure: bool = False,
    ) -> None:
        self.answers.append(Answered(to, answer, payload, rests_on, sure))

    def take_writes(self) -> list[Change]:
        """All changes of this round, to be written atomically."""
        for key, batch in self.dirty.items():
            self._write_batch(key, batch)
        self.dirty.clear()
        for queue in self.lent_in_order:
            ordered_leases.write(self, queue)
        self.lent_in_order.clear()
        if self.lease_records.dirty:
            self.lease_records.write(self)
        if self.grown:
            self._set_lsns_aside()
        return self.overlay.take()

    def _set_lsns_aside(self) -> None:
        for partition in self.grown:
            last = self.lsns_aside[partition] = self.lsns[partition] + LSNS_AHEAD - 1
            record = PartitionRecord(1, last)
            self.overlay.put(layout.partition(partition), msgspec.msgpack.encode(record))
        self.grown.clear()

    def take_answers(self) -> list[Answered]:
        answers, self.answers = self.answers, []
        return answers

    def check_space(self) -> None:
        if self.full:
            raise StorageFull(
                "the node's disk is at its free-space reserve: ack or purge something, or add disk"
            )

    def check_leases(self) -> None:
        most = self.leases.most
        if len(self.leases.by_nonce) >= most:
            raise Overloaded(f"{most} leases are out on this node: ack some, or pop less at once")
