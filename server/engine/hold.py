"""Holds: messages set aside, so no consumer pops them.

A subscription reserves messages, and a stage keeps unpublished messages. Both are a *hold*: a
number in one partition, taken from the partition's own lsn counter and so never used twice, and a
small record with the owner. A held part of a batch carries the number of its hold; the part is
otherwise unchanged and nothing moves on disk. Heads and records are partition state, so a hold is
as durable as a push, and moves with its partition.

A hold ends as a whole: its messages are acked, dropped, or returned to their place in the queue.
The decision is in exactly one record elsewhere (``ledger`` for reservations, ``publisher`` for
stages), and is final before any partition carries out the decision. So a hold made by mistake,
twice, or too late is in no such record, and a query to the record's home partition reveals the
stray hold.

In memory a hold lists its batches by handle, each with the bits of its messages. Memory has no
other trace of batches held completely.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

from weft.persistence import layout

from . import message_set
from .batch import TouchedBatch, set_aside
from .head import Part
from .message_id_queue import Handle
from .queue import QueueState, created_of

if TYPE_CHECKING:
    from .state import EngineState

#: Batches of a hold returned or removed per round.
STEP: Final = 500

#: (created of the queue, app).
AppKey = tuple[int, str]


class HoldRecord(msgspec.Struct, array_like=True, frozen=True):
    """The stored form of a hold."""

    #: The id of the messages' queue.
    queue: int
    #: The subscription, or the app.
    owner: str
    #: The reservation's number, or the app's batch.
    number: int
    token: int
    staged: bool
    #: When the hold was made.
    stamp: int
    #: Of a stage: the part of the batch, and the attempt at the part.
    part: int = 0
    attempt: int = 0


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(HoldRecord).decode


class Hold:
    __slots__ = (
        "asked", "bytes", "ending", "ends", "id", "messages", "names", "order", "partition",
        "pieces", "record",
    )  # fmt: skip

    def __init__(self, partition: int, number: int, record: HoldRecord) -> None:
        self.partition = partition
        self.id = number
        self.record = record
        self.pieces: dict[int, int] = {}  # handle -> the bits of its messages
        self.messages = self.bytes = 0
        #: The hold is being acked, dropped or returned.
        self.ending = False
        #: When the home partition was last queried about the hold.
        self.asked = record.stamp
        #: (producer, batch) of each staged push, to detect duplicates.
        self.names: set[tuple[int, int]] = set()
        self.order: list[int] | None = None  # handles, oldest first; built on read
        self.ends: list[int] = []

    @property
    def key(self) -> int:
        return Handle.key_of(self.partition, self.id)

    @property
    def app(self) -> AppKey:
        return created_of(self.record.queue), self.record.owner

    @property
    def stamp(self) -> int:
        """When the last message entered the hold."""
        return max(self.record.stamp, Handle.stamp(max(self.pieces)) if self.pieces else 0)

    def places(self, start: int) -> Iterator[tuple[int, int]]:
        """(handle, number of messages to skip), oldest first, from the `start`-th message on."""
        if self.order is None:
            self.order = sorted(self.pieces)
            self.ends = list(accumulate(self.pieces[h].bit_count() for h in self.order))
        place = bisect_right(self.ends, start)
        skip = start - (self.ends[place - 1] if place else 0)
        for batch_handle in self.order[place:]:
            yield batch_handle, skip
            skip = 0


class Holds:
    """All holds of the partitions led by this node."""

    def __init__(self) -> None:
        self.by_key: dict[int, Hold] = {}
        self.stages: dict[AppKey, dict[tuple[int, int], Hold]] = {}  # (partition, token)
        #: Reservations not known to be sealed: possibly of no valid attempt.
        self.unsure: dict[int, Hold] = {}

    def add(self, hold: Hold) -> None:
        self.by_key[hold.key] = hold
        if hold.record.staged:
            place = hold.partition, hold.record.token
            self.stages.setdefault(hold.app, {})[place] = hold
        else:
            self.unsure[hold.key] = hold

    def remove(self, hold: Hold) -> None:
        del self.by_key[hold.key]
        self.unsure.pop(hold.key, None)
        stages = self.stages.get(hold.app)
        if hold.record.staged and stages is not None:
            place = hold.partition, hold.record.token
            if stages.get(place) is hold:
                del stages[place]
            if not stages:
                del self.stages[hold.app]

    def of_app(self, key: AppKey) -> list[Hold]:
        return list(self.stages.get(key, {}).values())


def make(state: EngineState, partition: int, record: HoldRecord) -> Hold:
    """Makes a new, empty hold."""
    number = state.next_lsn(partition)
    state.overlay.put(layout.hold(partition, number), encode(record))
    hold = Hold(partition, number, record)
    state.holds.add(hold)
    return hold


def load(state: EngineState, partition: int) -> None:
    """Loads the holds of an adopted partition; the heads add the messages later."""
    for key, data in state.overlay.scan(*layout.partition_range(layout.HOLD, partition)):
        _, number = layout.unpack_batch(key)
        state.holds.add(Hold(partition, number, decode(data)))


def attach(state: EngineState, queue: QueueState, batch: TouchedBatch, part: Part) -> None:
    """Adds a held part, as listed in a stored head, to its hold."""
    hold = state.holds.by_key[Handle.key_of(Handle.partition(batch.handle), part.hold)]
    size = batch.share(part.first, part.count)
    keep(queue, hold, batch.handle, message_set.of_range(part.first, part.count), size)
    if hold.record.staged:
        hold.names.add((batch.head.producer, batch.head.batch))


def keep(queue: QueueState, hold: Hold, batch_handle: int, bits: int, size: int) -> None:
    """Adds messages of a batch to the hold."""
    hold.pieces[batch_handle] = hold.pieces.get(batch_handle, 0) | bits
    hold.order = None
    hold.messages += bits.bit_count()
    hold.bytes += size
    _count(queue, hold, bits.bit_count(), size)


def _count(queue: QueueState, hold: Hold, messages: int, size: int) -> None:
    queue.bytes += size
    queue.held_bytes += size
    if hold.record.staged:
        queue.staged += messages
    else:
        queue.reserved += messages


def empty(queue: QueueState, hold: Hold) -> None:
    """Removes all messages from the hold."""
    _count(queue, hold, -hold.messages, -hold.bytes)
    hold.pieces.clear()
    hold.messages = hold.bytes = 0


def dissolve(state: EngineState, hold: Hold) -> None:
    """Deletes an empty hold."""
    state.overlay.delete(layout.hold(hold.partition, hold.id))
    state.holds.remove(hold)


def end(
    state: EngineState, holds: list[Hold], *, put_back: bool, purged: bool = False
) -> Generator[None]:
    """Ends holds, `STEP` batches per round: returns the messages to the queue, or removes them.

    `purged`: a purge or a delete of the queue removes the messages; record them as purged.
    """
    number = 0
    for hold in holds:
        hold.ending = True
    for hold in holds:
        while hold.pieces and state.holds.by_key.get(hold.key) is hold:
            batch_handle, bits = hold.pieces.popitem()
            if purged:
                state.touch(batch_handle).purged |= bits
            _end_piece(state, hold, batch_handle, bits, put_back=put_back)
            number += 1
            if number % STEP == 0:
                yield
        if state.holds.by_key.get(hold.key) is hold:
            dissolve(state, hold)


def _end_piece(
    state: EngineState, hold: Hold, batch_handle: int, bits: int, *, put_back: bool
) -> None:
    batch = state.touch(batch_handle)
    queue = state.by_id.get(hold.record.queue)
    size = sum(batch.share(*run) for run in message_set.runs(bits))
    hold.messages -= bits.bit_count()
    hold.bytes -= size
    if queue is not None:
        _count(queue, hold, -bits.bit_count(), -size)
    for part in [part for part in batch.parts.values() if part.hold == hold.id]:
        del batch.parts[part.first]
        if put_back and queue is not None:
            state.wait(queue, batch, set_aside(part, 0))
    state.changed(batch)


def forget(state: EngineState, partitions: set[int]) -> None:
    """Discards the holds of partitions no longer led by this node."""
    for hold in [each for each in state.holds.by_key.values() if each.partition in partitions]:
        queue = state.by_id.get(hold.record.queue)
        if queue is not None:
            _count(queue, hold, -hold.messages, -hold.bytes)
        state.holds.remove(hold)
