"""ack, nack, move, extend, and lease expiry: the end of a delivery.

Ack, nack, move, expiry and give-back remove a set of messages from a lease:

- An ack deletes the messages.
- A nack or an expiry returns the messages to their place in the queue and counts one failed
  delivery; after the last allowed delivery the messages move to the dead-letter queue.
- A give-back returns the messages without counting a delivery.
- A move lists the messages in another queue, without counting a delivery.

When a lease expires, only messages handed out to the application count; prefetched messages return
uncounted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft import limits
from weft.errors import InvalidArgument, QueueFull
from weft.proto import dead_letter, wire

from . import message_set
from .handlers import handles
from .head import Part
from .lease import EndedLease, Lease
from .message_id_queue import LSN_BITS
from .queue import QueueState
from .state import EngineState


@handles(wire.Ack)
def ack(state: EngineState, request: wire.Ack, to: object) -> None:
    queue = state.queue(request.queue)
    one = partial(take, state)
    _settle(state, queue, request.receipts, to, one, lambda said: said.acked)


def take(state: EngineState, lease: Lease, bits: int) -> None:
    """Acknowledges messages of a lease."""
    lease.acked |= bits
    lease.queue.acked += bits.bit_count()
    _take_off(state, lease, bits)


def lots(
    state: EngineState, partition: int, acks: list[wire.CommitAck]
) -> tuple[list[tuple[Lease, int]], int]:
    """The leased messages of a commit's receipts by lease, and the number of messages, or at least
    of receipts, that are not leased. A message that was settled before counts as lost."""
    if sum(len(each.receipts) for each in acks) > limits.RECEIPTS_MAX:
        raise InvalidArgument(f"at most {limits.RECEIPTS_MAX} receipts in one call")
    found: dict[Lease, int] = {}
    lost = 0
    for each in acks:
        queue = state.queue(each.queue)
        for receipt in each.receipts:
            if receipt.partition != partition:
                raise InvalidArgument(
                    f"a commit acks messages of one partition, here {partition}, and a receipt is "
                    f"of partition {receipt.partition}: commit the messages of each partition on "
                    "their own"
                )
            lease = state.leases.by_nonce.get(receipt.nonce)
            wanted = _wanted(lease, receipt, queue)
            if lease is None or wanted is None:
                lost += max(1, sum(count for _, count in receipt.ranges))
                continue
            before = found.get(lease, 0)
            lost += (wanted & (before | ~lease.mask)).bit_count()
            found[lease] = before | wanted
    return list(found.items()), lost


@handles(wire.Nack)
def nack(state: EngineState, request: wire.Nack, to: object) -> None:
    limits.check_range("delay_ms", request.delay_ms, 0, limits.DELAY_MS_MAX)
    if len(request.reason.encode()) > limits.REASON_BYTES_MAX:
        raise InvalidArgument(f"a reason has at most {limits.REASON_BYTES_MAX} bytes")
    if request.delay_ms and state.queue(request.queue).settings.ordered:
        raise InvalidArgument(
            f"{request.queue} is ordered: a nacked message is the next one, so set no delay_ms"
        )
    word = "rejected" if request.final else "nacked"
    reason = f"{word}: {request.reason}" if request.reason else word
    due = state.now + request.delay_ms * 1000 if request.delay_ms else 0

    def one(lease: Lease, bits: int) -> None:
        lease.nacked |= bits
        _take_off(state, lease, bits)
        counts = reason if request.counted else None
        _return(state, lease, bits, due, counts, final=request.final)

    queue = state.queue(request.queue)
    _settle(state, queue, request.receipts, to, one, lambda said: said.nacked)


@handles(wire.Move)
def move(state: EngineState, request: wire.Move, to: object) -> None:
    queue, target = state.queue(request.queue), state.queue(request.to)
    _check_move(state, queue, target)

    def one(lease: Lease, bits: int) -> None:
        lease.nacked |= bits
        _take_off(state, lease, bits)
        if state.by_id.get(queue.id) is not queue:
            lease.batch.purged |= bits
            return
        part = lease.part
        for first, count in message_set.runs(bits):
            moved = Part(
                first, count, target.id, part.deliveries, 0, part.reason, part.origin,
                crashes=part.crashes, waits=part.waits,
            )  # fmt: skip
            state.wait(target, lease.batch, moved)

    _settle(state, queue, request.receipts, to, one, lambda said: said.nacked)


def _check_move(state: EngineState, queue: QueueState, target: QueueState) -> None:
    """Refuses a move which a promise of one of the queues forbids."""
    if target is queue:
        raise InvalidArgument(f"the messages are in {queue.name} already: name another queue")
    for each in (queue, target):
        kinds = ("ordered", each.settings.ordered), ("grouped", each.settings.grouped)
        for kind, is_so in kinds:
            if is_so:
                raise InvalidArgument(f"{each.name} is {kind}: a move would break its order")
    most = target.settings.max_messages
    if most and target.messages >= max(1, state.share(most)):
        raise QueueFull(f"{target.name} has {target.messages} messages of at most {most}")


@handles(wire.Extend)
def extend(state: EngineState, request: wire.Extend, to: object) -> None:
    limits.check_range("lease_ms", request.lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)

    def one(lease: Lease, bits: int) -> None:
        lease.lease_us = request.lease_ms * 1000
        if request.handed:
            lease.handed |= bits
        state.leases.timers.set(lease.nonce, state.now + lease.lease_us)
        if lease.queue.settings.ordered:
            state.lent_in_order.add(lease.queue)
        if lease.recorded or state.lease_records.partitions:
            lease.sent = True
            state.lease_records.note(lease)

    queue = state.queue(request.queue)
    _settle(state, queue, request.receipts, to, one, lambda said: 0)


def expire(state: EngineState, nonce: int) -> None:
    """Ends an expired lease: a failed delivery, unless the answer may never have been sent."""
    lease = state.leases.by_nonce[nonce]
    bits = lease.mask
    lease.queue.expired_leases += bits.bit_count()
    _take_off(state, lease, bits)
    handed = 0 if lease.sent is False else bits & lease.handed
    if handed:
        _return(state, lease, handed, 0, "lease expired", crashed=True)
    if bits & ~handed:
        _return(state, lease, bits & ~handed, 0, None)


def give_back(state: EngineState, lent: list[wire.Lent]) -> None:
    """Returns the messages of an unsent answer uncounted: no consumer received the messages."""
    for one in lent:
        lease = state.leases.by_nonce.get(one.nonce)
        if lease is not None:
            bits = lease.mask
            _take_off(state, lease, bits)
            _return(state, lease, bits, 0, None)


def hold(state: EngineState, lent: list[wire.Lent]) -> None:
    """Stops the lease timers of an answer waiting for a commit."""
    for one in lent:
        if one.nonce in state.leases.by_nonce:
            state.leases.timers.clear(one.nonce)


def release(state: EngineState, lent: list[wire.Lent]) -> None:
    """Starts the lease timers of an answer, when the answer is sent."""
    for one in lent:
        lease = state.leases.by_nonce.get(one.nonce)
        if lease is not None:
            state.leases.timers.set(one.nonce, state.now + lease.lease_us)


def _settle(
    state: EngineState,
    queue: QueueState,
    receipts: list[wire.Receipt],
    to: object,
    one: Callable[[Lease, int], None],
    said_before: Callable[[Lease | EndedLease], int],
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
    # A replaced primary, unaware of its replacement, lacks the leases of the new primary.
    state.answer(to, wire.Settled(done, already, lost), (), rests_on, sure=bool(lost))


def _wanted(
    said: Lease | EndedLease | None, receipt: wire.Receipt, queue: QueueState
) -> int | None:
    """The messages of a receipt; None for another queue's lease, or messages outside the lease."""
    if said is None:
        return None
    if isinstance(said, Lease):
        owner, first, count = said.queue.id, said.part.first, said.part.count
    else:
        owner, first, count = said.queue_id, said.first, said.messages
    if owner != queue.id or said.key != receipt.partition << LSN_BITS | receipt.lsn:
        return None
    lent = message_set.of_range(first, count)
    if not receipt.ranges:
        return lent
    for start, length in receipt.ranges:
        if start < first or length < 1 or start + length > first + count:
            return None
    return message_set.of_ranges(receipt.ranges)


