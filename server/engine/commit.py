"""commit: acks, pushes and table writes that all happen, or none of them.

The *home* of a commit is the partition of its receipts (without receipts, the client chooses one).
One log entry of the home decides: it has the acks, the effects on the home, the deliveries with the
effects on other partitions (``outbox``), and the commit's name. So nothing can happen in part, and
a resent commit is recognised by its name, (producer, number), across a failover too.

A node that is its whole cluster writes a round as a whole. There the effects on all partitions are
in the round of the commit, and the outbox stays empty.

All checks come before the first change. What is checked only here, because a decided effect cannot
be refused later:

| found                                        | answer                                      |
|----------------------------------------------|---------------------------------------------|
| a message that is not leased by its receipt  | LEASE_LOST                                  |
| a condition that does not hold               | VERSION_MISMATCH, remembered under the name |
| a receipt or a condition elsewhere           | INVALID_ARGUMENT                            |
| a full queue, disk or outbox                 | QUEUE_FULL, STORAGE_FULL, OVERLOADED        |

A refusal by a condition is remembered, because an attempt that arrives late, after the refusal,
could find the condition true. A lost lease never comes back, so LEASE_LOST needs no record.
"""

from __future__ import annotations

from typing import NamedTuple

from weft import limits
from weft.dht import placement, table_verbs
from weft.errors import InvalidArgument, TooLarge, Unavailable
from weft.proto import wire

from . import ack, graph_push, outbox, parent_counts, push, table, table_names, table_rows
from .handlers import handles
from .outbox import DecidedPush, Effects
from .parent_counts import DecidedArrival
from .queue import QueueState
from .state import EngineState
from .table_state import NamedRecord, TableRow


class PlannedPush(NamedTuple):
    queue: QueueState
    partition: int
    push: wire.AnyPush
    payload: bytes


class PlannedWrite(NamedTuple):
    partition: int
    write: wire.AnyWrite
    #: Of a write that this round carries out: the row found, and the value to write.
    row: TableRow | None = None
    done: bool = False
    value: bytes | None = None


@handles(wire.Commit, wire.CommitGraph)
def commit(state: EngineState, request: wire.Commit, to: object) -> None:
    arrivals = arrivals_of(request)
    if not (request.acks or request.pushes or request.writes or arrivals):
        raise InvalidArgument("a commit without acks, pushes and writes does nothing")
    home = home_of(request, state.partitions)
    limits.check_range("partition", home, 0, state.partitions - 1)
    table_names.check(request.producer, request.number)
    if not request.number:
        raise InvalidArgument("a commit has a number of at least 1")
    known = table_names.find(state, home, request.producer, request.number, commit=True)
    if known is not None:  # the first attempt may be uncommitted: the answer waits for the commit
        state.answer(to, _repeated(request, known), (), {home})
        return
    _check_size(request)
    pushes = [_planned(state, each) for each in request.pushes]
    _check_writes(state, home, request.writes)
    for arrival in arrivals:
        parent_counts.check_arrival(arrival, state.partitions)
    lots, lost = ack.lots(state, home, request.acks)
    if lost:
        state.answer(to, _lease_lost(lost), (), {home}, sure=True)
        return
    writes, failed = _decided(state, home, request.writes)
    if failed is not None:
        state.barriers.add(home)
        record = NamedRecord(0, done=False, commit=True)
        table_names.add(state, request.producer, request.number, {home: record})
        state.answer(to, _mismatch(failed), (), {home})
        return
    _check_room(state, pushes, writes)
    ended = _known_arrivals(state, arrivals)
    elsewhere = outbox.prepare(_elsewhere(state, home, pushes, writes, ended))
    if elsewhere:
        if not state.channels.peers_know_commits:
            raise Unavailable(
                "a live node of this cluster has not confirmed that it knows commits, so no commit "
                "with effects on several partitions is accepted: nothing was changed. Update a "
                "node of an older version"
            )
        outbox.check_room(state, home, elsewhere)
    # --- decided: nothing below fails ---
    for lease, bits in lots:
        ack.take(state, lease, bits)
    touched = {home}
    for planned in pushes:
        if state.channels.alone or planned.partition == home:
            touched.add(planned.partition)
            outbox.apply_push(
                state, planned.queue.name, planned.partition, planned.push, planned.payload
            )
    for each in writes:
        if each.done:
            touched.add(each.partition)
            table.change(state, each.partition, each.write, each.row, each.value)
    for partition, end in ended:
        if state.channels.alone or partition == home:
            touched.add(partition)
            parent_counts.apply(state, partition, end)
    if elsewhere:
        outbox.add(state, home, elsewhere)
    places = [planned.partition for planned in pushes]
    record = NamedRecord(0, places=places, commit=True)
    table_names.add(state, request.producer, request.number, {home: record})
    state.answer(to, wire.Committed(False, places), (), touched)


