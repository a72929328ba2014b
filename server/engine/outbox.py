"""The outbox: effects of commits on other partitions, and the channels that carry them.

The decision about a multicast to several partitions is a commit, too, of its coordinator.

A commit is decided by one log entry of its home partition (``commit``). An effect on another
partition is a *delivery*: a record of the home, written in the deciding entry. The home's primary
sends deliveries to their partitions (``core.outbox_delivery``) and deletes those that were taken.

A *channel* leads from one source partition to one destination. The source numbers its deliveries by
its lsn counter, so numbers increase, across failovers too. The destination stores the last number
that it has taken, its *mark*, in the same log entry as the effects.

Invariants:

- A delivery leaves the source only when the deciding entry is committed.
- A request to a destination has every delivery after a number `after`, up to the last one listed,
  and the destination has taken everything up to `after`. So a destination that skips what its mark
  covers, and takes the rest in order, takes each delivery once, however often requests are resent,
  reordered, or sent by an earlier primary of the source.
- A mark changes only together with the effects that it covers.
- A decided effect is not refused: `max_messages` does not apply, a full disk makes it wait.

| the destination finds                       | what becomes of the effect                    |
|---------------------------------------------|-----------------------------------------------|
| a queue that was deleted, or purged since   | dropped, and counted in `Channels.dropped`    |
| a push whose name or dedup key it has       | nothing is stored: it is a duplicate          |
| a value that an append would make too long  | dropped, and counted                          |
| an arrival for a message that waits no more | nothing: a failed parent has released it      |

A source that lost its data begins another channel, under another random name; its numbers then
start again. One that continues from an older copy keeps its channel, and passes over the numbers
that the lost copies may have assigned (`LSNS_LOST`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from weft import limits
from weft.dht import table_verbs
from weft.errors import InvalidArgument, Overloaded, TooLarge
from weft.persistence import channel_layout, layout
from weft.proto import wire

from . import graph_push, parent_counts, proposal, push, table, table_rows
from .channels import ChannelMark, OutboxEntry, SourceOutbox
from .handlers import handles
from .parent_counts import DecidedArrival
from .proposal import AssignedNumber
from .queue import created_of

if TYPE_CHECKING:
    from .state import EngineState

#: Bytes and deliveries of one request: a round stays short.
PAGE_BYTES_MAX: Final = limits.MIB
PAGE_DELIVERIES_MAX: Final = 500


class DecidedPush(msgspec.Struct, array_like=True, frozen=True):
    #: The id of the queue at the time of the commit.
    queue: int
    push: wire.AnyPush
    payload: bytes


class Effects(msgspec.Struct, array_like=True, frozen=True):
    """The stored form of a delivery: the effects of one commit on one partition."""

    pushes: list[DecidedPush]
    writes: list[wire.AnyWrite]
    arrivals: list[DecidedArrival] = []
    #: Decisions about multicasts (``ordered_multicast``).
    assigned: list[AssignedNumber] = []


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Effects).decode
_decode_mark = msgspec.msgpack.Decoder(ChannelMark).decode
_decode_channel = msgspec.msgpack.Decoder(int).decode


# --- the source -------------------------------------------------------------------------------


def prepare(effects: dict[int, Effects]) -> list[tuple[int, Effects, bytes]]:
    """The effects by destination, encoded."""
    return [(destination, each, _encode(each)) for destination, each in effects.items()]


def check_room(state: EngineState, source: int, prepared: list[tuple[int, Effects, bytes]]) -> None:
    """Raises Overloaded if the outbox of the source has no room for these deliveries."""
    if not has_room(state, source, prepared):
        outbox = state.channels.outboxes[source]
        raise Overloaded(
            f"partition {source} keeps {outbox.count} effects of commits, {outbox.bytes} bytes, "
            "for partitions that have not taken them: nothing was changed, retry later"
        )


def has_room(state: EngineState, source: int, prepared: list[tuple[int, Effects, bytes]]) -> bool:
    outbox = state.channels.outboxes.get(source)
    if outbox is None:
        return True
    size = sum(len(data) for _, _, data in prepared)
    return (
        outbox.count + len(prepared) <= limits.OUTBOX_ENTRIES_MAX
        and outbox.bytes + size <= limits.OUTBOX_BYTES_MAX
    )


def add(state: EngineState, source: int, prepared: list[tuple[int, Effects, bytes]]) -> None:
    """Adds deliveries to the round's changes."""
    outbox = state.channels.outboxes.get(source)
    if outbox is None:
        outbox = state.channels.outboxes[source] = SourceOutbox(state.entropy())
        state.overlay.put(channel_layout.channel(source), _encode(outbox.channel))
    number = state.next_lsn(source)
    for destination, effects, data in prepared:
        state.overlay.put(channel_layout.delivery(source, destination, number), data)
        outbox.enter(destination, number, _entry(effects, data))


