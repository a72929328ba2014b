"""What the verbs work on: queues, touched batches, leases, and the changes of one round.

A *round* is what the driver does between two looks at the network: many requests, then one atomic
write of everything they changed, then all the answers. So persist-before-you-send is not a rule
that each verb must remember: verbs only put changes into the ``overlay`` and answers into
``answers``.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence, Set
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from weft.errors import Overloaded, QueueNotFound, StorageFull, StoreDamaged
from weft.persistence import layout
from weft.persistence.overlay import Overlay
from weft.persistence.store import Change, Reader
from weft.proto import wire

from . import handle, head, hold, in_order
from .batch import Batch
from .dedup import First, expiry_slice
from .ears import Ears, OpenEars
from .head import Head, Part
from .hold import AppKey, Holds
from .idqueue import WHOLE, Entry
from .lease import Leases
from .payloads import Payloads
from .queue import Queue, Waiter, created_of
from .timers import Timers

if TYPE_CHECKING:
    from .app import App
    from .ledger import Ledger, LedgerKey
    from .stage import FenceKey

#: Heads of batches pushed lately, so that a pop that follows closely reads nothing.
_RECENT_MAX: Final = 8192
#: Lsns that a partition sets aside with one write of its record: the pushes that take them write
#: nothing more. A node that takes the partition over goes on after all of them.
LSNS_AHEAD: Final = 1024


class Answered(NamedTuple):
    """An answer for one caller, to be sent once the round is on disk."""

    to: object
    answer: wire.AnyAnswer
    payload: Sequence[bytes] = ()
    #: The partitions it rests on: what was changed or read there must be committed first.
    rests_on: Set[int] = frozenset()
    #: It says what is not there, or changes nothing: only who still leads them may say it.
    sure: bool = False


class Pushed(NamedTuple):
    """A push that is remembered until its slice expires."""

    partition: int
    expires: int
    producer: int
    batch: int
    key: str | None = None
    messages: int = 0


class PartitionRecord(msgspec.Struct, array_like=True, frozen=True):
    """A partition's own state: no lsn after this was given out. (The first field is not used.)"""

    epoch: int
    lsn: int