def _repeated(request: wire.Commit, known: NamedRecord) -> wire.AnyAnswer:
    """The answer of a commit that was decided before."""
    if not known.done:
        return _mismatch("")
    if len(known.places) != len(request.pushes):
        raise InvalidArgument(
            f"the name ({request.producer}, {request.number}) is that of an earlier commit with "
            f"{len(known.places)} batches, so this one with {len(request.pushes)} was not "
            "executed: repeat a commit unchanged, and give another one another number"
        )
    return wire.Committed(True, known.places)


def arrivals_of(request: wire.Commit) -> list[wire.Arrival]:
    return request.arrivals if isinstance(request, wire.CommitGraph) else []


def _known_arrivals(
    state: EngineState, arrivals: list[wire.Arrival]
) -> list[tuple[int, DecidedArrival]]:
    """The arrivals with their partitions. The messages of a queue that was deleted are gone, and
    so is whatever they would do."""
    found: list[tuple[int, DecidedArrival]] = []
    for arrival in arrivals:
        queue = state.queues.get(arrival.queue)
        if queue is None:
            state.channels.dropped += 1
        else:
            found.append((arrival.partition, parent_counts.decided(queue, arrival)))
    return found


def home_of(request: wire.Commit, partitions: int) -> int:
    """The partition that decides, the same for every attempt; -1 for a commit without effects."""
    if request.partition >= 0:
        return request.partition
    for each in request.acks:
        for receipt in each.receipts:
            return receipt.partition
    for write in request.writes:
        if has_condition(write):
            return placement.of_text(write.key, partitions)
    for pushed in request.pushes:
        first = pushed.push
        if isinstance(first, wire.PushGroup):
            return placement.of_text(first.group, partitions)
        return placement.of_push(
            first.queue, False, first.producer, first.batch, first.dedup_key, partitions
        )
    for write in request.writes:
        return placement.of_text(write.key, partitions)
    for arrival in arrivals_of(request):
        return arrival.partition
    return -1


def _check_size(request: wire.Commit) -> None:
    if len(request.pushes) > limits.COMMIT_PUSHES_MAX:
        raise TooLarge(
            f"a commit has at most {limits.COMMIT_PUSHES_MAX} batches, not {len(request.pushes)}"
        )
    if len(request.writes) > limits.COMMIT_WRITES_MAX:
        raise TooLarge(
            f"a commit has at most {limits.COMMIT_WRITES_MAX} table writes, not "
            f"{len(request.writes)}"
        )
    if len(arrivals_of(request)) > limits.COMMIT_ARRIVALS_MAX:
        raise TooLarge(
            f"a commit has arrivals for at most {limits.COMMIT_ARRIVALS_MAX} batches, not "
            f"{len(arrivals_of(request))}"
        )
    size = sum(len(each.payload) for each in request.pushes)
    for write in request.writes:
        if isinstance(write, wire.Put | wire.AppendKey):
            size += len(write.value)
        elif isinstance(write, wire.SwapKey):
            size += len(write.old or b"") + len(write.new or b"")
    if size > limits.COMMIT_BYTES_MAX:
        raise TooLarge(f"a commit has at most {limits.COMMIT_BYTES_MAX} bytes, this has {size}")