def _entry(effects: Effects, data: bytes) -> OutboxEntry:
    queues = {each.queue for each in effects.pushes}
    queues.update(each.queue for each in effects.arrivals)
    queues.update(queue for each in effects.assigned for queue in each.queues)
    tokens = frozenset(each.token for each in effects.assigned)
    return OutboxEntry(len(data), frozenset(queues), tokens)


def has_decision(state: EngineState, source: int, destination: int, token: int) -> bool:
    """True if a decision about the multicast is on its way to the destination."""
    outbox = state.channels.outboxes.get(source)
    waiting = outbox.deliveries.get(destination, {}) if outbox is not None else {}
    return any(token in each.tokens for each in waiting.values())


def owes(state: EngineState, source: int) -> bool:
    """True if the source has deliveries."""
    outbox = state.channels.outboxes.get(source)
    return outbox is not None and bool(outbox.deliveries)


def has_token(state: EngineState, source: int, token: int) -> bool:
    """True if a decision about the multicast is on its way to any destination."""
    outbox = state.channels.outboxes.get(source)
    destinations = outbox.deliveries if outbox is not None else ()
    return any(has_decision(state, source, each, token) for each in destinations)


@handles(wire.ReadOutbox)
def read_outbox(state: EngineState, request: wire.ReadOutbox, to: object) -> None:
    """Answers with the first deliveries; the answer waits until they are committed.

    A page leaves out destinations that refuse, and the destinations of a page come last in the next
    one: else the deliveries for a partition without a primary could fill every page.
    """
    source = request.partition
    outbox = state.channels.outboxes.get(source)
    if outbox is None or not outbox.deliveries:
        state.answer(to, wire.Outbox(0, [], [], [], []), (), {source})
        return
    size, count = PAGE_BYTES_MAX, PAGE_DELIVERIES_MAX
    after: list[int] = []
    entries: list[list[tuple[int, bytes]]] = []
    queues: list[list[int]] = []
    destinations: list[int] = []
    for destination in [each for each in outbox.deliveries if each not in outbox.refusing]:
        if size <= 0 or count <= 0:
            break
        waiting = outbox.deliveries[destination] = outbox.deliveries.pop(destination)
        page: list[tuple[int, bytes]] = []
        named: set[int] = set()
        for number, delivery in waiting.items():
            if size <= 0 or count <= 0:
                break
            data = state.overlay.read(channel_layout.delivery(source, destination, number))
            assert data is not None, "a delivery in memory is in the store"
            page.append((number, bytes(data)))
            named |= delivery.queues
            size -= delivery.size
            count -= 1
        destinations.append(destination)
        after.append(outbox.taken.get(destination, 0))
        entries.append(page)
        queues.append(sorted(named))
    answer = wire.Outbox(outbox.channel, destinations, after, entries, queues)
    state.answer(to, answer, (), {source})


def close(state: EngineState, source: int, channel: int, destination: int, number: int) -> None:
    """Deletes the deliveries that the destination has taken."""
    outbox = state.channels.outboxes.get(source)
    if outbox is None or outbox.channel != channel:
        return  # another node leads the source now
    for each in outbox.close(destination, number):
        state.overlay.delete(channel_layout.delivery(source, destination, each))


