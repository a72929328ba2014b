"""room: a producer waits until the buffer of a stochastic queue has room for a batch.

The rules are those of ``node_buffer``. A wait ends in one of four ways:

| event                                        | answer                |
|----------------------------------------------|-----------------------|
| messages are leased, and the batch has room  | 1; the room is kept   |
| `wait_ms` is over, or the node is stopping   | 0                     |
| the queue is deleted                         | QUEUE_NOT_FOUND       |
| the caller is gone                           | none                  |
"""

from __future__ import annotations

from weft import limits
from weft.errors import InvalidArgument, Overloaded
from weft.proto import wire

from .handlers import handles
from .node_buffer import ROOM_KEPT_US, KeptRoom, NodeBuffer, RoomWait
from .queue import QueueState
from .state import EngineState


@handles(wire.Room)
def room(state: EngineState, request: wire.Room, to: object) -> None:
    queue = state.queue(request.queue)
    buffer = queue.buffer
    if buffer is None:
        raise InvalidArgument(f"{queue.name} is not stochastic: its producers do not wait for room")
    limits.check_range("count", request.count, 1, limits.BATCH_COUNT_MAX)
    limits.check_range("wait_ms", request.wait_ms, 0, limits.WAIT_MS_MAX)
    name, now = (request.producer, request.batch), state.now
    buffer.expire(now)
    kept = buffer.reserved.get(name)
    if (kept is not None and request.count <= kept.messages) or (
        not buffer.waiting and buffer.has_room(queue.settings, queue.ready, request.count)
    ):
        _reserve(state, buffer, name, request.count, to)
    elif not request.wait_ms:
        state.answer(to, wire.Done(0))
    elif to not in buffer.waiting:  # otherwise the same request, resent by the caller
        if len(buffer.waiting) >= limits.ROOM_WAITS_MAX:
            raise Overloaded(
                f"{limits.ROOM_WAITS_MAX} producers wait for room in {queue.name} already"
            )
        until = now + request.wait_ms * 1000
        buffer.waiting[to] = RoomWait(name, request.count, now, until)
    state.rooms[queue.id] = queue


def serve(state: EngineState) -> None:
    """Ends expired waits, and gives room to waiting producers in order. Called at the end of each
    round while producers wait or room is kept."""
    now = state.now
    for queue_id, queue in list(state.rooms.items()):
        buffer = queue.buffer
        assert buffer is not None, "only stochastic queues have waiting producers"
        buffer.expire(now)
        for to in [to for to, each in buffer.waiting.items() if each.until <= now]:
            _end(buffer, to, now)
            state.answer(to, wire.Done(0))
        while buffer.waiting:
            to, first = next(iter(buffer.waiting.items()))
            if not buffer.has_room(queue.settings, queue.ready, first.messages):
                break
            _end(buffer, to, now)
            _reserve(state, buffer, first.name, first.messages, to)
        if not buffer.waiting and not buffer.reserved:
            del state.rooms[queue_id]


def next_due(state: EngineState) -> int:
    """The time at which a wait ends or kept room is given up."""
    due = [queue.buffer.next_due() for queue in state.rooms.values() if queue.buffer is not None]
    return min((each for each in due if each is not None), default=state.now)


def cancel(state: EngineState, to: object) -> None:
    """Ends the wait of a caller that is gone."""
    for queue in state.rooms.values():
        if queue.buffer is not None and to in queue.buffer.waiting:
            _end(queue.buffer, to, state.now)


def drain(state: EngineState) -> None:
    """Ends all waits, because the node is stopping."""
    for queue in state.rooms.values():
        if queue.buffer is not None:
            for to in list(queue.buffer.waiting):
                _end(queue.buffer, to, state.now)
                state.answer(to, wire.Done(0))


def dropped(state: EngineState, queue: QueueState) -> None:
    """Fails the waits at a deleted queue."""
    if state.rooms.pop(queue.id, None) is None or queue.buffer is None:
        return
    for to in list(queue.buffer.waiting):
        _end(queue.buffer, to, state.now)
        state.answer(to, wire.Failure("QUEUE_NOT_FOUND", "the queue was deleted", False))


def renewed(state: EngineState, old: QueueState, new: QueueState) -> None:
    """A purged queue keeps its waiting producers and its counters."""
    new.buffer = old.buffer
    if state.rooms.pop(old.id, None) is not None:
        state.rooms[new.id] = new


def _reserve(
    state: EngineState, buffer: NodeBuffer, name: tuple[int, int], count: int, to: object
) -> None:
    buffer.reserved[name] = KeptRoom(count, state.now + ROOM_KEPT_US)
    state.answer(to, wire.Done(1))


def _end(buffer: NodeBuffer, to: object, now: int) -> None:
    buffer.room_wait_us += now - buffer.waiting.pop(to).since
