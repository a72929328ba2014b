"""Reservations on the partitions of the messages: survey, mark, read, finish.

A reservation takes the oldest messages over all nodes. So each node first reports its waiting
messages (`survey`: bins of entries with their stamps), and then sets aside all messages up to a
chosen stamp (`mark`). Both are steps of an operation (``core/reserve_operations``). The
subscription's ledger, not this module, decides which marks count.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from weft import limits
from weft.errors import InvalidArgument, ReservationLost
from weft.persistence import layout
from weft.proto import pipelines, wire

from . import head, message_set
from . import hold as holds
from .batch import set_aside, split
from .handlers import handles
from .head import Head, Part
from .hold import Hold, HoldRecord
from .message_id_queue import WHOLE, Handle, IdEntry
from .pop import RANGES_MAX
from .queue import QueueState
from .state import EngineState

#: Bins per reservation: a bin closes when its entries reach 1/BINS of the reservation's limits.
BINS: Final = 128
#: Maximum entries marked in one step, so other requests do not wait for long.
MARK_ENTRIES_MAX: Final = 4096


@handles(pipelines.Survey)
def survey(state: EngineState, request: pipelines.Survey, to: object) -> None:
    queue = state.queue(request.queue)
    left = _left_marked(state, queue, request)
    bins: list[pipelines.Bin] = []
    covers = 0
    if not request.token:  # a read-only check for waiting messages: marked ones count as waiting
        bins += [pipelines.Bin(0, 0, 1, hold.messages, hold.bytes) for hold in left]
        left = []
    for _ in holds.end(state, left, put_back=True):
        pass
    if queue.has_some:
        for level in queue.ids.levels:
            fresh = ((h, Handle.count(h), Handle.size(h)) for h in level.fresh)
            returned = (_extent(state, entry) for entry in sorted(level.returned))
            for entries, length in ((fresh, len(level.fresh)), (returned, len(level.returned))):
                end = _bins(entries, length, request, bins)
                covers = min(filter(None, (covers, end)), default=0)
    state.answer(to, pipelines.Surveyed(bins, covers), (), {hold.partition for hold in left})


def _left_marked(state: EngineState, queue: QueueState, request: pipelines.Survey) -> list[Hold]:
    """Holds left by earlier attempts. Their messages are the oldest, so the survey must include
    them. A lower token proves an attempt over, even if the request is late; without a token, all
    attempts count as earlier."""
    return [
        hold
        for hold in state.holds.unsure.values()
        if hold.record.queue == queue.id
        and hold.record.owner == request.subscription
        and hold.record.number == request.number
        and (not request.token or hold.record.token < request.token)
    ]


def _extent(state: EngineState, entry: IdEntry) -> tuple[int, int, int]:
    """(handle, messages, bytes) of an entry."""
    if entry.first == WHOLE:
        return entry.handle, Handle.count(entry.handle), Handle.size(entry.handle)
    batch = state.touch(entry.handle)
    count = batch.parts[entry.first].count
    return entry.handle, count, batch.share(entry.first, count)


def _bins(
    entries: Iterable[tuple[int, int, int]], length: int, request: pipelines.Survey,
    bins: list[pipelines.Bin],
) -> int:  # fmt: skip
    """Adds the bins of one list; returns the stamp up to which the bins are complete, 0: all."""
    most, most_bytes = request.max_messages, request.max_bytes
    messages = size = in_bin = count = weight = first = 0
    for number, (batch_handle, one, one_size) in enumerate(entries, 1):
        if not in_bin:
            first = batch_handle
        in_bin += 1
        count += one
        weight += one_size
        full = count * BINS >= most or weight * BINS >= most_bytes
        if full or number == length:
            last = Handle.stamp(batch_handle)
            bins.append(pipelines.Bin(Handle.stamp(first), last, in_bin, count, weight))
            messages += count
            size += weight
            in_bin = count = weight = 0
            if messages >= most or size >= most_bytes:
                return last if number < length else 0
    return 0


class _Marking:
    """One step of one attempt: a hold on each partition with matching messages."""

    def __init__(self, state: EngineState, queue: QueueState, request: pipelines.Mark) -> None:
        self._state = state
        self._queue = queue
        self._request = request
        self._holds: dict[int, Hold] = {}
        self._oldest: dict[int, int] = {}

    def hold(self, batch_handle: int) -> Hold:
        partition = Handle.partition(batch_handle)
        found = self._holds.get(partition)
        if found is None:
            request, state = self._request, self._state
            record = HoldRecord(
                self._queue.id, request.subscription, request.number, request.token, False,
                state.now,
            )  # fmt: skip
            found = self._holds[partition] = holds.make(state, partition, record)
            self._oldest[partition] = Handle.stamp(batch_handle)
        return found

    def take(self, entry: IdEntry, count: int) -> tuple[int, int]:
        """Holds up to `count` messages of an entry; returns the (messages, bytes) held."""
        state, queue = self._state, self._queue
        hold = self.hold(entry.handle)
        key = Handle.key(entry.handle)
        whole = entry.first == WHOLE and key not in state.touched
        if whole and Handle.count(entry.handle) <= count:  # the usual case; creates no TouchedBatch
            found = state.head_of(key)
            part = set_aside(found.parts[0], hold.id)
            state.overlay.put(layout.head(*Handle.split_key(key)), head.encode(_with(found, part)))
            size = Handle.size(entry.handle)
        else:
            batch, part = state.part(entry)
            if part.count > count:
                part, rest = split(part, count)
                batch.parts[rest.first] = rest
                queue.ids.add_returned(batch.head.priority, IdEntry(batch.handle, rest.first))
            batch.parts[part.first] = set_aside(part, hold.id)
            state.changed(batch)
            size = batch.share(part.first, part.count)
        queue.ready -= part.count
        queue.bytes -= size
        bits = message_set.of_range(part.first, part.count)
        holds.keep(queue, hold, entry.handle, bits, size)
        return part.count, size

    def held(self) -> list[pipelines.Held]:
        return [
            pipelines.Held(
                partition, each.id, each.messages, each.bytes, self._oldest[partition] // 1000
            )
            for partition, each in self._holds.items()
        ]


def _with(found: Head, part: Part) -> Head:
    return Head(
        found.queue, found.producer, found.batch, found.count, found.size, found.stamp,
        found.priority, found.dedup_key, [part], found.group, found.queues, found.tenant,
    )  # fmt: skip


@handles(pipelines.Mark)
def mark(state: EngineState, request: pipelines.Mark, to: object) -> None:
    queue = state.queue(request.queue)
    marking = _Marking(state, queue, request)
    count, size, more = request.max_messages, request.max_bytes, False
    if queue.has_some:
        for _ in range(MARK_ENTRIES_MAX):
            entry = queue.ids.take_oldest(request.upto) if count > 0 and size > 0 else None
            if entry is None:
                break
            taken = marking.take(entry, _room(state, entry, count, size))
            count -= taken[0]
            size -= taken[1]
        else:
            more = count > 0 and size > 0
    held = marking.held()
    state.answer(to, pipelines.Marked(held, more), (), {each.partition for each in held})


def _room(state: EngineState, entry: IdEntry, count: int, size: int) -> int:
    """How many messages of an entry to take: at least one, however large the message."""
    _, messages, whole = _extent(state, entry)
    return count if whole <= size else max(1, min(count, messages * size // whole))


@handles(pipelines.ReadReserved)
def read_reserved(state: EngineState, request: pipelines.ReadReserved, to: object) -> None:
    limits.check_range("limit", request.limit, 1, limits.POP_COUNT_MAX)
    limits.check_range("start", request.start, 0, sum(each for _, each in request.holds))
    state.queue(request.queue)
    lent: list[wire.Lent] = []
    frames: list[bytes] = []
    count, size, start = request.limit, limits.POP_BYTES_MAX, request.start
    try:
        for number, messages in request.holds:
            if start >= messages:
                start -= messages
                continue
            hold = _whole(state, request.partition, number, messages)
            for one, frame in _ranges(state, hold, start):
                if len(frame) > size and lent:
                    count = 0
                    break
                if one.count > count:
                    one, frame = _cut(state, one, count)
                lent.append(one)
                frames.append(frame)
                count -= one.count
                size -= len(frame)
                if not count or len(lent) == RANGES_MAX:
                    count = 0
                    break
            start = 0
            if not count:
                break
    except ReservationLost as error:
        # A replaced primary, unaware of its replacement, must not report a lost reservation.
        failure = wire.Failure(error.code, error.message, error.retriable)
        state.answer(to, failure, (), {request.partition}, sure=True)
        return
    state.answer(to, wire.Peeked(lent), frames, {request.partition})


def _whole(state: EngineState, partition: int, number: int, messages: int) -> Hold:
    """The hold, with exactly the number of messages in the reservation."""
    hold = state.holds.by_key.get(Handle.key_of(partition, number))
    if hold is None or hold.ending or hold.messages != messages:
        raise ReservationLost(
            "the reserved messages no longer exist: they were acked, purged, or returned to the "
            "queue (the subscription was released, deleted or silent for ttl_ms)"
        )
    return hold


def _ranges(state: EngineState, hold: Hold, start: int) -> Generator[tuple[wire.Lent, bytes]]:
    """The ranges of a hold from the `start`-th message on, with the payload of each range."""
    for batch_handle, skip in hold.places(start):
        key = Handle.key(batch_handle)
        found = state.peek_head(key)
        partition, lsn = Handle.split_key(key)
        for part in found.parts:
            if part.hold != hold.id:
                continue
            if skip >= part.count:
                skip -= part.count
                continue
            first, count = part.first + skip, part.count - skip
            skip = 0
            lent = wire.Lent(
                partition, lsn, 0, first, count, found.producer, found.batch,
                part.deliveries + 1, found.stamp // 1000, 0, found.priority, part.reason,
            )  # fmt: skip
            bodies, payloads = found.bodies, state.payloads
            whole = count == bodies
            yield (
                lent,
                payloads.whole(key) if whole else payloads.part(key, first % bodies, count),
            )


def _cut(state: EngineState, one: wire.Lent, count: int) -> tuple[wire.Lent, bytes]:
    """The first `count` messages of a range."""
    key = Handle.key_of(one.partition, one.lsn)
    lent = wire.Lent(
        one.partition, one.lsn, 0, one.first, count, one.producer, one.batch, one.deliveries,
        one.pushed_ms, 0, one.priority, one.reason,
    )  # fmt: skip
    return lent, state.payloads.part(key, one.first % state.peek_head(key).bodies, count)


@handles(pipelines.Finish)
def finish(state: EngineState, request: pipelines.Finish, to: object) -> None:
    found = [
        hold
        for partition, number in request.holds
        if (hold := state.holds.by_key.get(Handle.key_of(partition, number))) is not None
    ]
    rests_on = {partition for partition, _ in request.holds}
    if any(hold.record.staged for hold in found):
        raise InvalidArgument("a stage is not a reservation")
    state.jobs.append(_finish(state, found, to, rests_on, acked=request.acked))


def _finish(
    state: EngineState, found: list[Hold], to: object, rests_on: set[int], *, acked: bool
) -> Generator[None]:
    count = sum(hold.messages for hold in found)
    for hold in found:
        queue = state.by_id.get(hold.record.queue)
        if acked and queue is not None and not hold.ending:
            queue.acked += hold.messages
            queue.delivered += hold.messages
    yield from holds.end(state, found, put_back=not acked)
    # Even an empty result needs confirmed leadership: the requester does not ask again.
    state.answer(to, wire.Done(count), (), rests_on, sure=True)
