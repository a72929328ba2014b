"""snapshot and restore: a partition's living messages and table rows, out and in again.

A *snapshot* reads one partition, page by page, in the order of lsns and then of keys. A batch stays
under its lsn for all its life, whatever happens to its messages, so a reader that goes on after the
last lsn it saw misses nothing that was there when it began. What is lent or reserved counts as
waiting, with the deliveries that have ended; what is staged and not published is not there. Bodies
of messages that are gone are left out: they come as empty ones, so that the others keep their
places, and with these their ids.

A *restore* puts one batch back as it was: names, places, delivery counts, due times, reasons, the
time of its push. It is numbered within its backup, and the highest number that a partition has
taken stands in that partition's own state, under `_taken`: written with the batch, in one entry, so
that a batch that is sent again, by whomever and whenever, is known.
"""

from __future__ import annotations

from typing import Final

from weft import limits
from weft.dht import placement
from weft.errors import InvalidArgument, StoreDamaged, Unavailable
from weft.persistence import layout
from weft.proto import wire

from . import handle, head
from .batch import Batch
from .head import Head, Part
from .idqueue import WHOLE, Entry
from .push import check_batch
from .queue import Queue, created_of
from .state import State

#: A page ends when it has so many bytes, or has looked at so many records: a round must stay short.
PAGE_BYTES_MAX: Final = limits.MIB
PAGE_RECORDS_MAX: Final = 1000
#: Not a key that a client makes by chance; rows under it are a partition's own.
_TAKEN: Final = "\0restored/"
_NUMBER_MAX: Final = (1 << 62) - 1


def snapshot(state: State, request: wire.Snapshot, to: object) -> None:
    partition = request.partition
    limits.check_range("partition", partition, 0, state.partitions - 1)
    limits.check_range("after_lsn", request.after_lsn, 0, (1 << handle.LSN_BITS) - 1)
    wanted = None if request.queue is None else state.queue(request.queue)
    page = _Page(PAGE_BYTES_MAX, PAGE_RECORDS_MAX)
    lsn, key = request.after_lsn, request.after_key
    if key is None:
        lsn = _batches(state, partition, lsn, wanted, page)
    if wanted is None and not page.full:
        key = _rows(state, partition, key or "", page)
    state.barriers.add(partition)
    answer = wire.Snapped(page.batches, page.rows, lsn, key, page.full)
    state.answer(to, answer, (), {partition})


class _Page:
    def __init__(self, size: int, records: int) -> None:
        self.batches: list[wire.Kept] = []
        self.rows: list[tuple[str, bytes]] = []
        self._size = size
        self._records = records

    @property
    def full(self) -> bool:
        return self._size <= 0 or self._records <= 0

    def take(self, size: int) -> None:
        self._size -= size
        self._records -= 1

    def has_room(self, size: int) -> bool:
        """A batch that is larger than a page comes alone: a frame has its limit, too."""
        if self.batches and size > self._size:
            self._size = 0
            return False
        return True


def _batches(
    state: State, partition: int, after: int, wanted: Queue | None, page: _Page
) -> int:  # fmt: skip
    """Fills the page; returns the lsn that was looked at last."""
    stop = layout.partition_range(layout.HEAD, partition)[1]
    rows = state.overlay.scan(layout.head(partition, after + 1), stop)
    while not page.full and (row := next(rows, None)) is not None:
        lsn = layout.unpack_batch(row[0])[1]
        # A scan does not see what is on its way into the store. A batch that is being deleted is
        # gone when this is answered: the answer waits for it.
        found = state.overlay.read(row[0])
        kept = _kept(state, partition, lsn, head.decode(found), wanted) if found else None
        if kept is not None:
            if not page.has_room(len(kept.payload)):
                break
            page.batches.append(kept)
        page.take(len(kept.payload) if kept is not None else 0)
        after = lsn
    return after


def _kept(
    state: State, partition: int, lsn: int, found: Head, wanted: Queue | None
) -> wire.Kept | None:
    parts: list[wire.KeptPart] = []
    for part in found.parts:
        queue = state.by_id.get(part.queue)
        if queue is None and part.queue in state.strays:
            raise Unavailable("this node has not heard of one of the queues yet")
        if part.hold and _is_staged(state, partition, part):
            continue
        if queue is not None and wanted in (None, queue):
            parts.append(
                wire.KeptPart(part.first, part.count, queue.name, part.deliveries, part.due,
                              part.reason, part.origin)
            )  # fmt: skip
    if not parts:
        return None
    place = layout.body(partition, lsn)
    data = state.overlay.read(place)
    if data is None:
        raise StoreDamaged(f"{state.overlay.path} has lost the payload under key {place.hex()}")
    owner = state.by_created.get(created_of(found.queue))
    return wire.Kept(
        owner.name if owner is not None else parts[0].queue, found.producer, found.batch,
        found.count, found.stamp, found.priority, found.dedup_key, parts,
        _without_the_gone(bytes(data), found.count, parts),
    )  # fmt: skip


