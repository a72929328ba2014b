"""pop: lease messages; peek: read messages without a lease. A pop of an empty queue may wait."""

from __future__ import annotations

from typing import Final

from weft import limits
from weft.errors import Overloaded
from weft.proto import wire

from .batch import TouchedBatch, split
from .groups import PREFETCHED_GROUPS_MAX, GroupLot
from .handlers import handles
from .head import Part
from .lease import Lease
from .message_id_queue import WHOLE, Handle, IdEntry
from .queue import WAITERS_MAX, QueueState, Waiter
from .state import EngineState

#: Leased ranges in one answer; each range has a separate payload frame.
RANGES_MAX: Final = 1024
#: Messages in one answer together with a message which may have crashed a worker, by the deliveries
#: left after the current one: each crash narrows the suspects down; the last delivery is alone.
LOTS_MAX: Final = (1, 8, 64, 512, 4096)
#: Retry interval of a timed-out pop blocked by backpressure, in microseconds.
_DEAF_US: Final = 100_000
_WAIT_MS_MAX: Final = limits.WAIT_MS_MAX


@handles(wire.Pop)
def pop(state: EngineState, request: wire.Pop, to: object) -> None:
    queue = state.queue(request.queue)
    if not (0 < request.limit <= limits.POP_COUNT_MAX and 0 <= request.wait_ms <= _WAIT_MS_MAX):
        limits.check_range("limit", request.limit, 1, limits.POP_COUNT_MAX)
        limits.check_range("wait_ms", request.wait_ms, 0, _WAIT_MS_MAX)
    if request.lease_ms:
        limits.check_range("lease_ms", request.lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
    state.check_leases()
    if queue.waiters:
        serve_waiters(state, queue)  # earlier pops first
    if queue.buffer is not None:
        queue.buffer.probed(found=queue.has_some, waits=request.wait_ms > 0)
    if not queue.has_some:
        if request.wait_ms:
            _wait(state, queue, request, to)
        else:
            queue.empty_pops += 1
            state.answer(to, _nothing(state, queue))
    elif (peer := state.backpressure.blocked_peer(to)) is not None:
        _wait(state, queue, request, to)
        _pass_over(state, peer, queue)
    else:
        state.backpressure.tell(to, lend(state, queue, request, to))


def _wait(state: EngineState, queue: QueueState, request: wire.Pop, to: object) -> None:
    if to in state.waiting:
        return  # the same request, resent by the caller
    if len(queue.waiters) >= WAITERS_MAX:
        raise Overloaded(f"{WAITERS_MAX} pops wait at {queue.name} already")
    number = state.entropy()
    waiter = Waiter(number, queue, request, to, state.now)
    queue.waiters.append(waiter)
    state.waiters[number] = state.waiting[to] = waiter
    state.waiter_timers.set(number, state.now + request.wait_ms * 1000)
    if queue.limits is not None:
        state.delay(queue)


def serve_waiters(state: EngineState, queue: QueueState) -> None:
    """Serves waiting pops in order of arrival. A pop blocked by backpressure is skipped and keeps
    its place."""
    deferred: list[Waiter] = []
    while queue.has_some and queue.waiters:
        waiter = queue.waiters.popleft()
        peer = state.backpressure.blocked_peer(waiter.to)
        if peer is not None:
            deferred.append(waiter)
            _pass_over(state, peer, queue)
            continue
        strike(state, waiter)
        state.backpressure.tell(waiter.to, lend(state, queue, waiter.request, waiter.to))
    queue.waiters.extendleft(reversed(deferred))


def _pass_over(state: EngineState, peer: int, queue: QueueState) -> None:
    state.deferred.setdefault(peer, {})[queue.name] = None


def serve_peer(state: EngineState, peer: int) -> None:
    """Serves the deferred pops of a connection released from backpressure, until the connection
    is blocked again."""
    names = state.deferred.pop(peer)
    while names and peer not in state.deferred:
        name = next(iter(names))
        del names[name]
        queue = state.queues.get(name)
        if queue is not None:
            serve_waiters(state, queue)
    if names:  # blocked again
        state.deferred[peer] |= names


def time_out(state: EngineState, waiter: Waiter) -> None:
    """Ends a timed-out wait, or retries later if backpressure blocks the pop of ready messages."""
    serve_waiters(state, waiter.queue)
    if waiter.number not in state.waiters:
        return
    if waiter.queue.has_some:
        state.waiter_timers.set(waiter.number, state.now + _DEAF_US)
    else:
        give_up(state, waiter)


def give_up(state: EngineState, waiter: Waiter) -> None:
    """Answers a waiting pop with no messages: the pop timed out, or the caller is gone."""
    waiter.queue.waiters.remove(waiter)
    strike(state, waiter)
    state.answer(waiter.to, _nothing(state, waiter.queue))


def _nothing(state: EngineState, queue: QueueState) -> wire.Popped:
    if queue.buffer is None:
        return wire.Popped([])
    return wire.Popped([], probe=queue.buffer.report(queue.settings, state.now))


def strike(state: EngineState, waiter: Waiter) -> None:
    """Unregisters a waiter. The calling function removes the waiter from the queue's list."""
    del state.waiters[waiter.number]
    del state.waiting[waiter.to]
    state.waiter_timers.clear(waiter.number)
    if waiter.queue.buffer is not None:
        waiter.queue.buffer.blocked_us += state.now - waiter.since


def lend(state: EngineState, queue: QueueState, request: wire.Pop, to: object) -> int:
    """Answers a pop with ready messages under leases; returns the payload bytes."""
    lease_ms = request.lease_ms or queue.settings.lease_ms
    lent: list[wire.Lent] = []
    frames: list[bytes] = []
    count, size, given = request.limit, limits.POP_BYTES_MAX, 0
    if queue.limits is not None:
        count = min(count, queue.limits.allowance(queue))
    groups, take = queue.groups, queue.ids.take
    if groups is not None:
        take = GroupLot(groups, PREFETCHED_GROUPS_MAX if request.prefetch else 0).take
    while count and len(lent) < RANGES_MAX and (entry := take()) is not None:
        batch, part = state.part(entry)
        if part.crashes and (most := lot_max(queue, part)):
            # The limit covers the whole answer: a crash hits all messages of the answer together.
            count = min(count, most - given)
            if count <= 0:
                _put_back(queue, batch, part)
                break
        if part.count > count:
            part, rest = split(part, count)
            _put_back(queue, batch, rest)
        frame = _payload(state, batch, part)  # not `share`: one part may hold all of the bytes
        if len(frame) > size and lent:  # the part waits for the next pop
            _put_back(queue, batch, part)
            break
        lease = Lease(state.entropy(), queue, batch, part, lease_ms * 1000)
        alone = part.crashes > 0 and lot_max(queue, part) == 1
        if request.prefetch and (alone or not request.handed):
            lease.handed = 0
        state.leases.add(lease, state.now + lease.lease_us)
        if groups is not None:
            groups.lend(batch.head.group or "", batch.handle)
            state.lease_records.note(lease)
        elif state.lease_records.partitions or queue.settings.keep_leases:
            state.lease_records.note(lease)
        frames.append(frame)
        lent.append(_lent(batch, part, lease.nonce, lease_ms, alone))
        count -= part.count
        size -= len(frame)
        given += part.count
        queue.ready -= part.count
        queue.leased += part.count
    queue.delivered += given
    if queue.settings.ordered:
        state.lent_in_order.add(queue)
    left = queue.ready if groups is None else groups.takeable
    if queue.limits is not None:
        queue.limits.take(queue, given)
        left = queue.takeable
        state.delay(queue)
    answer = wire.Popped(lent, left)
    if queue.buffer is not None:
        answer = wire.Popped(lent, left, probe=queue.buffer.report(queue.settings, state.now))
    state.answer(to, answer, frames, {one.partition for one in lent})
    given_bytes = limits.POP_BYTES_MAX - size
    queue.lent_bytes += given_bytes
    return given_bytes


def lot_max(queue: QueueState, part: Part) -> int:
    """Maximum messages leased together with a part of a crashed delivery; 0: no limit.

    Without the limit, a message which crashes its workers would take its neighbours to the
    dead-letter queue, because each crash fails all of them. So lots shrink as deliveries run out.
    """
    most = queue.settings.max_deliveries
    left = max(0, most - part.deliveries - 1)
    return LOTS_MAX[left] if most and left < len(LOTS_MAX) else 0


def _put_back(queue: QueueState, batch: TouchedBatch, part: Part) -> None:
    """Returns a part to its place in the queue, for the next pop."""
    batch.parts[part.first] = part
    queue.ids.put_back(batch.head.priority, IdEntry(batch.handle, part.first))


@handles(wire.Peek)
def peek(state: EngineState, request: wire.Peek, to: object) -> None:
    queue = state.queue(request.queue)
    limits.check_range("limit", request.limit, 1, limits.POP_COUNT_MAX)
    lent: list[wire.Lent] = []
    frames: list[bytes] = []
    count, size = request.limit, limits.POP_BYTES_MAX
    most = min(count, RANGES_MAX)
    for entry in queue.ids.peek_delayed(most) if request.delayed else queue.ids.peek(most):
        batch = state.touch(entry.handle)
        part = batch.parts[0 if entry.first == WHOLE else entry.first]
        if part.count > count:
            part, _ = split(part, count)
        frame = _payload(state, batch, part)
        if len(frame) > size and lent:
            break
        frames.append(frame)
        lent.append(_lent(batch, part, 0, 0))
        count -= part.count
        size -= len(frame)
        if not count or len(lent) == RANGES_MAX:
            break
    state.answer(to, wire.Peeked(lent), frames, {one.partition for one in lent})


def _payload(state: EngineState, batch: TouchedBatch, part: Part) -> bytes:
    bodies = batch.bodies
    if part.count == bodies:
        return state.payloads.whole(batch.key)
    return state.payloads.part(batch.key, part.first % bodies, part.count)


def _lent(
    batch: TouchedBatch, part: Part, nonce: int, lease_ms: int, alone: bool = False
) -> wire.Lent:
    partition, lsn = Handle.split_key(batch.key)
    head = batch.head
    return wire.Lent(
        partition, lsn, nonce, part.first, part.count, head.producer, head.batch,
        part.deliveries + bool(nonce), head.stamp // 1000, lease_ms, head.priority, part.reason,
        alone, part.origin, part.due // 1000, head.group,
    )  # fmt: skip
