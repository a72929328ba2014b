"""push: add one batch to one queue, once.

Paper 4, section 4.2.2(2): the client names the message and hashes the name to a node; the node
detects a rewrite of the same name. Here the name is the batch's, (producer, batch), and a duplicate
gets the first answer instead of an exception.

A push has two halves: `place` checks whether the queue accepts the batch and adds the records to
the round's changes; `index_push` lists the batch for pops. A round with only one push runs the
second half after the answer is sent.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from weft import limits
from weft.dht import placement
from weft.errors import InvalidArgument, QueueFull, TooLarge, WeftError
from weft.ids import BATCH_BITS, PRODUCER_BITS, partition_of
from weft.persistence import layout
from weft.persistence.store import Change
from weft.proto import uniform_batch, wire

from . import group_push as groups
from . import head
from .dedup import DedupWindow, First
from .handlers import handles
from .head import Head, Part
from .message_id_queue import WHOLE, Handle, IdEntry
from .queue import QueueState
from .state import EngineState

_PRODUCER_MAX: Final = (1 << PRODUCER_BITS) - 1
_BATCH_MAX: Final = (1 << BATCH_BITS) - 1
#: From this average body size on, check bodies through views instead of copies: a view of a body
#: costs more than a copy of a hundred bytes, and as much as a copy of a thousand.
_VIEW_BYTES: Final = 4 * limits.KIB
#: Makes a named tuple without the call of its own constructor.
_new: Final = tuple.__new__


AnyPush = wire.Push | wire.Multicast | wire.PushTopic


class Placed(NamedTuple):
    """A batch about to be written."""

    queue: QueueState
    window: DedupWindow
    partition: int
    lsn: int
    head: Head
    payload: bytes


class SinglePush(NamedTuple):
    """A round consisting of one push."""

    changes: list[Change]
    answer: wire.Pushed
    placed: Placed


@handles(wire.Push, wire.PushGroup, wire.PushTenant)
def push(
    state: EngineState, request: wire.Push, payload: bytes, to: object, durability: str
) -> None:
    queue, partition, window = where(state, request, payload)
    found = first(window, request)
    if found is not None:
        queue.duplicates += 1
        # The first push may be uncommitted: the duplicate's answer waits for the same commit.
        kind = queue.settings.kind
        known = wire.Pushed(partition, *found[:3], True, durability, found.first, kind)
        state.answer(to, known, (), {partition})
        return
    index_push(state, place(state, queue, partition, window, request, payload))
    state.answer(to, answer(queue, request, partition, durability), (), {partition})


def answer(queue: QueueState, request: wire.Push, partition: int, durability: str) -> wire.Pushed:
    return wire.Pushed(
        partition, request.producer, request.batch, request.count, False, durability,
        kind=queue.settings.kind,
    )  # fmt: skip


def place_single_push(state: EngineState, request: wire.Push, payload: bytes) -> Placed | None:
    """Runs the first half of a push independent of waiting pops and earlier pushes.

    Returns None for any other push, and for an invalid push: `push` then raises the error.
    """
    try:
        queue, partition, window = where(state, request, payload)
        if queue.waiters or first(window, request) is not None:
            return None
        return place(state, queue, partition, window, request, payload)
    except WeftError:
        return None


def where(
    state: EngineState, request: wire.Push, payload: bytes
) -> tuple[QueueState, int, DedupWindow]:
    queue = state.queue(request.queue)
    check_batch(request, payload)
    if queue.groups is not None or type(request) is wire.PushGroup:
        partition = groups.place_of(queue.name, queue.settings, request, state.partitions)
        return queue, partition, queue.windows.of(partition, state.partitions)
    if type(request) is wire.PushTenant:
        check_tenant(queue, request.tenant)
    dedup_key, ordered = request.dedup_key, queue.settings.ordered
    if ordered and (request.delay_ms or request.priority):
        raise InvalidArgument(f"{queue.name} is ordered: it has neither delays nor priorities")
    if ordered or dedup_key is not None:
        partition = placement.of_push(
            queue.name, ordered, request.producer, request.batch, dedup_key, state.partitions
        )
    else:
        partition = partition_of(request.producer, request.batch, state.partitions)
    return queue, partition, queue.windows.of(partition, state.partitions)


def place(
    state: EngineState,
    queue: QueueState,
    partition: int,
    window: DedupWindow,
    request: wire.Push,
    payload: bytes,
    decided: bool = False,
) -> Placed:
    """`decided`: a commit has checked the limits, and other pushes may have come since."""
    if not decided:
        check_room(state, queue, request)
        if queue.buffer is not None:
            queue.buffer.admit(queue.name, queue.settings, queue.ready, request)
    stamp, lsn, queue_id, count = state.stamp(), state.next_lsn(partition), queue.id, request.count
    due = state.now + request.delay_ms * 1000 if request.delay_ms else 0
    new = Head(
        queue_id, request.producer, request.batch, count, len(payload), stamp,
        request.priority, request.dedup_key, [Part(0, count, queue_id, 0, due)],
        request.group if type(request) is wire.PushGroup else None,
        None, request.tenant if type(request) is wire.PushTenant else None,
    )  # fmt: skip
    state.overlay.put_records(layout.batch_records(partition, lsn, head.encode(new), payload))
    return _new(Placed, (queue, window, partition, lsn, new, payload))


def index_push(state: EngineState, placed: Placed) -> None:
    queue, window, partition, lsn, new, payload = placed
    key = Handle.key_of(partition, lsn)
    state.payloads.add(key, payload)
    state.remember(key, new)
    window.add(new.stamp, new.producer, new.batch, new.dedup_key, new.count)
    admit(state, queue, partition, lsn, new)
    queue.pushed += new.count
    if queue.buffer is not None:
        queue.buffer.produced(new.count, state.now)


def check_room(state: EngineState, queue: QueueState, request: AnyPush, count: int = 0) -> None:
    """Checks a valid batch, or `count` messages of it, against the limits of node and queue."""
    settings = queue.settings
    kept_ms, most = settings.retention_ms, settings.max_messages
    if kept_ms and request.delay_ms >= kept_ms:
        raise InvalidArgument(
            f"{queue.name} drops messages after retention_ms {kept_ms}, before a delay_ms of "
            f"{request.delay_ms} ends: delay it less, or keep messages longer"
        )
    if state.full:
        state.check_space()
    if not most:
        return
    # A node's share may be less than one batch, so an empty queue gets the whole limit.
    share = state.share(most) if queue.messages else most
    if queue.messages + (count or request.count) > share:
        where = "" if share == most else " on this node, its share of max_messages"
        raise QueueFull(f"{queue.name} has {queue.messages} messages of at most {share}{where}")


def admit(state: EngineState, queue: QueueState, partition: int, lsn: int, new: Head) -> None:
    """Lists an untouched batch as ready or delayed, after a push or a restart."""
    batch_handle = Handle.pack(new.stamp, partition, lsn, new.count, new.size)
    if new.tenant is not None:
        queue.see_tenant(state.describe)
    queue.bytes += new.size
    if new.parts[0].due > state.now:
        queue.delayed += new.count
        queue.ids.add_delayed(new.parts[0].due, new.priority, IdEntry(batch_handle, WHOLE))
        state.delay(queue)
    else:
        queue.ready += new.count
        queue.ids.add_fresh(new.priority, batch_handle)
        state.ready_queues[queue.id] = queue


def admit_copies(state: EngineState, partition: int, lsn: int, new: Head) -> None:
    """Lists the whole copies of an untouched multicast, after the push or a restart."""
    batch_handle = Handle.pack(new.stamp, partition, lsn, new.bodies, new.size)
    by_id, ready_queues, size, priority = state.by_id, state.ready_queues, new.size, new.priority
    for part in new.parts:
        queue, entry = by_id[part.queue], _new(IdEntry, (batch_handle, part.first))
        queue.bytes += size
        if part.due > state.now:
            queue.delayed += part.count
            queue.ids.add_delayed(part.due, priority, entry)
            state.delay(queue)
        else:
            queue.ready += part.count
            queue.ids.add_returned(priority, entry)
            ready_queues[queue.id] = queue


def admit_all(state: EngineState, queue: QueueState, priority: int, handles: list[int]) -> None:
    """Lists untouched ready batches, after a restart."""
    state.ready_queues[queue.id] = queue
    count, size = Handle.totals(handles)
    queue.ready += count
    queue.bytes += size
    queue.ids.add_all_fresh(priority, handles)


def first(window: DedupWindow, request: wire.Push) -> First | None:
    """The first push, if the request is a duplicate."""
    if request.dedup_key is not None:
        found = window.first(request.dedup_key)
        if found is not None:
            return found
    if window.has(request.producer, request.batch):
        return First(request.producer, request.batch, request.count)
    return None


def check_batch(request: AnyPush, payload: bytes) -> None:
    """Validates a batch, regardless of the queue's state."""
    if not (0 <= request.producer <= _PRODUCER_MAX and 0 <= request.batch <= _BATCH_MAX):
        limits.check_range("producer", request.producer, 0, _PRODUCER_MAX)
        limits.check_range("batch", request.batch, 0, _BATCH_MAX)
    if request.delay_ms or request.priority or request.dedup_key is not None:
        _check_options(request)
    size = len(payload)
    if size > limits.BATCH_BYTES_MAX:
        raise TooLarge(f"a batch has at most {limits.BATCH_BYTES_MAX} bytes, this one has {size}")
    count = (
        uniform_batch.count(payload) if request.count > 1 and size <= limits.BODY_BYTES_MAX else 0
    )
    if not count:
        count = _check_payload(payload, size, request.count)
    if count != request.count:
        raise InvalidArgument(f"a batch of {request.count} messages has {count} bodies")
    if not count:
        raise InvalidArgument("a push has at least one message")
    if count > limits.BATCH_COUNT_MAX:
        raise TooLarge(f"a batch has at most {limits.BATCH_COUNT_MAX} messages, not {count}")


