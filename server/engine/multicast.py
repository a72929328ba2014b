"""multicast: one batch to several queues, stored by one head and one payload.

A multicast is one batch. Its head has a *copy* of the messages for each destination: destination
`k` has messages `k * bodies` to `(k + 1) * bodies - 1` of the batch, as parts of its own queue
(``head``). The payload has the bodies once. From this follow, without further code:

- All queues or none, across crashes and failovers: one head, one payload, one log entry.
- The payload lives as long as a queue has a message of the batch, and goes with the head.
- Every message has its own id, lease, deliveries and dead-letter move; a purge or delete of one
  queue removes that queue's parts.
- Snapshots, compaction and recovery see a batch like any other.

``destinations`` has the partitions of the copies. Copies on one partition are one log entry.
Destinations that keep an order on several partitions need an agreement of their primaries
(``ordered_multicast``). Within one partition the primary's stamps are one order for all copies, so
conflicting multicasts have one order in all ordered and grouped queues of the partition.
"""

from __future__ import annotations

import msgspec

from weft.errors import Unavailable
from weft.ids import partition_of
from weft.persistence import layout
from weft.proto import wire

from . import head, ordered_multicast, partition_clock, proposal
from .batch import TouchedBatch
from .dedup import DedupWindow, First
from .destinations import (
    AnyMulticast,
    Plan,
    Ranges,
    check_copies,
    is_spread,
    named_queues,
    place_of,
    plan,
)
from .handlers import handles
from .head import Head, Part, Proposal
from .message_id_queue import Handle
from .push import admit, admit_copies, check_batch, check_room
from .queue import QueueState
from .state import EngineState
from .topic import enable, matching


@handles(wire.Multicast)
def multicast(
    state: EngineState, request: wire.Multicast, payload: bytes, to: object, durability: str
) -> None:
    queues = named_queues(state, request.queues)
    check_batch(request, payload)
    _store(state, request, payload, queues, None, to, durability, queues)


@handles(wire.PushTopic)
def push_topic(
    state: EngineState, request: wire.PushTopic, payload: bytes, to: object, durability: str
) -> None:
    topic = state.topic(request.topic)
    check_batch(request, payload)
    bound = [state.queue(name) for name in topic.bindings]
    queues, ranges = bound, None
    if topic.filters:
        headers = wire.decode_payload_views(payload).headers
        found = [matching(each, headers, request.count) for each in topic.bindings.values()]
        queues = [queue for queue, own in zip(bound, found, strict=True) if own]
        ranges = [own for own in found if own]
    if not queues:
        if bound:
            partition = place_of(bound, request, state.partitions)
        else:
            partition = partition_of(request.producer, request.batch, state.partitions)
        state.answer(to, wire.Multicasted(partition, [], durability), (), {partition}, sure=True)
        return
    # All bound queues decide, not only those that match: equal keys meet on one partition.
    _store(state, request, payload, queues, ranges, to, durability, bound)


def _store(
    state: EngineState,
    request: AnyMulticast,
    payload: bytes,
    queues: list[QueueState],
    ranges: list[Ranges] | None,
    to: object,
    durability: str,
    bound: list[QueueState],
) -> None:
    """`ranges`: the bodies for each queue; None: all for all. `bound`: the queues that decide about
    the partition."""
    count, name = request.count, (request.producer, request.batch)
    check_copies(request, len(queues))
    if is_spread(bound, request, state.partitions):
        _store_everywhere(state, request, payload, to, durability)
        return
    partition = place_of(bound, request, state.partitions)
    windows = [
        queue.windows[partition]
        if partition in queue.windows
        else queue.windows.of(partition, state.partitions)
        for queue in queues
    ]
    repeated = _is_resend(windows, *name)
    known = _known(windows, request.dedup_key)
    stored = not repeated and (known is None or None in known)
    if stored:
        if partition in state.proposals.by_partition:
            # A resend to fewer queues of a topic, which do not agree any more.
            proposal.check_not_pending(state, partition, *name)
        grouped = [queue for queue in bound if queue.settings.grouped]
        group = request.conflict_key if grouped else None
        _check_room(state, request, queues, ranges, known)
        enable(state)
        _write(state, partition, request, payload, queues, ranges, known, group)
    copies: list[wire.QueueCopy] = []
    for number, queue in enumerate(queues):
        first = known[number] if known is not None else None
        duplicate = repeated or first is not None
        queue.duplicates += duplicate
        own = [(0, count)] if ranges is None else ranges[number]
        producer, batch, place = (*name, number * count)
        if first is not None:
            producer, batch, place = first.producer, first.batch, first.first
        copies += (wire.QueueCopy(queue.name, producer, batch, place, own, duplicate),)
    state.answer(to, wire.Multicasted(partition, copies, durability), (), {partition})