def _is_staged(state: State, partition: int, part: Part) -> bool:
    """Whether it is not published yet; what a subscription has reserved is like what is lent."""
    hold = state.holds.by_key.get(handle.key_of(partition, part.hold))
    if hold is None or hold.ending:
        raise Unavailable("what was set aside is just being decided about")
    return hold.record.staged


def _without_the_gone(payload: bytes, count: int, parts: list[wire.KeptPart]) -> bytes:
    if sum(part.count for part in parts) == count:
        return payload
    living = {index for part in parts for index in range(part.first, part.first + part.count)}
    columns = wire.decode_payload(payload)
    return wire.encode(
        wire.Payload(
            [body if n in living else b"" for n, body in enumerate(columns.bodies)],
            columns.headers
            and [each if n in living else None for n, each in enumerate(columns.headers)],
            columns.keys and [each if n in living else None for n, each in enumerate(columns.keys)],
        )
    )


def _rows(state: State, partition: int, after: str, page: _Page) -> str:
    stop = layout.partition_range(layout.TABLE, partition)[1]
    rows = state.overlay.scan(layout.table(partition, after) + b"\0" * bool(after), stop)
    while not page.full and (row := next(rows, None)) is not None:
        after = row[0][3:].decode()
        if not after.startswith(_TAKEN):
            page.rows.append((after, row[1]))
        page.take(len(row[1]))
    return after


def restore(state: State, request: wire.Restore, to: object) -> None:
    queue, kept = state.queue(request.queue), request.kept
    check_batch(
        wire.Push(queue.name, kept.producer, kept.batch, kept.count, 0, kept.priority,
                  kept.dedup_key),
        kept.payload,
    )  # fmt: skip
    limits.check_range("number", request.number, 0, _NUMBER_MAX)
    limits.check_range("stamp", kept.stamp, 1, (1 << handle.STAMP_BITS) - 1)
    partition = placement.of_push(
        queue.name, queue.settings.ordered, kept.producer, kept.batch, kept.dedup_key,
        state.partitions,
    )  # fmt: skip
    parts = _parts(state, kept)
    taken = layout.table(partition, _TAKEN + "".join(f"{half:016x}" for half in request.backup))
    last = state.overlay.read(taken)
    known = last is not None and int.from_bytes(last, "big") >= request.number
    if not known:
        state.check_space()
        state.overlay.put(taken, request.number.to_bytes(8, "big"))
        _put(state, queue, partition, kept, parts)
    state.answer(
        to,
        wire.Pushed(partition, kept.producer, kept.batch, kept.count, known, ""),
        (),
        {partition},
    )


def _parts(state: State, kept: wire.Kept) -> list[Part]:
    """The parts as they are stored here, in order."""
    end = 0
    parts: list[Part] = []
    for part in kept.parts:
        limits.check_range("deliveries", part.deliveries, 0, limits.MAX_DELIVERIES_MAX)
        if part.first < end or part.count < 1 or part.first + part.count > kept.count:
            raise InvalidArgument("the parts of a batch are in order, and inside it")
        if part.due and not 0 < part.due < 1 << handle.STAMP_BITS:
            raise InvalidArgument("a due time is in microseconds since 1970")
        end = part.first + part.count
        parts.append(
            Part(part.first, part.count, state.queue(part.queue).id, part.deliveries, part.due,
                 part.reason, part.origin)
        )  # fmt: skip
    if not parts:
        raise InvalidArgument("a batch without living messages is not restored")
    return parts


def _put(state: State, queue: Queue, partition: int, kept: wire.Kept, parts: list[Part]) -> None:
    lsn, size = state.next_lsn(partition), len(kept.payload)
    new = Head(
        queue.id, kept.producer, kept.batch, kept.count, size, kept.stamp, kept.priority,
        kept.dedup_key, parts,
    )  # fmt: skip
    state.overlay.put(layout.head(partition, lsn), head.encode(new))
    state.overlay.put(layout.body(partition, lsn), kept.payload)
    if kept.stamp + queue.settings.dedup_window_ms * 1000 > state.now:
        # Its producer may still send it again.
        window = queue.window(partition, state.partitions)
        window.add(kept.stamp, kept.producer, kept.batch, kept.dedup_key, kept.count)
    whole = parts[0]
    if whole.count == kept.count and whole.queue == queue.id and whole.due <= state.now:
        # One integer in memory, as for any batch that waits; older than those that came since.
        batch_handle = handle.pack(kept.stamp, partition, lsn, kept.count, size)
        queue.bytes += size
        queue.ready += kept.count
        queue.ids.add_returned(kept.priority, Entry(batch_handle, WHOLE))
        state.stirred[queue.id] = queue
        return
    batch = Batch.load(partition, lsn, new)
    state.touched[handle.key(batch.handle)] = batch
    batch.parts = {}
    for part in parts:
        state.wait(state.by_id[part.queue], batch, part)
