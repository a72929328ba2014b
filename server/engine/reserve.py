"""Reserving, on the partitions that hold the messages: survey, mark, read, finish.

Reservations draw oldest first over all nodes. So a node is first asked what waits there (`survey`:
bins of entries with their stamps), and then to set aside all that is not newer than a certain stamp
(`mark`). Both are steps of an errand (``loom/reserving``), and which marks count is decided in the
subscription's ledger, not here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from weft import limits
from weft.errors import InvalidArgument, ReservationLost
from weft.persistence import layout
from weft.proto import streams, wire

from . import handle, head, mask
from . import hold as holds
from .batch import set_aside, split
from .head import Head, Part
from .hold import Hold, HoldRecord
from .idqueue import WHOLE, Entry
from .pop import RANGES_MAX
from .queue import Queue
from .state import State

#: Bins in what fits into a reservation: several entries make a bin that is at most that part of it.
BINS: Final = 128
#: Entries that are marked in one step, so that nobody waits for long meanwhile.
MARK_ENTRIES_MAX: Final = 4096


def survey(state: State, request: streams.Survey, to: object) -> None:
    queue = state.queue(request.queue)
    left = _left_marked(state, queue, request)
    bins: list[streams.Bin] = []
    covers = 0
    if not request.token:  # only a look whether something waits: that does
        bins += [streams.Bin(0, 0, 1, hold.messages, hold.bytes) for hold in left]
        left = []
    for _ in holds.end(state, left, put_back=True):
        pass
    if queue.has_some:
        for level in queue.ids.levels:
            fresh = ((h, handle.count(h), handle.size(h)) for h in level.fresh)
            returned = (_extent(state, entry) for entry in sorted(level.returned))
            for entries, length in ((fresh, len(level.fresh)), (returned, len(level.returned))):
                end = _bins(entries, length, request, bins)
                covers = min(filter(None, (covers, end)), default=0)
    state.answer(to, streams.Surveyed(bins, covers), (), {hold.partition for hold in left})


def _left_marked(state: State, queue: Queue, request: streams.Survey) -> list[Hold]:
    """What earlier attempts left marked is the oldest there is: it must be seen. (The token says
    that they are over, whenever this request comes; without one all are earlier.)"""
    return [
        hold
        for hold in state.holds.unsure.values()
        if hold.record.queue == queue.id
        and hold.record.owner == request.subscription
        and hold.record.number == request.number
        and (not request.token or hold.record.token < request.token)
    ]


def _extent(state: State, entry: Entry) -> tuple[int, int, int]:
    """(handle, messages, bytes) of an entry."""
    if entry.first == WHOLE:
        return entry.handle, handle.count(entry.handle), handle.size(entry.handle)
    batch = state.touch(entry.handle)
    count = batch.parts[entry.first].count
    return entry.handle, count, batch.share(entry.first, count)


def _bins(
    entries: Iterable[tuple[int, int, int]], length: int, request: streams.Survey,
    bins: list[streams.Bin],
) -> int:  # fmt: skip
    """Adds the bins of one list; the stamp up to which they tell all, 0 if that is the whole."""
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
            last = handle.stamp(batch_handle)
            bins.append(streams.Bin(handle.stamp(first), last, in_bin, count, weight))
            messages += count
            size += weight
            in_bin = count = weight = 0
            if messages >= most or size >= most_bytes:
                return last if number < length else 0
    return 0


class _Marking:
    """One step of one attempt: a hold on each partition that has something."""

    def __init__(self, state: State, queue: Queue, request: streams.Mark) -> None:
        self._state = state
        self._queue = queue
        self._request = request
        self._holds: dict[int, Hold] = {}
        self._oldest: dict[int, int] = {}

    def hold(self, batch_handle: int) -> Hold:
        partition = handle.partition(batch_handle)
        found = self._holds.get(partition)
        if found is None:
            request, state = self._request, self._state
            record = HoldRecord(
                self._queue.id, request.subscription, request.number, request.token, False,
                state.now,
            )  # fmt: skip
            found = self._holds[partition] = holds.make(state, partition, record)
            self._oldest[partition] = handle.stamp(batch_handle)
        return found

    def take(self, entry: Entry, count: int) -> tuple[int, int]:
        """Up to `count` messages of an entry; (messages, bytes) of them."""
        state, queue = self._state, self._queue
        hold = self.hold(entry.handle)
        key = handle.key(entry.handle)
        whole = entry.first == WHOLE and key not in state.touched
        if whole and handle.count(entry.handle) <= count:  # the usual case, without a batch made
            found = state.head_of(key)
            part = set_aside(found.parts[0], hold.id)
            state.overlay.put(layout.head(*handle.split_key(key)), head.encode(_with(found, part)))
            size = handle.size(entry.handle)
        else:
            batch, part = state.part(entry)
            if part.count > count:
                part, rest = split(part, count)
                batch.parts[rest.first] = rest
                queue.ids.add_returned(batch.head.priority, Entry(batch.handle, rest.first))
            batch.parts[part.first] = set_aside(part, hold.id)
            state.changed(batch)
            size = batch.share(part.first, part.count)
        queue.ready -= part.count
        queue.bytes -= size
        bits = mask.of_range(part.first, part.count)
        holds.keep(queue, hold, entry.handle, bits, size)
        return part.count, size

    def held(self) -> list[streams.Held]:
        return [
            streams.Held(
                partition, each.id, each.messages, each.bytes, self._oldest[partition] // 1000
            )
            for partition, each in self._holds.items()
        ]


def _with(found: Head, part: Part) -> Head:
    return Head(
        found.queue, found.producer, found.batch, found.count, found.size, found.stamp,
        found.priority, found.dedup_key, [part],
    )  # fmt: skip


def mark(state: State, request: streams.Mark, to: object) -> None:
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
    state.answer(to, streams.Marked(held, more), (), {each.partition for each in held})


def _room(state: State, entry: Entry, count: int, size: int) -> int:
    """How many messages of an entry may be taken: at least one, however large it is."""
    _, messages, whole = _extent(state, entry)
    return count if whole <= size else max(1, min(count, messages * size // whole))


def read_reserved(state: State, request: streams.ReadReserved, to: object) -> None:
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
        # Who was replaced and does not know it must not say that nothing is there.
        failure = wire.Failure(error.code, error.message, error.retriable)
        state.answer(to, failure, (), {request.partition}, sure=True)
        return
    state.answer(to, wire.Peeked(lent), frames, {request.partition})


def _whole(state: State, partition: int, number: int, messages: int) -> Hold:
    """A hold with everything that its reservation is known to have."""
    hold = state.holds.by_key.get(handle.key_of(partition, number))
    if hold is None or hold.ending or hold.messages != messages:
        raise ReservationLost(
            "what was reserved is not there any more: it was acked, given back to the queue "
            "(its subscription was released, deleted or silent for its ttl), or purged"
        )
    return hold


def _ranges(state: State, hold: Hold, start: int) -> Generator[tuple[wire.Lent, bytes]]:
    """What a hold has, from a message on, with the payload of each range."""
    for batch_handle, skip in hold.places(start):
        key = handle.key(batch_handle)
        found = state.look(key)
        partition, lsn = handle.split_key(key)
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
            whole = count == found.count
            yield (
                lent,
                (state.payloads.whole(key) if whole else state.payloads.part(key, first, count)),
            )


def _cut(state: State, one: wire.Lent, count: int) -> tuple[wire.Lent, bytes]:
    """The first messages of a range."""
    key = handle.key_of(one.partition, one.lsn)
    lent = wire.Lent(
        one.partition, one.lsn, 0, one.first, count, one.producer, one.batch, one.deliveries,
        one.pushed_ms, 0, one.priority, one.reason,
    )  # fmt: skip
    return lent, state.payloads.part(key, one.first, count)


def finish(state: State, request: streams.Finish, to: object) -> None:
    found = [
        hold
        for partition, number in request.holds
        if (hold := state.holds.by_key.get(handle.key_of(partition, number))) is not None
    ]
    rests_on = {partition for partition, _ in request.holds}
    if any(hold.record.staged for hold in found):
        raise InvalidArgument("a stage is not a reservation")
    state.jobs.append(_finish(state, found, to, rests_on, acked=request.acked))


def _finish(
    state: State, found: list[Hold], to: object, rests_on: set[int], *, acked: bool
) -> Generator[None]:
    count = sum(hold.messages for hold in found)
    for hold in found:
        queue = state.by_id.get(hold.record.queue)
        if acked and queue is not None and not hold.ending:
            queue.acked += hold.messages
            queue.delivered += hold.messages
    yield from holds.end(state, found, put_back=not acked)
    # That nothing was there is said for certain, too: who asked will not ask again.
    state.answer(to, wire.Done(count), (), rests_on, sure=True)