def _planned(state: EngineState, each: wire.CommitPush) -> PlannedPush:
    queue, partition, _ = push.where(state, each.push, each.payload)
    if isinstance(each.push, wire.PushWaiting):
        graph_push.check(queue, each.push)
    return PlannedPush(queue, partition, each.push, each.payload)


def _check_writes(state: EngineState, home: int, writes: list[wire.AnyWrite]) -> None:
    """Checks arguments; what depends on the present values is checked later."""
    keys: set[str] = set()
    for write in writes:
        key = write.key
        partition = table_verbs.place(key, state.partitions)
        table.check_not_own(key)
        if key in keys:
            raise InvalidArgument(f"a commit writes the key {key[:100]!r} twice: write it once")
        keys.add(key)
        table_verbs.writes.by_request[type(write)](write, None, 0)
        if has_condition(write) and partition != home:
            raise InvalidArgument(
                f"the key {key[:100]!r} is on partition {partition} and the commit is decided on "
                f"partition {home}, that of its messages or its first condition: a write with a "
                "condition must be there. Write the key in a commit without messages, or "
                "without a condition"
            )


def has_condition(write: wire.AnyWrite) -> bool:
    if isinstance(write, wire.Put | wire.RemoveKey):
        return write.if_version != -1
    return isinstance(write, wire.SwapKey)


def _decided(
    state: EngineState, home: int, writes: list[wire.AnyWrite]
) -> tuple[list[PlannedWrite], str | None]:
    """The writes, and the key of a write whose condition does not hold."""
    planned: list[PlannedWrite] = []
    for write in writes:
        partition = placement.of_text(write.key, state.partitions)
        if not (state.channels.alone or partition == home):
            planned.append(PlannedWrite(partition, write))
            continue
        row = table_rows.find(state, partition, write.key)
        current, version = (None, 0) if row is None else (row.value, row.version)
        done, value = table_verbs.writes.by_request[type(write)](write, current, version)
        if not done and has_condition(write):
            return planned, write.key
        done = done and (value is not None or row is not None)
        planned.append(PlannedWrite(partition, write, row, done, value))
    return planned, None


def _check_room(state: EngineState, pushes: list[PlannedPush], writes: list[PlannedWrite]) -> None:
    earlier: dict[str, int] = {}
    for planned in pushes:
        name = planned.queue.name
        earlier[name] = earlier.get(name, 0) + planned.push.count
        push.check_room(state, planned.queue, planned.push, earlier[name])
    if any(not isinstance(each.write, wire.RemoveKey) for each in writes):
        state.check_space()


def _elsewhere(
    state: EngineState,
    home: int,
    pushes: list[PlannedPush],
    writes: list[PlannedWrite],
    arrivals: list[tuple[int, DecidedArrival]],
) -> dict[int, Effects]:
    """The effects on other partitions, by partition."""
    found: dict[int, Effects] = {}
    if state.channels.alone:
        return found
    for planned in pushes:
        if planned.partition != home:
            effects = found.setdefault(planned.partition, Effects([], []))
            effects.pushes.append(DecidedPush(planned.queue.id, planned.push, planned.payload))
    for each in writes:
        if each.partition != home:
            found.setdefault(each.partition, Effects([], [])).writes.append(each.write)
    for partition, arrival in arrivals:
        if partition != home:
            found.setdefault(partition, Effects([], [])).arrivals.append(arrival)
    return found


def _lease_lost(messages: int) -> wire.Failure:
    words = f"the lease of {messages} message{'s' if messages > 1 else ''} of the commit is lost"
    return wire.Failure(
        "LEASE_LOST", f"{words}: nothing was changed, and the messages are delivered again", False
    )


def _mismatch(key: str) -> wire.Failure:
    subject = f"of the key {key[:100]!r} " if key else ""
    return wire.Failure(
        "VERSION_MISMATCH",
        f"the condition {subject}does not hold: the commit changed nothing, look the key up again",
        False,
    )
