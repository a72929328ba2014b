"""Multicasts to ordered and grouped queues on several partitions: Skeen's algorithm (paper 3).

One of the partitions, the *coordinator*, decides. Its primary drives the attempt, which has a name,
its token (``core.multicast_operations``):

| step    | where            | log entry                                                          |
|---------|------------------|--------------------------------------------------------------------|
| propose | every partition  | a proposal, with a timestamp of the partition's durable clock      |
| decide  | the coordinator  | its own proposal gets the largest timestamp as sequence number;    |
|         |                  | deliveries with the number to all other partitions (``outbox``)    |
| assign  | other partitions | the proposal gets the number; the clock advances (line 24)         |

The client is answered when the deciding entry is committed. Deliveries are repeated until every
partition has taken them, so then all queues get the message. An attempt that is not decided is
given up in one entry of the coordinator: without its own proposal, nothing can decide it any more.

Recovery:

| lost or silent                 | what happens                                                    |
|--------------------------------|-----------------------------------------------------------------|
| a destination, before decide   | the attempt is given up; the operation makes a new one          |
| a destination, after decide    | its next primary has the proposal, and takes the delivery       |
| the coordinator, before decide | its next primary gives up its undecided proposals when it       |
|                                | adopts the partition; clients resend                            |
| the coordinator, after decide  | its next primary has the deliveries                             |
| the coordinator's own proposal | the other partitions ask the coordinator about old proposals,   |
|                                | and drop those that it does not know                            |

Invariants:
- Only the primary that proposed an attempt decides it, in the same term of leadership (`driven`).
  So an undecided proposal found by the next primary will never be decided.
- The coordinator's node registers an attempt before any proposal of it is sent, until the operation
  has ended (`Proposals.attempts`), and makes its own proposal in that time only. So a token that
  the coordinator does not know is either given up, or carried out at the partition that asks.
- A partition never replaces an undecided proposal by another attempt of the same multicast: the
  coordinator may have decided the first one. The later attempt waits, and the coordinator is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.errors import QueueNotFound, Unavailable
from weft.proto import wire

from . import outbox, proposal, topic
from .destinations import ORDERED_MULTICAST, Plan
from .handlers import handles
from .head import Head, Part, Proposal
from .outbox import Effects
from .partition_clock import advance, tick
from .proposal import AssignedNumber, Pending
from .push import check_room
from .queue import QueueState

if TYPE_CHECKING:
    from .destinations import AnyMulticast
    from .state import EngineState


@handles(wire.ProposeMulticast)
def propose(
    state: EngineState, request: wire.ProposeMulticast, payload: bytes, to: object, durability: str
) -> None:
    partition, name = request.partition, (request.producer, request.batch)
    queues = [_queue(state, each) for each in request.queues]
    earlier = state.proposals.find(partition, request.token)
    if earlier is not None:
        state.answer(to, wire.Proposed(earlier.head.stamp), (), {partition})
        return
    if _is_known(state, partition, queues, *name):
        # The first push may be uncommitted: the answer waits for the same commit.
        state.answer(to, wire.Proposed(0, True), (), {partition})
        return
    proposal.check_not_pending(state, partition, *name)
    drives = partition == request.coordinator
    if drives and (partition, request.token) not in state.proposals.attempts:
        raise Unavailable("the operation that made this attempt has ended: retry")
    for queue, ranges in zip(queues, request.ranges, strict=True):
        _check_room(state, queue, sum(count for _, count in ranges))
    if request.participants:
        outbox.check_room(state, partition, _decision(request.participants, request.token, 1))
    record = Proposal(
        request.token, request.coordinator, request.conflict_key,
        participants=request.participants,
    )  # fmt: skip
    new = _head(queues, request.ranges, request, len(payload), tick(state, partition), record)
    pending = proposal.store(state, partition, new, payload)
    pending.driven = drives
    state.answer(to, wire.Proposed(new.stamp), (), {partition})


@handles(wire.DecideMulticast)
def decide(state: EngineState, request: wire.DecideMulticast, to: object) -> None:
    partition = request.partition
    pending = state.proposals.find(partition, request.token)
    if pending is None or not pending.driven:
        raise Unavailable("this attempt of the multicast was given up: nothing was stored, retry")
    if not pending.proposal.decided:
        found = pending.proposal
        if found.participants:
            decision = _decision(found.participants, found.token, request.stamp)
            outbox.add(state, partition, decision)
        proposal.assign(state, pending, request.stamp)
    state.answer(to, wire.Done(), (), {partition})


@handles(wire.AbandonMulticast)
def abandon(state: EngineState, request: wire.AbandonMulticast, to: object) -> None:
    """Ends an attempt whose partitions did not all propose."""
    partition = request.partition
    pending = state.proposals.find(partition, request.token)
    if pending is not None and pending.proposal.decided:
        raise Unavailable("the multicast is decided")
    if pending is not None:
        _give_up(state, pending)
    elif request.participants:
        _tell_given_up(state, partition, request.participants, request.token)
    state.answer(to, wire.Done(), (), {partition})


@handles(wire.JudgeMulticasts)
def judge(state: EngineState, request: wire.JudgeMulticasts, to: object) -> None:
    """Says which attempts will never be decided; an abandoned one is given up first."""
    coordinator = request.partition
    gone: list[int] = []
    for token in request.tokens:
        pending = state.proposals.find(coordinator, token)
        if pending is not None and not pending.proposal.decided and not pending.driven:
            _give_up(state, pending)
        if not _may_be_carried_out(state, coordinator, request.destination, token):
            gone.append(token)
    state.answer(to, wire.JudgedMulticasts(gone), (), {coordinator}, sure=True)


@handles(wire.DropMulticasts)
def drop(state: EngineState, request: wire.DropMulticasts, to: object) -> None:
    for token in request.tokens:
        proposal.take(state, request.partition, AssignedNumber(token, 0, []))
    state.answer(to, wire.Done(), (), {request.partition})


@handles(wire.EnableOrderedMulticast)
def enable_ordered_multicast(
    state: EngineState, request: wire.EnableOrderedMulticast, to: object
) -> None:
    enable(state)
    state.answer(to, wire.Done(), (), {state.catalogue})


def enable(state: EngineState) -> None:
    """Records that multicasts to several partitions are in use; see ``topic.enable``."""
    topic.enable(state)
    topic.enable(state, ORDERED_MULTICAST)


def is_known(
    state: EngineState, partition: int, queues: Sequence[int], producer: int, batch: int
) -> bool:
    """True if one of the queues, by id, has the batch on the partition."""
    found = [queue for each in queues if (queue := state.by_id.get(each)) is not None]
    return _is_known(state, partition, found, producer, batch)


def give_up_all(state: EngineState, partition: int) -> None:
    """Gives up the undecided attempts of a partition that this node leads from now on."""
    for pending in list(state.proposals.by_partition.get(partition, {}).values()):
        if pending.coordinates and not pending.proposal.decided and not pending.driven:
            _give_up(state, pending)


def store_alone(state: EngineState, plan: Plan, request: AnyMulticast, payload: bytes) -> bool:
    """Stores a multicast on all its partitions, which one write of this node changes together.

    Returns False for a resend.
    """
    name, count = (request.producer, request.batch), request.count
    partitions = plan.partitions
    for partition in partitions:
        queues = [plan.queues[each] for each in plan.of_partition(partition)]
        if _is_known(state, partition, queues, *name):
            return False
    for partition in partitions:
        proposal.check_not_pending(state, partition, *name)
    for position, queue in enumerate(plan.queues):
        _check_room(state, queue, sum(each for _, each in plan.ranges_of(position, count)))
    number = max([tick(state, partition) for partition in partitions])
    token = state.entropy()
    for partition in partitions:
        advance(state, partition, number)
        record = Proposal(token, plan.home, request.conflict_key, decided=True)
        positions = plan.of_partition(partition)
        queues = [plan.queues[each] for each in positions]
        ranges = [plan.ranges_of(each, count) for each in positions]
        new = _head(queues, ranges, request, len(payload), number, record)
        proposal.remember_names(state, proposal.store(state, partition, new, payload))
    return True


# --- inside -----------------------------------------------------------------------------------


def _queue(state: EngineState, queue_id: int) -> QueueState:
    found = state.by_id.get(queue_id)
    if found is None:
        raise QueueNotFound("a queue of the multicast was deleted or purged meanwhile: push again")
    return found


def _may_be_carried_out(state: EngineState, coordinator: int, destination: int, token: int) -> bool:
    """True if the attempt may be decided, or a decision is on its way to the destination."""
    if (coordinator, token) in state.proposals.attempts:
        return True  # its proposal may follow: a question to the own node takes a round or two
    pending = state.proposals.find(coordinator, token)
    return pending is not None or outbox.has_decision(state, coordinator, destination, token)


def _is_known(
    state: EngineState, partition: int, queues: list[QueueState], producer: int, batch: int
) -> bool:
    """True if a destination knows the name of the batch: then all have it."""
    windows = (queue.windows.of(partition, state.partitions) for queue in queues)
    return any(window.has(producer, batch) for window in windows)


def _check_room(state: EngineState, queue: QueueState, count: int) -> None:
    check_room(state, queue, wire.Multicast([queue.name], 0, 0, count), count)


def _head(
    queues: list[QueueState],
    ranges: list[list[tuple[int, int]]],
    request: AnyMulticast | wire.ProposeMulticast,
    size: int,
    stamp: int,
    record: Proposal,
) -> Head:
    ids = [queue.id for queue in queues]
    count = request.count
    parts = [
        Part(number * count + first, each, ids[number])
        for number, own in enumerate(ranges)
        for first, each in own
    ]
    # An ordered queue decides the partition, for a restore from a backup, too.
    owner = next((queue.id for queue in queues if queue.settings.ordered), ids[0])
    grouped = any(queue.settings.grouped for queue in queues)
    return Head(
        owner, request.producer, request.batch, count * len(ids), size, stamp, 0, None, parts,
        record.conflict_key if grouped else None, ids if len(ids) > 1 else None, None, record,
    )  # fmt: skip


def _give_up(state: EngineState, pending: Pending) -> None:
    """Removes the coordinator's proposal, and tells the other partitions."""
    found = pending.proposal
    _tell_given_up(state, pending.partition, found.participants, found.token)
    proposal.drop(state, pending)


def _tell_given_up(
    state: EngineState, coordinator: int, participants: list[int], token: int
) -> None:
    """Without room in the outbox the other partitions ask: the attempt is unknown from now on."""
    decision = _decision(participants, token, 0)
    if decision and outbox.has_room(state, coordinator, decision):
        outbox.add(state, coordinator, decision)


def _decision(participants: list[int], token: int, number: int) -> list[tuple[int, Effects, bytes]]:
    assigned = AssignedNumber(token, number, [])
    return outbox.prepare({each: Effects([], [], assigned=[assigned]) for each in participants})
