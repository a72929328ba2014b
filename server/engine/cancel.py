"""cancel: remove one waiting message, ready or delayed, by its id.

An id is (partition, producer, batch, index), but batches are listed by arrival. So a job (like
redrive) searches the queue's batches on the partition, some heads per round: a cancel costs one
read for each batch of the queue on the partition, and never stops the node. The removal itself is
one step on the current state.

A message leased to a consumer or reserved by a subscription is not removed: MessageLeased. A
missing message (acked, dropped, cancelled before, or never pushed to the queue) is no error: the
answer counts 0. So a client may retry a cancel: after a lost answer the retry removes nothing and
correctly counts 0, and the message is not delivered in either case.
"""

from __future__ import annotations

from collections.abc import Generator

from weft import limits
from weft.errors import MessageLeased, NotPrimary, Overloaded, Unavailable, WeftError
from weft.ids import BATCH_BITS, PRODUCER_BITS
from weft.persistence import layout
from weft.proto import wire

from . import head
from .batch import TouchedBatch, narrow
from .cleanup import STEP
from .handlers import handles
from .head import Head
from .message_id_queue import Handle
from .queue import QueueState
from .state import EngineState


@handles(wire.Cancel)
def cancel(state: EngineState, request: wire.Cancel, to: object) -> None:
    queue = state.queue(request.queue)
    limits.check_range("producer", request.producer, 0, (1 << PRODUCER_BITS) - 1)
    limits.check_range("batch", request.batch, 0, (1 << BATCH_BITS) - 1)
    limits.check_range("index", request.index, 0, limits.BATCH_COUNT_MAX - 1)
    if not 0 <= request.partition < state.partitions:
        state.answer(to, wire.Done(0))  # no message has such an id
        return
    state.jobs.append(_cancel(state, queue, request, to))


def _cancel(
    state: EngineState, queue: QueueState, request: wire.Cancel, to: object
) -> Generator[None]:
    partition = request.partition
    try:
        found = yield from _find(state, queue, request)
        if state.by_id.get(queue.id) is not queue:
            found = None  # purged or deleted during the search
        count = 0 if found is None else _remove(state, queue, found, request.index)
    except NotPrimary as error:
        state.answer(to, wire.Failure(error.code, error.message, error.retriable))
        return
    except WeftError as error:
        failure = wire.Failure(error.code, error.message, error.retriable)
        state.answer(to, failure, (), {partition}, sure=True)
        return
    state.answer(to, wire.Done(count), (), {partition}, sure=not count)


def _find(
    state: EngineState, queue: QueueState, request: wire.Cancel
) -> Generator[None, None, TouchedBatch | None]:
    """The touched batch; None if no batch of the name has a message of the queue."""
    _check_led(state, request.partition)
    partition, name = request.partition, (request.producer, request.batch)
    if state.proposals.of_name(partition, *name) is not None:
        raise Unavailable("the message is of a multicast that is not in its queues yet: retry")
    # Every message of the queue is listed, held, or leased; the batch of a leased one is touched.
    touched = [key for key in state.touched if Handle.split_key(key)[0] == partition]
    listed = [each for each in queue.ids.handles() if Handle.partition(each) == partition]
    held = [
        each
        for hold in state.holds.by_key.values()
        if hold.partition == partition
        for each in hold.pieces
    ]
    for step, key in enumerate([*touched, *map(Handle.key, [*listed, *held])]):
        if step and step % STEP == 0:
            yield
            _check_led(state, partition)
        known = _head(state, key)
        if known is not None and (known.producer, known.batch) == name:
            batch = state.touch(
                TouchedBatch.load(partition, Handle.split_key(key)[1], known).handle
            )
            if batch.is_set_aside(state.by_id):
                del state.touched[key]  # its holds rewrite the stored head
            if _holds(batch, queue):  # queues may have batches of the same name
                return batch
    return None


def _check_led(state: EngineState, partition: int) -> None:
    """After losing the partition this node lists no messages, so the search proves nothing."""
    if partition not in state.led:
        raise NotPrimary("another node leads the message's partition now: nothing was done")


def _holds(batch: TouchedBatch, queue: QueueState) -> bool:
    """True if the queue has a message of the batch, leased or not."""
    if any(part.queue == queue.id for part in batch.parts.values()):
        return True
    return any(lease.queue is queue for lease in batch.leases.values())


def _head(state: EngineState, key: int) -> Head | None:
    """The head of a batch; None if the batch was removed after the listing."""
    batch = state.touched.get(key)
    if batch is not None:
        return batch.head
    found = state.recent.get(key)
    if found is not None:
        return found
    data = state.overlay.read(layout.head(*Handle.split_key(key)))
    return None if data is None else head.decode(data)


def _remove(state: EngineState, queue: QueueState, batch: TouchedBatch, index: int) -> int:
    for lease in batch.leases.values():
        if lease.queue is queue and lease.mask >> index & 1:
            raise MessageLeased(
                f"a consumer of {queue.name} has leased the message: cancel it after a nack or the "
                "end of the lease"
            )
    for part in batch.parts.values():
        if part.first <= index < part.first + part.count and part.queue == queue.id:
            break
    else:
        return 0
    if part.waits:
        raise MessageLeased(
            f"the message is of a task graph, and other messages of {queue.name} may wait for its "
            "end: cancel the task, or the graph (weft tasks cancel)"
        )
    if part.hold:
        raise MessageLeased(f"a subscription of {queue.name}, or a stage, holds the message")
    delayed = queue.ids.remove(batch.handle, part.first)
    if delayed is None:
        raise Overloaded(f"a redrive of {queue.name} is moving the message: cancel it again later")
    if delayed:
        queue.delayed -= part.count
        state.delay(queue)
    else:
        queue.ready -= part.count
    queue.bytes -= batch.share(part.first, part.count)
    del batch.parts[part.first]
    before, after = index - part.first, part.first + part.count - index - 1
    if before:
        state.wait(queue, batch, narrow(part, part.first, before))
    if after:
        state.wait(queue, batch, narrow(part, index + 1, after))
    state.changed(batch)
    return 1
