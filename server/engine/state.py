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

from weft.errors import Overloaded, QueueNotFound, StorageFull, StoreDamaged, TopicNotFound
from weft.persistence import layout
from weft.persistence.overlay import Overlay
from weft.persistence.store import Change, StoreReader
from weft.proto import wire

from . import head, hold, ordered_leases, parent_counts
from .backpressure import Backpressure, NoBackpressure
from .batch import TouchedBatch, write_touched
from .channels import Channels
from .dedup import DedupEntry
from .head import Head, Part
from .hold import AppKey, Holds
from .lease import Leases
from .lease_records import LeaseRecords
from .message_id_queue import WHOLE, Handle, IdEntry
from .parent_counts import WaitingBatches
from .partition_clock import PartitionClocks
from .proposal import Proposals
from .queue import QueueState, Waiter
from .queue_limits import ClusterPart
from .table_state import TableState
from .timers import Timers

if TYPE_CHECKING:
    from .ledger import LedgerKey, SubscriptionLedger
    from .publisher import Publisher
    from .stage import FenceKey
    from .topic import TopicState

#: Cached heads of recent pushes: a pop soon after the push reads nothing from the store.
_RECENT_MAX: Final = 8192
#: Lsns reserved by one write of the partition's record; pushes using a reserved lsn do not write
#: the record. A new primary of the partition continues after the last reserved lsn.
LSNS_AHEAD: Final = 1024
#: Lsns passed over when disks were lost since the partition's record was written: the partition may
#: continue from an older copy, and an lsn of the lost ones must not be assigned again. Else the
#: partitions that have taken its deliveries would take new ones for those (``outbox``).
LSNS_LOST: Final = 1 << 34
#: Batches cached as columns: one per consumer popping a batch in small parts.
_COLUMNS_MAX: Final = 16
#: Makes a named tuple without the call of its own constructor.
_new: Final = tuple.__new__


class Answered(NamedTuple):
    """An answer for one caller, to be sent once the round is on disk."""

    to: object
    answer: wire.AnyAnswer
    payload: Sequence[bytes] = ()
    #: The partitions changed or read for the answer; their entries must be committed first.
    rests_on: Set[int] = frozenset()
    #: The answer reports an absence, or changes nothing: valid only from the current primary.
    sure: bool = False


class PartitionRecord(msgspec.Struct, array_like=True, frozen=True):
    """A partition's own state: no lsn above `lsn` was assigned."""

    #: One more than the disks that the cluster had lost for good (``dht.data_loss_recovery``).
    losses: int
    lsn: int
    #: No timestamp or sequence number of a multicast was above this one (``partition_clock``).
    clock: int = 0


class Payloads:
    """Payload cache: a consumer with no lag causes no disk read. Beyond `bytes_max` the oldest
    payloads are evicted, and read from the store when a pop needs them. A pop of a whole batch gets
    the stored bytes. The first pop of a part decodes the batch into columns, and the cache keeps
    the columns while consumers pop the rest of the batch."""

    def __init__(self, load: Callable[[int], bytes], bytes_max: int) -> None:
        self._load = load
        self._bytes_max = bytes_max
        self._bytes = 0
        self._whole: OrderedDict[int, bytes] = OrderedDict()
        self._columns: OrderedDict[int, wire.Payload] = OrderedDict()

    def add(self, key: int, payload: bytes) -> None:
        self._whole[key] = payload
        self._bytes += len(payload)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._whole.popitem(last=False)[1])

    def drop(self, key: int) -> None:
        payload = self._whole.pop(key, None)
        if payload is not None:
            self._bytes -= len(payload)
        self._columns.pop(key, None)

    def drop_partitions(self, partitions: set[int]) -> None:
        """Drops all batches of some partitions."""
        for key in [key for key in self._whole if Handle.split_key(key)[0] in partitions]:
            self._bytes -= len(self._whole.pop(key))
        for key in [key for key in self._columns if Handle.split_key(key)[0] in partitions]:
            del self._columns[key]

    def whole(self, key: int) -> bytes:
        payload = self._whole.get(key)
        return self._load(key) if payload is None else payload

    def part(self, key: int, first: int, count: int) -> bytes:
        """The encoded payload of a range of a batch."""
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = wire.decode_payload(self.whole(key))
            if len(self._columns) > _COLUMNS_MAX:
                self._columns.popitem(last=False)
        stop = first + count
        return wire.encode(
            wire.Payload(
                columns.bodies[first:stop],
                columns.headers and columns.headers[first:stop],
                columns.keys and columns.keys[first:stop],
            )
        )


