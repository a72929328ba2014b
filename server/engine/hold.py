"""Holds: messages that are set aside, so that nobody pops them.

A subscription reserves messages, and a stage keeps messages that are not published yet. Both are a
*hold*: a number in one partition, given out by that partition's own counter of lsns and so never
used twice, and a small record that says whose it is. A held part of a batch carries the number of
its hold; nothing else of it changes and nothing moves on disk. Heads and records are a partition's
state, so a hold is as durable as a push, and goes wherever its partition goes.

A hold ends as a whole: its messages are acked, dropped, or put back where they stood. What decides
about it stands elsewhere (``ledger`` for reservations, ``app`` for stages), in exactly one record,
and is decided for good before a partition is told. So a hold that was made by mistake, twice, or
too late is in nobody's record, and is found out by asking there.

In memory a hold knows its batches by handle, each with the bits of its messages; batches of which
all is held are not kept in memory otherwise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

from weft.persistence import layout

from . import handle, mask
from .batch import Batch, set_aside
from .head import Part
from .queue import Queue, created_of

if TYPE_CHECKING:
    from .state import State

#: Batches of a hold that are put back or removed in one round.
STEP: Final = 500

#: (created of the queue, app).
AppKey = tuple[int, str]


class HoldRecord(msgspec.Struct, array_like=True, frozen=True):
    """A hold as it is stored."""

    #: The id of the queue whose messages they are.
    queue: int
    #: The subscription, or the app.
    owner: str
    #: The reservation's number, or the app's batch.
    number: int
    token: int
    staged: bool
    #: When it was made.
    stamp: int
    #: Of a stage: the part of the batch, and which attempt at it.
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
        #: It is being acked, dropped or put back.
        self.ending = False
        #: When its home was last asked about it.
        self.asked = record.stamp
        #: (producer, batch) of what was staged, for pushes that come twice.
        self.names: set[tuple[int, int]] = set()
        self.order: list[int] | None = None  # handles, oldest first, when somebody reads
        self.ends: list[int] = []

    @property
    def key(self) -> int:
        return handle.key_of(self.partition, self.id)

    @property
    def app(self) -> AppKey:
        return created_of(self.record.queue), self.record.owner

    @property
    def stamp(self) -> int:
        """When the last message came into it."""
        return max(self.record.stamp, handle.stamp(max(self.pieces)) if self.pieces else 0)

    def places(self, start: int) -> Iterator[tuple[int, int]]:
        """(handle, messages of it to pass over), oldest first, from the `start`-th message on."""
        if self.order is None:
            self.order = sorted(self.pieces)
            self.ends = list(accumulate(self.pieces[h].bit_count() for h in self.order))
        place = bisect_right(self.ends, start)
        skip = start - (self.ends[place - 1] if place else 0)
        for batch_handle in self.order[place:]:
            yield batch_handle, skip
            skip = 0


class Holds:
    """All holds of the partitions that this node leads."""

    def __init__(self) -> None:
        self.by_key: dict[int, Hold] = {}
        self.stages: dict[AppKey, dict[tuple[int, int], Hold]] = {}  # (partition, token)
        #: Reservations that may be nobody's: those that are not known to be sealed.
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


def make(state: State, partition: int, record: HoldRecord) -> Hold:
    """A new one, empty."""
    number = state.next_lsn(partition)
    state.overlay.put(layout.hold(partition, number), encode(record))
    hold = Hold(partition, number, record)
    state.holds.add(hold)
    return hold


def load(state: State, partition: int) -> None:
    """The holds of a partition that is adopted; its heads bring what they hold."""
    for key, data in state.overlay.scan(*layout.partition_range(layout.HOLD, partition)):
        _, number = layout.unpack_batch(key)
        state.holds.add(Hold(partition, number, decode(data)))


def attach(state: State, queue: Queue, batch: Batch, part: Part) -> None:
    """A part that a head says is held."""
    hold = state.holds.by_key[handle.key_of(handle.partition(batch.handle), part.hold)]
    size = batch.share(part.first, part.count)
    keep(queue, hold, batch.handle, mask.of_range(part.first, part.count), size)
    if hold.record.staged:
        hold.names.add((batch.head.producer, batch.head.batch))


def keep(queue: Queue, hold: Hold, batch_handle: int, bits: int, size: int) -> None:
    """Messages of a batch are in the hold from now on."""
    hold.pieces[batch_handle] = hold.pieces.get(batch_handle, 0) | bits
    hold.order = None
    hold.messages += bits.bit_count()
    hold.bytes += size
    _count(queue, hold, bits.bit_count(), size)


def _count(queue: Queue, hold: Hold, messages: int, size: int) -> None:
    queue.bytes += size
    queue.held_bytes += size
    if hold.record.staged:
        queue.staged += messages
    else:
        queue.reserved += messages


def empty(queue: Queue, hold: Hold) -> None:
    """What it held is not its own any more."""
    _count(queue, hold, -hold.messages, -hold.bytes)
    hold.pieces.clear()
    hold.messages = hold.bytes = 0


def dissolve(state: State, hold: Hold) -> None:
    """It holds nothing any more."""
    state.overlay.delete(layout.hold(hold.partition, hold.id))
    state.holds.remove(hold)


def end(state: State, holds: list[Hold], *, put_back: bool) -> Generator[None]:
    """Ends holds, some batches in each round: their messages go back to the queue, or are gone."""
    number = 0
    for hold in holds:
        hold.ending = True
    for hold in holds:
        while hold.pieces and state.holds.by_key.get(hold.key) is hold:
            batch_handle, bits = hold.pieces.popitem()
            _end_piece(state, hold, batch_handle, bits, put_back=put_back)
            number += 1
            if number % STEP == 0:
                yield
        if state.holds.by_key.get(hold.key) is hold:
            dissolve(state, hold)


def _end_piece(state: State, hold: Hold, batch_handle: int, bits: int, *, put_back: bool) -> None:
    batch = state.touch(batch_handle)
    queue = state.by_id.get(hold.record.queue)
    size = sum(batch.share(*run) for run in mask.runs(bits))
    hold.messages -= bits.bit_count()
    hold.bytes -= size
    if queue is not None:
        _count(queue, hold, -bits.bit_count(), -size)
    for part in [part for part in batch.parts.values() if part.hold == hold.id]:
        del batch.parts[part.first]
        if put_back and queue is not None:
            state.wait(queue, batch, set_aside(part, 0))
    state.changed(batch)


def forget(state: State, partitions: set[int]) -> None:
    """This node does not lead these any more."""
    for hold in [each for each in state.holds.by_key.values() if each.partition in partitions]:
        queue = state.by_id.get(hold.record.queue)
        if queue is not None:
            _count(queue, hold, -hold.messages, -hold.bytes)
        state.holds.remove(hold)
