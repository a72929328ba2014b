"""snapshot and restore: export and import a partition's live messages and table rows.

A *snapshot* reads one partition page by page, in order of lsns, then of keys. A batch keeps its lsn
for life, whatever happens to its messages. So a reader continuing after the last lsn seen misses no
batch present at the start. Leased and reserved messages count as waiting, with their finished
deliveries; staged, unpublished messages are excluded. The bodies of removed messages are replaced
by empty bodies, so the other messages keep their places, and thereby their ids.

A *restore* puts one batch back unchanged: names, places, delivery counts, due times, reasons, the
time of the push. Batches are numbered within their backup. The highest number restored to a
partition is in the partition's own state, under `_taken`, written in the same log entry as the
batch. So a resent batch is detected as a duplicate, from any sender and at any time.

A restore with `purged_only` undoes a purge or a delete in the cluster where the backup was taken:
only messages in the records of `purged` are restored, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from weft import limits
from weft.dht import placement
from weft.errors import InvalidArgument, StoreDamaged, Unavailable
from weft.persistence import layout
from weft.proto import wire

from . import handle, head, message_set, purged
from .batch import TouchedBatch, merge
from .handlers import handles
from .head import Head, Part
from .message_id_queue import WHOLE, IdEntry
from .push import check_batch
from .queue import QueueState, created_of
from .state import EngineState

#: Limits of a page, in bytes and in records examined: a round must stay short.
PAGE_BYTES_MAX: Final = limits.MIB
PAGE_RECORDS_MAX: Final = 1000
#: Prefix of a partition's own rows; no client uses such a key by chance.
_TAKEN: Final = "\0restored/"
_OWN: Final = (_TAKEN, purged.PREFIX)
_NUMBER_MAX: Final = (1 << 62) - 1


@handles(wire.Snapshot)
def snapshot(state: EngineState, request: wire.Snapshot, to: object) -> None:
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
        """False, ending the page, if the batch does not fit. A batch larger than a page is sent
        alone, because a frame has a size limit, too."""
        if self.batches and size > self._size:
            self._size = 0
            return False
        return True


def _batches(
    state: EngineState, partition: int, after: int, wanted: QueueState | None, page: _Page
) -> int:  # fmt: skip
    """Fills the page; returns the last lsn examined."""
    stop = layout.partition_range(layout.HEAD, partition)[1]
    rows = state.overlay.scan(layout.head(partition, after + 1), stop)
    while not page.full and (row := next(rows, None)) is not None:
        lsn = layout.unpack_batch(row[0])[1]
        # A scan does not see changes on their way into the store; `read` does. The answer waits
        # for these changes, so a batch being deleted is gone when the answer leaves.
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
    state: EngineState, partition: int, lsn: int, found: Head, wanted: QueueState | None
) -> wire.Kept | None:
    parts: list[wire.KeptPart] = []
    for part in found.parts:
        queue = state.by_id.get(part.queue)
        if queue is None and part.queue in state.orphans:
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


def _is_staged(state: EngineState, partition: int, part: Part) -> bool:
    """True if the part is staged and unpublished; reserved parts count like leased parts."""
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


def _rows(state: EngineState, partition: int, after: str, page: _Page) -> str:
    stop = layout.partition_range(layout.TABLE, partition)[1]
    rows = state.overlay.scan(layout.table(partition, after) + b"\0" * bool(after), stop)
    while not page.full and (row := next(rows, None)) is not None:
        after = row[0][3:].decode()
        if not after.startswith(_OWN):
            page.rows.append((after, row[1]))
        page.take(len(row[1]))
    return after


@handles(wire.Restore)
def restore(state: EngineState, request: wire.Restore, to: object) -> None:
    queue, kept = state.queue(request.queue), request.kept
    check_batch(
        wire.Push(queue.name, kept.producer, kept.batch, kept.count, 0, kept.priority,
                  kept.dedup_key),
        kept.payload,
    )  # fmt: skip
    if request.purged_only:
        limits.check_range("number", request.number, -_NUMBER_MAX, -1)
    else:
        limits.check_range("number", request.number, 0, _NUMBER_MAX)
    limits.check_range("stamp", kept.stamp, 1, (1 << handle.STAMP_BITS) - 1)
    partition = placement.of_push(
        queue.name, queue.settings.ordered, kept.producer, kept.batch, kept.dedup_key,
        state.partitions,
    )  # fmt: skip
    parts = _parts(state, kept)
    if request.purged_only:
        _undo_purge(state, queue, partition, kept, parts, to)
        return
    *also, also_number = request.also
    known = _has_taken(state, partition, request.backup, request.number) or (
        any(also) and _has_taken(state, partition, also, also_number)
    )
    if not known:
        state.check_space()
        number = request.number.to_bytes(8, "big")
        state.overlay.put(_taken(partition, request.backup), number)
        _put(state, queue, partition, kept, parts)
    state.answer(
        to,
        wire.Pushed(partition, kept.producer, kept.batch, kept.count, known, ""),
        (),
        {partition},
    )


def _has_taken(state: EngineState, partition: int, backup: Sequence[int], number: int) -> bool:
    last = state.overlay.read(_taken(partition, backup))
    return last is not None and int.from_bytes(last, "big") >= number


def _taken(partition: int, backup: Sequence[int]) -> bytes:
    """The key of the number of the last batch restored to a partition from a backup."""
    return layout.table(partition, _TAKEN + "".join(f"{half:016x}" for half in backup))


def _undo_purge(
    state: EngineState, queue: QueueState, partition: int, kept: wire.Kept, parts: list[Part],
    to: object,
) -> None:  # fmt: skip
    """Restores only the messages removed by a purge or a delete.

    Messages waiting, leased, or acknowledged since the backup are in no record of `purged`.
    """
    if state.dying or state.orphans or state.removing:
        raise Unavailable("a purge is still being carried out on this node: retry in a moment")
    state.check_space()
    wanted = message_set.of_ranges((part.first, part.count) for part in parts)
    bits = purged.take(state.overlay, state.now, partition, kept.producer, kept.batch, wanted)
    if bits:
        left = [each for part in parts for each in _within(part, bits)]
        living = [wire.KeptPart(part.first, part.count, "") for part in left]
        payload = _without_the_gone(kept.payload, kept.count, living)
        _put(state, queue, partition, msgspec.structs.replace(kept, payload=payload), left)
    state.answer(
        to,
        wire.Pushed(partition, kept.producer, kept.batch, bits.bit_count(), not bits, ""),
        (),
        {partition},
    )


def _within(part: Part, bits: int) -> list[Part]:
    """The pieces of a part with messages in `bits`."""
    return [
        msgspec.structs.replace(part, first=first, count=count)
        for first, count in message_set.runs(bits & message_set.of_range(part.first, part.count))
    ]


def _parts(state: EngineState, kept: wire.Kept) -> list[Part]:
    """The parts of a backup in their stored form, in order; raises if invalid."""
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


def _put(
    state: EngineState, queue: QueueState, partition: int, kept: wire.Kept, parts: list[Part]
) -> None:
    parts = merge(parts)  # reserved messages were separate parts, and wait now like the others
    lsn, size = state.next_lsn(partition), len(kept.payload)
    new = Head(
        queue.id, kept.producer, kept.batch, kept.count, size, kept.stamp, kept.priority,
        kept.dedup_key, parts,
    )  # fmt: skip
    state.overlay.put(layout.head(partition, lsn), head.encode(new))
    state.overlay.put(layout.body(partition, lsn), kept.payload)
    if kept.stamp + queue.settings.dedup_window_ms * 1000 > state.now:
        # The producer may still resend the batch.
        window = queue.window(partition, state.partitions)
        window.add(kept.stamp, kept.producer, kept.batch, kept.dedup_key, kept.count)
    whole = parts[0]
    if whole.count == kept.count and whole.queue == queue.id and whole.due <= state.now:
        # One integer in memory, as for any waiting batch; ordered before newer batches.
        batch_handle = handle.pack(kept.stamp, partition, lsn, kept.count, size)
        queue.bytes += size
        queue.ready += kept.count
        queue.ids.add_returned(kept.priority, IdEntry(batch_handle, WHOLE))
        state.ready_queues[queue.id] = queue
        return
    batch = TouchedBatch.load(partition, lsn, new)
    state.touched[handle.key(batch.handle)] = batch
    batch.parts = {}
    for part in parts:
        state.wait(state.by_id[part.queue], batch, part)