class EngineState:
    def __init__(
        self, store: StoreReader, partitions: int, cache_bytes: int, entropy: Callable[[], int]
    ) -> None:
        self.overlay = Overlay(store)
        self.partitions = partitions
        self.entropy = entropy  # 63 random bits, for nonces
        self.now = 0
        self.last_stamp = 0
        self.full = False
        #: The partitions led by this node; memory holds only their contents.
        self.led: set[int] = set()
        self.lsns = [0] * partitions
        self.lsns_aside = [0] * partitions  # the last lsn reserved by each partition's record
        #: The disks lost for good, as known at the last adoption.
        self.losses = 0
        self.clocks = PartitionClocks(partitions)
        self.queues: dict[str, QueueState] = {}
        self.cluster_part = ClusterPart(self)
        self.by_id: dict[int, QueueState] = {}
        self.stochastic: dict[str, QueueState] = {}  # among `queues`; always the same object
        self.by_created: dict[int, QueueState] = {}
        self.topics: dict[str, TopicState] = {}
        #: Features of the cluster that every member knows, by name.
        self.features: set[str] = set()
        #: Purged or deleted queues whose messages a sweep job is still removing.
        self.dying: list[QueueState] = []
        #: The messages of task graphs that no pop gets yet.
        self.waiting_batches = WaitingBatches()
        self.removing = 0  # running jobs which remove batches found dead by recovery
        #: Batches of unknown queues, by id: deleted, or the queue's record has not arrived yet.
        self.orphans: dict[int, list[tuple[TouchedBatch, Part]]] = {}
        #: Dedup entries of queues unknown to this node, by `created`.
        self.stray_pushes: dict[int, list[DedupEntry]] = {}
        self.touched: dict[int, TouchedBatch] = {}
        self.recent: OrderedDict[int, Head] = OrderedDict()
        self.payloads = Payloads(self._load_payload, cache_bytes)
        self.table = TableState(partitions)
        self.leases = Leases()
        self.lease_records = LeaseRecords()
        self.holds = Holds()
        self.proposals = Proposals()
        self.ledgers: dict[LedgerKey, SubscriptionLedger] = {}
        self.apps: dict[AppKey, Publisher] = {}
        #: The last batch of an app revealed on a partition.
        self.fences: dict[FenceKey, int] = {}
        #: Ledgers and apps with decisions not yet carried out on all partitions.
        self.owing: set[LedgerKey] = set()
        self.publishing: set[AppKey] = set()
        self.channels = Channels()
        #: Unknown queues (`created`) of subscriptions or apps: deleted, or not received yet.
        self.ownerless: set[int] = set()
        self.waiters: dict[int, Waiter] = {}
        self.waiting: dict[object, Waiter] = {}  # the same, by caller
        self.waiter_timers = Timers()
        self.rooms: dict[int, QueueState] = {}  # with producers that wait for room, or kept room
        self.backpressure: Backpressure = NoBackpressure()
        #: Queues with ready messages for pops deferred by backpressure, by connection, in order.
        self.deferred: dict[int, dict[str, None]] = {}
        self.delay_timers = Timers()  # by queue id
        #: Long-running jobs; the engine runs one step of each per round.
        self.jobs: deque[Generator[None]] = deque()
        self.expiring: set[int] = set()  # queues (`created`) with `expire_idle_ms`
        self._begin_round()

    def _begin_round(self) -> None:
        """The state of one round."""
        self.answers: list[Answered] = []
        self.dirty: dict[int, TouchedBatch] = {}
        self.grown: set[int] = set()  # partitions with no reserved lsns, or clock, left
        self.ready_queues: dict[int, QueueState] = {}  # may have messages for waiting pops
        self.became_ready: set[str] = set()  # have messages left after these pops were served
        self.lent_in_order: set[QueueState] = set()  # ordered queues with changed leases
        self.barriers: set[int] = set()  # partitions read; this node must still lead them

    # --- time, numbers --------------------------------------------------------------------

    def stamp(self) -> int:
        """A unique time in microseconds, greater than every earlier stamp of this node."""
        last = self.last_stamp + 1
        self.last_stamp = last = last if last > self.now else self.now
        return last

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
        place = layout.body(*Handle.split_key(key))
        data = self.overlay.read_bytes(place)
        if data is None:
            raise StoreDamaged(f"{self.overlay.path} has lost the payload under key {place.hex()}")
        return data

    # --- queues ---------------------------------------------------------------------------

    def queue(self, name: str) -> QueueState:
        found = self.queues.get(name)
        if found is None and name in self.topics:
            raise QueueNotFound(
                f"{name} is a topic, not a queue: push to it with `weft topic push {name}`, or "
                f"client.topic({name!r}).push in Python; messages come from its queues"
            )
        if found is None:
            raise QueueNotFound(
                f"the queue {name[:100]!r} does not exist: create it first (weft queue create)"
            )
        return found

    def topic(self, name: str) -> TopicState:
        if name not in self.topics:
            raise TopicNotFound(f"the topic {name[:100]!r} does not exist (weft topic create)")
        return self.topics[name]

    # --- batches --------------------------------------------------------------------------

    def remember(self, key: int, batch_head: Head) -> None:
        self.recent[key] = batch_head
        if len(self.recent) > _RECENT_MAX:
            self.recent.popitem(last=False)

    def head_of(self, key: int) -> Head:
        found = self.recent.pop(key, None)
        if found is not None:
            return found
        return head.decode(self._read_head(key))

    def _read_head(self, key: int) -> bytes | memoryview:
        place = layout.head(*Handle.split_key(key))
        data = self.overlay.read(place)
        if data is None:
            raise StoreDamaged(f"{self.overlay.path} has lost the head under key {place.hex()}")
        return data

    def peek_head(self, key: int) -> Head:
        """Like `head_of`, but for reading only: the head stays cached."""
        batch = self.touched.get(key)
        if batch is not None:
            return batch.stored()
        found = self.head_of(key)
        self.remember(key, found)
        return found

    def touch(self, batch_handle: int) -> TouchedBatch:
        """The batch of a handle, loaded into memory."""
        key = Handle.key(batch_handle)
        batch = self.touched.get(key)
        if batch is None:
            batch = self.touched[key] = TouchedBatch(batch_handle, self.head_of(key))
        return batch

    def part(self, entry: IdEntry) -> tuple[TouchedBatch, Part]:
        """The batch and the part of an entry; removes the part from the batch."""
        batch = self.touch(entry.handle)
        return batch, batch.parts.pop(0 if entry.first == WHOLE else entry.first)

    def describe(self, entry: IdEntry) -> tuple[str, int]:
        """The group or the tenant, and the number of messages, of an entry."""
        key = Handle.key(entry.handle)
        if (batch := self.touched.get(key)) is not None:
            return batch.head.label, batch.parts[max(0, entry.first)].count
        found = self.recent.get(key) or head.decode(self._read_head(key))
        return found.label, found.bodies

    def changed(self, batch: TouchedBatch) -> None:
        """Marks a batch dirty: `take_writes` writes the head, or deletes an empty batch."""
        self.dirty[batch.key] = batch

    def wait(self, queue: QueueState, batch: TouchedBatch, part: Part) -> None:
        """Lists a part in the queue as ready or delayed, or adds a held part to its hold."""
        batch.parts[part.first] = part
        if part.hold:
            hold.attach(self, queue, batch, part)
            return
        if part.waits > 0:
            parent_counts.attach(self, queue, batch, part)
            return
        entry = IdEntry(batch.handle, part.first)
        if batch.head.tenant is not None:
            queue.see_tenant(self.describe)
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
        """Sets the queue's timer: its next delayed part is due, or its limits admit more."""
        due = queue.ids.next_due()
        if queue.limits is not None:
            due = min(filter(None, (due, queue.limits.next_us(queue))), default=None)
        if due is not None:
            self.delay_timers.set(queue.id, due)

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
        self.answers.append(_new(Answered, (to, answer, payload, rests_on, sure)))

    def take_writes(self) -> list[Change]:
        """All changes of this round, to be written atomically."""
        for key, batch in self.dirty.items():
            write_touched(self, key, batch)
        self.dirty.clear()
        for queue in self.lent_in_order:
            ordered_leases.write(self, queue)
        self.lent_in_order.clear()
        records = self.lease_records
        if records.changed or records.ended or records.backlog:
            records.write(self)
        if self.grown:
            self._set_lsns_aside()
        return self.overlay.take()

    def _set_lsns_aside(self) -> None:
        for partition in self.grown:
            last = self.lsns_aside[partition] = self.lsns[partition] + LSNS_AHEAD - 1
            # Zero without a multicast to several partitions: most partitions have no clock.
            clock = self.clocks.reserve(partition) if self.clocks.values[partition] else 0
            record = PartitionRecord(1 + self.losses, last, clock)
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
            raise Overloaded(
                f"this node has the maximum of {most} leases: ack messages, or pop fewer at once"
            )