def check_tenant(queue: QueueState, tenant: str) -> None:
    limits.check_range("tenant bytes", len(tenant.encode()), 1, limits.TENANT_BYTES_MAX)
    if queue.settings.ordered:
        raise InvalidArgument(
            f"{queue.name} is ordered: its one sequence cannot be divided by tenants. Push without "
            "a tenant, or to a queue that is not ordered"
        )


def _check_payload(payload: bytes, size: int, count: int) -> int:
    """Decodes a payload and returns its number of messages; `count` is the claimed number."""
    large = size >= _VIEW_BYTES * count
    try:
        columns = (wire.decode_payload_views if large else wire.decode_payload)(payload)
    except wire.MALFORMED as error:
        raise InvalidArgument(f"the batch's payload violates the protocol: {error}") from None
    plain = columns.headers is None and columns.keys is None
    if not plain or size > limits.BODY_BYTES_MAX:
        _check_columns(columns, size)
    return len(columns.bodies)


def _check_options(request: AnyPush) -> None:
    limits.check_range("delay_ms", request.delay_ms, 0, limits.DELAY_MS_MAX)
    limits.check_range("priority", request.priority, 0, limits.PRIORITY_MAX)
    if request.dedup_key is not None:
        size = len(request.dedup_key.encode())
        limits.check_range("dedup_key bytes", size, 1, limits.DEDUP_KEY_BYTES_MAX)