def _store_everywhere(
    state: EngineState, request: AnyMulticast, payload: bytes, to: object, durability: str
) -> None:
    """Stores a multicast on several partitions, on a node that is its whole cluster."""
    found = plan(state, request, payload)
    assert found is not None, "some queue matches"
    if not state.channels.alone:
        raise Unavailable("another node has just joined: nothing was stored, retry")
    ordered_multicast.enable(state)
    stored = ordered_multicast.store_alone(state, found, request, payload)
    if not stored:
        for queue in found.queues:
            queue.duplicates += 1
    copies = copies_of(found, request, duplicate=not stored)
    answer = wire.Multicasted(found.home, copies, durability)
    state.answer(to, answer, (), set(found.partitions))


def copies_of(found: Plan, request: AnyMulticast, *, duplicate: bool) -> list[wire.QueueCopy]:
    """What a publisher is told of a multicast to several partitions."""
    seen = dict.fromkeys(found.places, 0)
    copies: list[wire.QueueCopy] = []
    for position, (queue, place) in enumerate(zip(found.queues, found.places, strict=True)):
        copies.append(
            wire.QueueCopy(
                queue.name, request.producer, request.batch, seen[place] * request.count,
                found.ranges_of(position, request.count), duplicate, place,
            )
        )  # fmt: skip
        seen[place] += 1
    return copies


def _is_resend(windows: list[DedupWindow], producer: int, batch: int) -> bool:
    """True if a destination knows the name of the batch."""
    for window in windows:  # noqa: SIM110 - a generator costs a call for each window
        if window.has(producer, batch):
            return True
    return False


def _known(windows: list[DedupWindow], key: str | None) -> list[First | None] | None:
    """The first push under the dedup key in each queue; None without a key."""
    return None if key is None else [window.first(key) for window in windows]


def _check_room(
    state: EngineState,
    request: AnyMulticast,
    queues: list[QueueState],
    ranges: list[Ranges] | None,
    known: list[First | None] | None,
) -> None:
    """Checks every destination, before anything is stored."""
    always = state.full or request.delay_ms
    for number, queue in enumerate(queues):
        if not (always or queue.settings.max_messages):
            continue  # nothing to check
        if known is None or known[number] is None:
            count = request.count if ranges is None else _messages(ranges[number])
            check_room(state, queue, request, count)


def _messages(ranges: Ranges) -> int:
    return sum(count for _, count in ranges)


def _write(
    state: EngineState,
    partition: int,
    request: AnyMulticast,
    payload: bytes,
    queues: list[QueueState],
    ranges: list[Ranges] | None,
    known: list[First | None] | None,
    group: str | None,
) -> None:
    stamp, bodies = state.stamp(), request.count
    keepers = 0
    for queue in queues:
        keepers += queue.settings.ordered or queue.settings.grouped
    if keepers > 1:  # an order of two queues: it is part of the order of all multicasts
        stamp = partition_clock.tick(state, partition)
    producer, batch, dedup_key = request.producer, request.batch, request.dedup_key
    due = state.now + request.delay_ms * 1000 if request.delay_ms else 0
    parts: list[Part] = []
    ids: list[int] = []
    owner = queues[0].id
    for number, queue in enumerate(queues):
        ids += (queue.id,)
        if queue.settings.ordered:  # it decides the partition, for a restore from a backup, too
            owner = queue.id
        if known is not None and known[number] is not None:
            continue
        start = number * bodies
        for first, count in ((0, bodies),) if ranges is None else ranges[number]:
            parts += (Part(start + first, count, queue.id, 0, due),)
            queue.pushed += count
        window = queue.windows[partition]
        window.add(stamp, producer, batch, dedup_key, bodies, start)
    new = Head(
        owner, producer, batch, bodies * len(ids), len(payload), stamp, request.priority,
        dedup_key, parts, group, ids if len(ids) > 1 else None,
    )  # fmt: skip
    if keepers > 1 and partition in state.proposals.by_partition:
        record = Proposal(state.entropy(), partition, request.conflict_key, decided=True)
        new = msgspec.structs.replace(new, proposal=record)
        proposal.store(state, partition, new, payload)
        return
    lsn = state.next_lsn(partition)
    state.overlay.put_records(layout.batch_records(partition, lsn, head.encode(new), payload))
    key = Handle.key_of(partition, lsn)
    state.payloads.add(key, payload)
    state.remember(key, new)
    _index(state, partition, lsn, new)


def _index(state: EngineState, partition: int, lsn: int, new: Head) -> None:
    """Lists the messages for pops."""
    bodies, whole = new.bodies, True
    for part in new.parts:
        whole = whole and part.count == bodies
    if whole and new.queues is None:
        admit(state, state.by_id[new.queue], partition, lsn, new)
    elif whole:
        admit_copies(state, partition, lsn, new)
    else:
        batch = TouchedBatch.load(partition, lsn, new)
        state.touched[batch.key] = batch
        batch.parts = {}
        for part in new.parts:
            state.wait(state.by_id[part.queue], batch, part)
