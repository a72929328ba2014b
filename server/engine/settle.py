"""ack, nack, extend, and a lease that runs out: how a delivery ends.

All of them take a set of messages off a lease. An ack leaves them nowhere; a nack and an expiry
put them back where they stood, counted as one failed delivery, or into the dead letter queue when
that was the last one allowed; giving back does the same without counting.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import limits
from weft.errors import InvalidArgument
from weft.proto import wire

from . import handle, mask
from .head import Part
from .lease import Ended, Lease
from .queue import Queue
from .state import State


def ack(state: State, request: wire.Ack, to: object) -> None:
    def one(lease: Lease, bits: int) -> None:
        lease.acked |= bits
        lease.queue.acked += bits.bit_count()
        _take_off(state, lease, bits)

    queue = state.queue(request.queue)
    _settle(state, queue, request.receipts, to, one, lambda said: said.acked)


def nack(state: State, request: wire.Nack, to: object) -> None:
    limits.check_range("delay_ms", request.delay_ms, 0, limits.DELAY_MS_MAX)
    if len(request.reason.encode()) > limits.REASON_BYTES_MAX:
        raise InvalidArgument(f"a reason has at most {limits.REASON_BYTES_MAX} bytes")
    if request.delay_ms and state.queue(request.queue).settings.ordered:
        raise InvalidArgument(f"{request.queue} is ordered: what is nacked comes next, undelayed")
    reason = f"nacked: {request.reason}" if request.reason else "nacked"
    due = state.now + request.delay_ms * 1000 if request.delay_ms else 0

    def one(lease: Lease, bits: int) -> None:
        lease.nacked |= bits
        _take_off(state, lease, bits)
        _return(state, lease, bits, due, reason if request.counted else None)

    queue = state.queue(request.queue)
    _settle(state, queue, request.receipts, to, one, lambda said: said.nacked)


def extend(state: State, request: wire.Extend, to: object) -> None:
    limits.check_range("lease_ms", request.lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)

    def one(lease: Lease, bits: int) -> None:
        lease.lease_us = request.lease_ms * 1000
        state.leases.timers.set(lease.nonce, state.now + lease.lease_us)
        if lease.queue.settings.ordered:
            state.lent_in_order.add(lease.queue)

    queue = state.queue(request.queue)
    _settle(state, queue, request.receipts, to, one, lambda said: 0)


def expire(state: State, nonce: int) -> None:
    """A lease has run out."""
    lease = state.leases.by_nonce[nonce]
    bits = lease.mask
    lease.queue.expired_leases += bits.bit_count()
    _take_off(state, lease, bits)
    _return(state, lease, bits, 0, "lease expired")


def give_back(state: State, lent: list[wire.Lent]) -> None:
    """An answer could not be sent: nobody has seen its messages."""
    for one in lent:
        lease = state.leases.by_nonce.get(one.nonce)
        if lease is not None:
            bits = lease.mask
            _take_off(state, lease, bits)
            _return(state, lease, bits, 0, None)


def hold(state: State, lent: list[wire.Lent]) -> None:
    """An answer waits for what it rests on: until it goes out, its leases do not run."""
    for one in lent:
        if one.nonce in state.leases.by_nonce:
            state.leases.timers.clear(one.nonce)


def release(state: State, lent: list[wire.Lent]) -> None:
    """It goes out now, and its leases begin."""
    for one in lent:
        lease = state.leases.by_nonce.get(one.nonce)
        if lease is not None:
            state.leases.timers.set(one.nonce, state.now + lease.lease_us)


def _settle(
    state: State,
    queue: Queue,
    receipts: list[wire.Receipt],
    to: object,
    one: Callable[[Lease, int], None],
    said_before: Callable[[Lease | Ended], int],
) -> None:
    if len(receipts) > limits.RECEIPTS_MAX:
        raise InvalidArgument(f"at most {limits.RECEIPTS_MAX} receipts in one call")
    done = already = 0
    lost: list[int] = []
    for position, receipt in enumerate(receipts):
        lease = state.leases.by_nonce.get(receipt.nonce)
        said = lease if lease is not None else state.leases.ended.get(receipt.nonce)
        wanted = _wanted(said, receipt, queue)
        if said is None or wanted is None:
            lost.append(position)
            continue
        out = wanted & lease.mask if lease is not None else 0
        again = wanted & ~out & said_before(said)
        if wanted & ~out & ~again:
            lost.append(position)
        if out and lease is not None:
            one(lease, out)
        done += out.bit_count()
        already += again.bit_count()
    rests_on = {receipt.partition for receipt in receipts}
    state.answer(to, wire.Settled(done, already, lost), (), rests_on)


def _wanted(said: Lease | Ended | None, receipt: wire.Receipt, queue: Queue) -> int | None:
    """The messages a receipt names; None if it is not this queue's, or names what was not lent."""
    if said is None:
        return None
    if isinstance(said, Lease):
        owner, first, count = said.queue.id, said.part.first, said.part.count
    else:
        owner, first, count = said.queue_id, said.first, said.messages
    if owner != queue.id or said.key != handle.key_of(receipt.partition, receipt.lsn):
        return None
    lent = mask.of_range(first, count)
    if not receipt.ranges:
        return lent
    for start, length in receipt.ranges:
        if start < first or length < 1 or start + length > first + count:
            return None
    return mask.of_ranges(receipt.ranges)


def _take_off(state: State, lease: Lease, bits: int) -> None:
    batch, queue = lease.batch, lease.queue
    lease.mask &= ~bits
    queue.leased -= bits.bit_count()
    queue.bytes -= sum(batch.share(*run) for run in mask.runs(bits))
    if not lease.mask:
        state.leases.end(lease, state.now)
    if queue.settings.ordered:
        state.lent_in_order.add(queue)
        if not queue.leased:
            state.stirred[queue.id] = queue  # the next lot may go out
    state.changed(batch)


def _return(state: State, lease: Lease, bits: int, due: int, reason: str | None) -> None:
    """Puts messages back; `reason` None gives them back uncounted."""
    queue, part = lease.queue, lease.part
    if state.by_id.get(queue.id) is not queue:
        return  # the queue was purged or deleted meanwhile, and its messages with it
    deliveries = part.deliveries + (reason is not None)
    target, why, origin = queue, part.reason, part.origin
    most = queue.settings.max_deliveries
    if reason is not None and most and deliveries >= most:
        target = state.queues[queue.settings.dead_letter]
        why, origin = f"{deliveries} deliveries, the last one {reason}", queue.name
        queue.dead_lettered += bits.bit_count()
        deliveries = due = 0
    for first, count in mask.runs(bits):
        state.wait(target, lease.batch, Part(first, count, target.id, deliveries, due, why, origin))