def _check_columns(columns: wire.Payload | wire.PayloadViews, size: int) -> None:
    """Skips the per-message checks if the size of the whole payload is within the limit."""
    if size > limits.BODY_BYTES_MAX and max(map(len, columns.bodies)) > limits.BODY_BYTES_MAX:
        raise TooLarge(f"a body has at most {limits.BODY_BYTES_MAX} bytes")
    count = len(columns.bodies)
    for name, column in (("headers", columns.headers), ("keys", columns.keys)):
        if column is not None and len(column) != count:
            raise InvalidArgument(f"{name} has {len(column)} entries for {count} bodies")
    if columns.headers is not None and size > limits.HEADERS_BYTES_MAX:
        for headers in filter(None, columns.headers):
            if sum(len(k.encode()) + len(v.encode()) for k, v in headers.items()) > (
                limits.HEADERS_BYTES_MAX
            ):
                raise TooLarge(
                    f"one message's headers have at most {limits.HEADERS_BYTES_MAX} bytes"
                )
    if columns.keys is not None and size > limits.KEY_BYTES_MAX:
        for key in filter(None, columns.keys):
            if len(key.encode()) > limits.KEY_BYTES_MAX:
                raise TooLarge(f"a key has at most {limits.KEY_BYTES_MAX} bytes")