def _take_off(state: EngineState, lease: Lease, bits: int) -> None:
    batch, queue = lease.batch, lease.queue
    lease.mask &= ~bits
    queue.leased -= bits.bit_count()
    if bits == 1 == batch.head.count:  # the usual single message
        queue.bytes -= batch.head.size
    else:
        queue.bytes -= sum(batch.share(*run) for run in message_set.runs(bits))
    if not lease.mask:
        state.leases.end(lease, state.now)
        if queue.groups is not None and queue.groups.settle(batch.head.group or ""):
            state.ready_queues[queue.id] = queue
    if queue.limits is not None:
        state.ready_queues[queue.id] = queue  # fewer messages are in flight
    if lease.recorded or state.lease_records.partitions:
        if lease.mask:
            lease.sent = True
            state.lease_records.note(lease)
        else:
            state.lease_records.note_end(state, lease)
    if queue.settings.ordered:
        state.lent_in_order.add(queue)
        if not queue.leased:
            state.ready_queues[queue.id] = queue  # the queue may lend the next lot
    state.changed(batch)


def _return(
    state: EngineState, lease: Lease, bits: int, due: int, reason: str | None, *,
    crashed: bool = False, final: bool = False,
) -> None:  # fmt: skip
    """Returns messages to the queue, or dead-letters them; `reason` None does not count."""
    queue, part = lease.queue, lease.part
    if state.by_id.get(queue.id) is not queue:
        # A purge or delete in the meantime removed the queue's messages.
        lease.batch.purged |= bits
        return
    deliveries = part.deliveries + (reason is not None)
    crashes = part.crashes + crashed
    target, why, origin = queue, part.reason, part.origin
    most = queue.settings.max_deliveries
    final = final or bool(most and deliveries >= most)
    if reason is not None and final and queue.settings.dead_letter:
        target = state.queues[queue.settings.dead_letter]
        why, origin = dead_letter.reason(deliveries, reason), queue.name
        queue.dead_lettered += bits.bit_count()
        deliveries = due = crashes = 0
    for first, count in message_set.runs(bits):
        part = Part(
            first, count, target.id, deliveries, due, why, origin, crashes=crashes,
            waits=lease.part.waits,
        )  # fmt: skip
        state.wait(target, lease.batch, part)