# --- the destination --------------------------------------------------------------------------


@handles(wire.Deliver)
def deliver(state: EngineState, request: wire.Deliver, to: object) -> None:
    """Takes the deliveries after the mark, in order, each with its effects in the same entry.

    The catalogue of this node has every change that the queues of the request need: a queue that is
    not known was deleted (``request_router``).
    """
    if not len(request.partitions) == len(request.after) == len(request.entries):
        raise InvalidArgument("the columns of a request differ in length")
    state.check_space()
    numbers: list[int] = []
    for partition, after, entries in zip(
        request.partitions, request.after, request.entries, strict=True
    ):
        mark = state.channels.marks.get((partition, request.source))
        last = mark.number if mark is not None and mark.channel == request.channel else 0
        level = max(last, after)
        for number, data in entries:
            if number > level:
                _take(state, partition, _decode(data))
                level = number
        if mark is None or mark.channel != request.channel or level > last:
            _mark(state, partition, request.source, ChannelMark(request.channel, level))
        numbers.append(level)
    state.answer(to, wire.Taken(numbers), (), set(request.partitions))


def _mark(state: EngineState, partition: int, source: int, mark: ChannelMark) -> None:
    state.channels.marks[partition, source] = mark
    state.overlay.put(channel_layout.channel_mark(partition, source), _encode(mark))


def _take(state: EngineState, partition: int, effects: Effects) -> None:
    for decided in effects.pushes:
        queue = state.by_id.get(decided.queue)
        if queue is None:
            state.channels.dropped += decided.push.count
            continue
        apply_push(state, queue.name, partition, decided.push, decided.payload)
    for write in effects.writes:
        row = table_rows.find(state, partition, write.key)
        current, version = (None, 0) if row is None else (row.value, row.version)
        try:
            done, value = table_verbs.writes.by_request[type(write)](write, current, version)
        except TooLarge:
            state.channels.dropped += 1
            continue
        if done:
            table.change(state, partition, write, row, value)
    for arrival in effects.arrivals:
        parent_counts.apply(state, partition, arrival)
    for each in effects.assigned:
        proposal.take(state, partition, each)


def apply_push(
    state: EngineState, name: str, partition: int, request: wire.AnyPush, payload: bytes
) -> None:
    """Stores and lists one batch of a decided commit, unless the queue has it already."""
    queue = state.queues[name]
    window = queue.windows.of(partition, state.partitions)
    if push.first(window, request) is not None:
        queue.duplicates += 1
        return
    if isinstance(request, wire.PushWaiting):
        graph_push.store(state, queue, partition, window, request, payload)
        return
    placed = push.place(state, queue, partition, window, request, payload, decided=True)
    push.index_push(state, placed)


def knows(state: EngineState, queues: Iterable[int]) -> bool:
    """True if no queue of a request can be newer than this node's catalogue."""
    for queue_id in queues:
        known = state.by_created.get(created_of(queue_id))
        if known is None or known.id < queue_id:
            return False
    return True


# --- both -------------------------------------------------------------------------------------


def load(state: EngineState, partition: int) -> None:
    """Loads the outbox and the marks of an adopted partition."""
    for key, data in state.overlay.scan(*layout.partition_range(layout.OUTBOX, partition)):
        if key == channel_layout.channel(partition):
            state.channels.outboxes[partition] = SourceOutbox(_decode_channel(data))
            continue
        destination, number = channel_layout.unpack_delivery(key)
        delivery = _entry(_decode(data), data)
        state.channels.outboxes[partition].enter(destination, number, delivery)
    for key, data in state.overlay.scan(*layout.partition_range(layout.CHANNEL_MARK, partition)):
        state.channels.marks[partition, channel_layout.unpack_channel_mark(key)] = _decode_mark(
            data
        )


def forget(state: EngineState, partitions: set[int]) -> None:
    for partition in partitions:
        state.channels.outboxes.pop(partition, None)
    for place in [place for place in state.channels.marks if place[0] in partitions]:
        del state.channels.marks[place]