class State:
    def __init__(
        self, store: Reader, partitions: int, cache_bytes: int, entropy: Callable[[], int]
    ) -> None:
        self.overlay = Overlay(store)
        self.partitions = partitions
        #: 63 random bits, for nonces.
        self.entropy = entropy
        self.now = 0
        self.last_stamp = 0
        self.full = False
        #: The partitions that this node leads: only what they hold is in memory.
        self.led: set[int] = set()
        self.lsns = [0] * partitions
        #: The last lsn of each partition that its record has set aside.
        self.lsns_aside = [0] * partitions
        self.queues: dict[str, Queue] = {}
        self.by_id: dict[int, Queue] = {}
        self.by_created: dict[int, Queue] = {}
        #: Queues that were purged or deleted, while what they held is swept away.
        self.dying: list[Queue] = []
        #: Batches of queues that this node does not know, by what it would have to know: either
        #: the queue is gone, or its record has not come yet.
        self.strays: dict[int, list[tuple[Batch, Part]]] = {}
        #: What was pushed lately to queues that this node does not know, by `created`.
        self.stray_pushes: dict[int, list[Pushed]] = {}
        self.touched: dict[int, Batch] = {}
        self.recent: OrderedDict[int, Head] = OrderedDict()
        self.payloads = Payloads(self._load_payload, cache_bytes)
        self.leases = Leases()
        self.holds = Holds()
        self.ledgers: dict[LedgerKey, Ledger] = {}
        self.apps: dict[AppKey, App] = {}
        #: The last batch of an app that was revealed on a partition.
        self.fences: dict[FenceKey, int] = {}
        #: Ledgers and apps with something to tell the partitions.
        self.owing: set[LedgerKey] = set()
        self.publishing: set[AppKey] = set()
        #: Queues (`created`) of subscriptions or apps that are gone, or not heard of yet.
        self.ownerless: set[int] = set()
        self.waiters: dict[int, Waiter] = {}
        self.waiting: dict[object, Waiter] = {}  # the same, by who waits
        self.waiter_timers = Timers()
        self.ears: Ears = OpenEars()
        #: Queues with something for who waits and is deaf, by ear, in the order of their turns.
        self.passed: dict[int, dict[str, None]] = {}
        self.delay_timers = Timers()  # by queue id
        #: Long work, done a step per round.
        self.jobs: deque[Generator[None]] = deque()
        # One round:
        self.answers: list[Answered] = []
        self.dirty: dict[int, Batch] = {}
        self.grown: set[int] = set()  # partitions that have given out all that was set aside
        self.stirred: dict[int, Queue] = {}  # queues that may have something for who waits
        self.risen: set[str] = set()  # queues that have something and nobody who waits for it here
        self.lent_in_order: set[Queue] = set()  # ordered queues whose leases have changed
        self.barriers: set[int] = set()  # partitions whose state was read and must still be ours

    # --- time, numbers --------------------------------------------------------------------

    def stamp(self) -> int:
        """A time in microseconds that no earlier stamp of this node had."""
        self.last_stamp = max(self.now, self.last_stamp + 1)
        return self.last_stamp

    @property
    def catalogue(self) -> int:
        """The partition that holds the queues' own records: the one after the last."""
        return self.partitions

    def share(self, most: int) -> int:
        """This node's part of a limit on a whole queue: as much as it leads of the partitions."""
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

    def queue(self, name: str) -> Queue:
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
        """As `head_of`, of a batch that stays as it is."""
        batch = self.touched.get(key)
        if batch is not None:
            return batch.stored()
        found = self.head_of(key)
        self.remember(key, found)
        return found

    def touch(self, batch_handle: int) -> Batch:
        """The batch behind a handle, from now on in memory."""
        key = handle.key(batch_handle)
        batch = self.touched.get(key)
        if batch is None:
            batch = self.touched[key] = Batch(batch_handle, self.head_of(key))
        return batch

    def part(self, entry: Entry) -> tuple[Batch, Part]:
        """What an entry stands for, removed from its batch."""
        batch = self.touch(entry.handle)
        return batch, batch.parts.pop(0 if entry.first == WHOLE else entry.first)

    def changed(self, batch: Batch) -> None:
        """Its head is written at the end of the round, or all of it deleted if nothing lives."""
        self.dirty[handle.key(batch.handle)] = batch

    def wait(self, queue: Queue, batch: Batch, part: Part) -> None:
        """Puts a part into a queue's lists: it is ready, or delayed; or into its hold."""
        batch.parts[part.first] = part
        if part.hold:
            hold.attach(self, queue, batch, part)
            return
        entry = Entry(batch.handle, part.first)
        queue.bytes += batch.share(part.first, part.count)
        if part.due > self.now:
            queue.delayed += part.count
            queue.ids.add_delayed(part.due, batch.head.priority, entry)
            self.delay(queue)
        else:
            queue.ready += part.count
            queue.ids.add_returned(batch.head.priority, entry)
            self.stirred[queue.id] = queue

    def delay(self, queue: Queue) -> None:
        """Sees to it that the queue is looked at when its next delayed part is due."""
        due = queue.ids.next_due()
        if due is not None:
            self.delay_timers.set(queue.id, due)

    def _write_batch(self, key: int, batch: Batch) -> None:
        partition, lsn = handle.split_key(key)
        if not batch.gone:
            self.overlay.put(layout.head(partition, lsn), head.encode(batch.stored()))
            if self.is_set_aside(batch):
                self.touched.pop(key, None)
            return
        self.touched.pop(key, None)
        self.payloads.drop(key)
        self.overlay.delete(layout.head(partition, lsn))
        self.overlay.delete(layout.body(partition, lsn))
        self._bury(partition, batch.head)

    def is_set_aside(self, batch: Batch) -> bool:
        """Whether all of it is held, so that nothing but its holds knows of it."""
        return not batch.leases and all(
            part.hold and part.queue in self.by_id for part in batch.parts.values()
        )

    def _bury(self, partition: int, dead: Head) -> None:
        """A batch that is gone is remembered until its dedup window has passed."""
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
        """Everything that changed in this round, to be written at once."""
        for key, batch in self.dirty.items():
            self._write_batch(key, batch)
        self.dirty.clear()
        for queue in self.lent_in_order:
            in_order.write(self, queue)
        self.lent_in_order.clear()
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
