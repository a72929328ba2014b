"""pop: lends messages; peek: shows them. A pop that finds nothing may wait."""

from __future__ import annotations

from typing import Final

from weft import limits
from weft.errors import Overloaded
from weft.proto import wire

from . import handle
from .batch import Batch, split
from .head import Part
from .idqueue import WHOLE, Entry
from .lease import Lease
from .queue import WAITERS_MAX, Queue, Waiter
from .state import State

#: Lent ranges in one answer: each is a payload frame of its own.
RANGES_MAX: Final = 1024
#: Between two looks at whether a pop whose time is over can be answered.
_DEAF_US: Final = 100_000


def pop(state: State, request: wire.Pop, to: object) -> None:
    queue = state.queue(request.queue)
    limits.check_range("limit", request.limit, 1, limits.POP_COUNT_MAX)
    limits.check_range("wait_ms", request.wait_ms, 0, limits.WAIT_MS_MAX)
    if request.lease_ms:
        limits.check_range("lease_ms", request.lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
    state.check_leases()
    serve_waiters(state, queue)  # who came first is served first
    if not queue.has_some:
        if request.wait_ms:
            _wait(state, queue, request, to)
        else:
            state.answer(to, wire.Popped([]))
    elif (ear := state.ears.deaf(to)) is not None:
        _wait(state, queue, request, to)
        _pass_over(state, ear, queue)
    else:
        state.ears.tell(to, lend(state, queue, request, to))


def _wait(state: State, queue: Queue, request: wire.Pop, to: object) -> None:
    if to in state.waiting:
        return  # the same request, sent again by a caller that grew impatient
    if len(queue.waiters) >= WAITERS_MAX:
        raise Overloaded(f"{WAITERS_MAX} pops wait at {queue.name} already")
    number = state.entropy()
    waiter = Waiter(number, queue, request, to)
    queue.waiters.append(waiter)
    state.waiters[number] = state.waiting[to] = waiter
    state.waiter_timers.set(number, state.now + request.wait_ms * 1000)


def serve_waiters(state: State, queue: Queue) -> None:
    """Gives what has come to those who wait, in the order in which they came. Who is deaf is passed
    over, and keeps its place."""
    passed: list[Waiter] = []
    while queue.has_some and queue.waiters:
        waiter = queue.waiters.popleft()
        ear = state.ears.deaf(waiter.to)
        if ear is not None:
            passed.append(waiter)
            _pass_over(state, ear, queue)
            continue
        strike(state, waiter)
        state.ears.tell(waiter.to, lend(state, queue, waiter.request, waiter.to))
    queue.waiters.extendleft(reversed(passed))


def _pass_over(state: State, ear: int, queue: Queue) -> None:
    state.passed.setdefault(ear, {})[queue.name] = None


def serve_ear(state: State, ear: int) -> None:
    """It listens again: those who were passed over are given what is there now, as long as it
    does."""
    names = state.passed.pop(ear)
    while names and ear not in state.passed:
        name = next(iter(names))
        del names[name]
        queue = state.queues.get(name)
        if queue is not None:
            serve_waiters(state, queue)
    if names:  # deaf again
        state.passed[ear] |= names


def time_out(state: State, waiter: Waiter) -> None:
    """It has waited long enough: for nothing, unless there is something that it cannot hear of."""
    serve_waiters(state, waiter.queue)
    if waiter.number not in state.waiters:
        return
    if waiter.queue.has_some:
        state.waiter_timers.set(waiter.number, state.now + _DEAF_US)
    else:
        give_up(state, waiter)


def give_up(state: State, waiter: Waiter) -> None:
    """A wait is over: its time has come, or its caller has gone."""
    waiter.queue.waiters.remove(waiter)
    strike(state, waiter)
    state.answer(waiter.to, wire.Popped([]))


def strike(state: State, waiter: Waiter) -> None:
    """Takes a waiter off the books; its queue's own list is the caller's to mend."""
    del state.waiters[waiter.number]
    del state.waiting[waiter.to]
    state.waiter_timers.clear(waiter.number)


def lend(state: State, queue: Queue, request: wire.Pop, to: object) -> int:
    """Answers a pop with what is there; the bytes of it."""
    lease_ms = request.lease_ms or queue.settings.lease_ms
    lent: list[wire.Lent] = []
    frames: list[bytes] = []
    count, size = request.limit, limits.POP_BYTES_MAX
    while count and len(lent) < RANGES_MAX and (entry := queue.ids.take()) is not None:
        batch, part = state.part(entry)
        if part.count > count:
            part, rest = split(part, count)
            batch.parts[rest.first] = rest
            queue.ids.add_returned(batch.head.priority, Entry(batch.handle, rest.first))
        frame = _payload(state, batch, part)  # not its share: a part may hold all of the bytes
        if len(frame) > size and lent:  # it waits for the next pop
            batch.parts[part.first] = part
            queue.ids.add_returned(batch.head.priority, Entry(batch.handle, part.first))
            break
        lease = Lease(state.entropy(), queue, batch, part, lease_ms * 1000)
        state.leases.add(lease, state.now + lease.lease_us)
        frames.append(frame)
        lent.append(_lent(batch, part, lease.nonce, lease_ms))
        count -= part.count
        size -= len(frame)
        queue.ready -= part.count
        queue.leased += part.count
    queue.delivered += request.limit - count
    if queue.settings.ordered:
        state.lent_in_order.add(queue)
    state.answer(to, wire.Popped(lent, queue.ready), frames, {one.partition for one in lent})
    return limits.POP_BYTES_MAX - size


def peek(state: State, request: wire.Peek, to: object) -> None:
    queue = state.queue(request.queue)
    limits.check_range("limit", request.limit, 1, limits.POP_COUNT_MAX)
    lent: list[wire.Lent] = []
    frames: list[bytes] = []
    count, size = request.limit, limits.POP_BYTES_MAX
    for entry in queue.ids.peek(min(count, RANGES_MAX)):
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


def _payload(state: State, batch: Batch, part: Part) -> bytes:
    key = handle.key(batch.handle)
    if part.count == batch.head.count:
        return state.payloads.whole(key)
    return state.payloads.part(key, part.first, part.count)


def _lent(batch: Batch, part: Part, nonce: int, lease_ms: int) -> wire.Lent:
    partition, lsn = handle.split_key(handle.key(batch.handle))
    head = batch.head
    return wire.Lent(
        partition, lsn, nonce, part.first, part.count, head.producer, head.batch,
        part.deliveries + bool(nonce), head.stamp // 1000, lease_ms, head.priority, part.reason,
    )  # fmt: skip
