"""snapshot and restore: export and import a partition's live messages and table rows.

A *snapshot* reads one partition page by page, in order of lsns, then of keys. A batch keeps its lsn
for life, whatever happens to its messages. So a reader continuing after the last lsn seen misses no
batch present at the start. Leased and reserved messages count as waiting, with their finished
deliveries; staged, unpublished messages are excluded. The bodies of removed messages are replaced
by empty bodies, so the other messages keep their places, and thereby their ids.

A multicast that is not decided yet makes the reader ask again.

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
from weft.persistence import layout, table_layout
from weft.proto import wire

from . import group_push as groups
from . import head, message_set, purged, table_rows
from .batch import TouchedBatch, merge
from .handlers import handles
from .head import RELEASED, Head, Part
from .message_id_queue import LSN_BITS, STAMP_BITS, WHOLE, Handle, IdEntry
from .push import check_batch
from .queue import QueueState, created_of
from .state import EngineState

#: Limits of a page, in bytes and in records examined: a round must stay short.
PAGE_BYTES_MAX: Final = limits.MIB
PAGE_RECORDS_MAX: Final = 1000
_NUMBER_MAX: Final = (1 << 62) - 1


@handles(wire.Snapshot)
def snapshot(state: EngineState, request: wire.Snapshot, to: object) -> None:
    partition = request.partition
    limits.check_range("partition", partition, 0, state.partitions - 1)
    limits.check_range("after_lsn", request.after_lsn, 0, (1 << LSN_BITS) - 1)
    wanted = None if request.queue is None else state.queue(request.queue)
    if not request.graphs and any(name[0] == partition for name in state.waiting_batches.by_name):
        raise InvalidArgument(
            "the partition has tasks that wait for others, and this client would not keep them "
            "waiting: back up with a newer version of weft"
        )
    page = _Page(PAGE_BYTES_MAX, PAGE_RECORDS_MAX)
    lsn, key = request.after_lsn, request.after_key
    if key is None:
        lsn = _batches(state, partition, lsn, wanted, page)
    if wanted is None and not page.full:
        key = _rows(state, partition, key or "", page)
    state.barriers.add(partition)
    answer = wire.Snapped(page.batches, page.rows, lsn, key, page.full, page.ttls_ms)
    state.answer(to, answer, (), {partition})


class _Page:
    def __init__(self, size: int, records: int) -> None:
        self.batches: list[wire.Kept] = []
        self.rows: list[tuple[str, bytes]] = []
        self.ttls_ms: list[int] = []
        self._size = size
        self._records = records
        self.records_read = 0

    @property
    def full(self) -> bool:
        return self._size <= 0 or self._records <= 0

    def take(self, size: int) -> None:
        self._size -= size
        self._records -= 1
        self.records_read += 1

    def end(self) -> None:
        """Leaves the rest to the next page."""
        self._size = 0

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
        data = state.overlay.read(row[0])
        found = head.decode(data) if data else None
        if found is not None and _is_undecided(found):
            if page.records_read:
                page.end()  # the next page asks again
                break
            raise Unavailable("a multicast is not decided yet on the partition: try again")
        kept = _kept(state, partition, lsn, found, wanted) if found is not None else None
        if kept is not None:
            if not page.has_room(len(kept.payload)):
                break
            page.batches.append(kept)
        page.take(len(kept.payload) if kept is not None else 0)
        after = lsn
    return after


def _is_undecided(found: Head) -> bool:
    """True for a multicast without a decision: its messages are in no queue yet."""
    return found.proposal is not None and not found.proposal.decided


def _kept(
    state: EngineState, partition: int, lsn: int, found: Head, wanted: QueueState | None
) -> wire.Kept | None:
    parts: list[wire.KeptPart] = []
    for part in found.parts:
        queue = state.by_id.get(part.queue)
        if queue is None and part.queue in state.orphans:
            raise Unavailable("this node has no record of one of the queues yet: try again")
        if part.hold and _is_staged(state, partition, part):
            continue
        if queue is not None and wanted in (None, queue):
            parts.append(
                wire.KeptPart(part.first, part.count, queue.name, part.deliveries, part.due,
                              part.reason, part.origin, part.waits)
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
        _without_the_gone(bytes(data), found.bodies, parts), found.group,
        _names(state, found.queues),
        found.tenant,
    )  # fmt: skip


def _names(state: EngineState, ids: list[int] | None) -> list[str] | None:
    owners = [state.by_created.get(created_of(each)) for each in ids or ()]
    return None if ids is None else [owner.name if owner else "" for owner in owners]


def _is_staged(state: EngineState, partition: int, part: Part) -> bool:
    """True if the part is staged and unpublished; reserved parts count like leased parts."""
    hold = state.holds.by_key.get(Handle.key_of(partition, part.hold))
    if hold is None or hold.ending:
        raise Unavailable("a reservation or a publish is in progress on the partition: try again")
    return hold.record.staged


def _without_the_gone(payload: bytes, bodies: int, parts: list[wire.KeptPart]) -> bytes:
    living = {
        index % bodies for part in parts for index in range(part.first, part.first + part.count)
    }
    if len(living) == bodies:
        return payload
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
    now = table_rows.clock(state, partition)
    rows = table_rows.rows(state, partition, after)
    while not page.full and (found := next(rows, None)) is not None:
        after, row = found
        left_us = row.expires - now if row.expires else 0
        if left_us > 0 or not row.expires:
            page.rows.append((after, row.value))
            page.ttls_ms.append(-(-left_us // 1000))
        page.take(len(row.value))
    return after


@handles(wire.Restore, wire.RestoreWaiting)
def restore(state: EngineState, request: wire.Restore, to: object) -> None:
    queue, kept = state.queue(request.queue), request.kept
    check_batch(
        wire.Push(queue.name, kept.producer, kept.batch, kept.bodies, 0, kept.priority,
                  kept.dedup_key),
        kept.payload,
    )  # fmt: skip
    if request.purged_only:
        limits.check_range("number", request.number, -_NUMBER_MAX, -1)
    else:
        limits.check_range("number", request.number, 0, _NUMBER_MAX)
    limits.check_range("stamp", kept.stamp, 1, (1 << STAMP_BITS) - 1)
    parts = _parts(state, kept)
    if any(part.waits for part in parts) and not isinstance(request, wire.RestoreWaiting):
        raise InvalidArgument("a batch of a task graph is restored by the request restore_waiting")
    partition = groups.place_of_kept(queue.name, queue.settings, kept, state.partitions)
    if kept.queues is not None:
        _check_copies(state, kept, partition)
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
    name = "".join(f"{half:016x}" for half in backup)
    return table_layout.key(partition, table_rows.RESTORED + name)


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
        payload = _without_the_gone(kept.payload, kept.bodies, living)
        _put(state, queue, partition, msgspec.structs.replace(kept, payload=payload), left)
    state.answer(
        to,
        wire.Pushed(partition, kept.producer, kept.batch, bits.bit_count(), not bits, ""),
        (),
        {partition},
    )


def _check_copies(state: EngineState, kept: wire.Kept, partition: int) -> None:
    copies = len(kept.queues or ())
    limits.check_range("queues", copies, 2, limits.MULTICAST_QUEUES_MAX)
    limits.check_range("messages of all copies", kept.count, copies, limits.BATCH_COUNT_MAX)
    crosses = any(
        part.first // kept.bodies != (part.first + part.count - 1) // kept.bodies
        for part in kept.parts
    )
    if kept.count % copies or crosses:
        raise InvalidArgument("the copies of a multicast are equally long, and a part is in one")
    for name in {part.queue for part in kept.parts}:
        ordered = state.queue(name).settings.ordered
        if ordered and placement.of_text(name, state.partitions) != partition:
            raise InvalidArgument(
                f"{name} is ordered now, and the batch in the backup belongs to another partition: "
                f"restore {name} alone"
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
        if part.due and not 0 < part.due < 1 << STAMP_BITS:
            raise InvalidArgument("a due time is in microseconds since 1970")
        end = part.first + part.count
        limits.check_range("waits", part.waits, RELEASED, limits.GRAPH_PARENTS_MAX)
        if part.waits and not state.queue(part.queue).settings.graphs:
            raise InvalidArgument(
                f"{part.queue} takes no tasks of graphs, and the batch in the backup has some: "
                f"switch graphs on (weft queue update {part.queue} --graphs)"
            )
        groups.check_kept(state.queue(part.queue).settings, part.queue, kept)
        parts.append(
            Part(part.first, part.count, state.queue(part.queue).id, part.deliveries, part.due,
                 part.reason, part.origin, waits=part.waits)
        )  # fmt: skip
    if not parts:
        raise InvalidArgument("a batch without living messages is not restored")
    return parts


def _ids(state: EngineState, names: list[str] | None) -> list[int] | None:
    known = [state.queues.get(name) for name in names or ()]
    return None if names is None else [queue.id if queue is not None else 0 for queue in known]


def _put(
    state: EngineState, queue: QueueState, partition: int, kept: wire.Kept, parts: list[Part]
) -> None:
    parts = merge(
        parts, kept.bodies
    )  # reserved messages were separate parts, and wait now like the others
    lsn, size = state.next_lsn(partition), len(kept.payload)
    new = Head(
        queue.id, kept.producer, kept.batch, kept.count, size, kept.stamp, kept.priority,
        kept.dedup_key, parts, kept.group, _ids(state, kept.queues), kept.tenant,
    )  # fmt: skip
    state.overlay.put(layout.head(partition, lsn), head.encode(new))
    state.overlay.put(layout.body(partition, lsn), kept.payload)
    if kept.stamp + queue.settings.dedup_window_ms * 1000 > state.now:
        # The producer may still resend the batch.
        window = queue.windows.of(partition, state.partitions)
        window.add(kept.stamp, kept.producer, kept.batch, kept.dedup_key, kept.bodies)
    whole = parts[0]
    if (
        kept.queues is None
        and whole.count == kept.count
        and whole.queue == queue.id
        and whole.due <= state.now
        and whole.waits <= 0
    ):
        # One integer in memory, as for any waiting batch; ordered before newer batches.
        batch_handle = Handle.pack(kept.stamp, partition, lsn, kept.count, size)
        queue.bytes += size
        queue.ready += kept.count
        queue.ids.add_returned(kept.priority, IdEntry(batch_handle, WHOLE))
        state.ready_queues[queue.id] = queue
        return
    batch = TouchedBatch.load(partition, lsn, new)
    state.touched[Handle.key(batch.handle)] = batch
    batch.parts = {}
    for part in parts:
        state.wait(state.by_id[part.queue], batch, part)
