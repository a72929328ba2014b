"""Proposals: the copies of a multicast on one partition, until the multicast is decided and listed.

A multicast to ordered or grouped queues on several partitions is decided by the partition of its
coordinator (``ordered_multicast``). Every destination's partition first stores a *proposal*: the
head with the partition's timestamp, and the payload, in no queue. The decision gives the head the
sequence number, the largest timestamp of all partitions, as its stamp.

| state     | stored as                                  | in the queues | next                    |
|-----------|--------------------------------------------|---------------|-------------------------|
| undecided | head with `proposal`, stamp = timestamp    | no            | decided, or dropped     |
| decided   | head with `proposal.decided`, stamp = number | no: it waits | listed                |
| listed    | the same head, until its next write        | yes           | as any batch            |

A decided proposal is listed as soon as no *conflicting* proposal of one of its queues has a smaller
stamp (algorithm 1, line 29; section IV of paper 3). Multicasts conflict if their keys are equal, or
one of them has no key. The rest of the wait is the convoy effect.

"Decided" and "listed" have the same record: whether a decided proposal is listed follows from the
other proposals of the partition. It stays listed, because a new proposal has a larger timestamp
(``partition_clock``).

Plain pushes never wait: a message of one queue cannot be part of a cycle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from weft.errors import Unavailable
from weft.persistence import layout

from . import head, message_set
from .batch import TouchedBatch
from .convoy_histogram import ConvoyHistogram
from .head import Head, Part, Proposal
from .message_id_queue import WHOLE, Handle, IdEntry
from .partition_clock import advance
from .queue import QueueState, created_of, was_purged

if TYPE_CHECKING:
    from .state import EngineState

_replace: Final = msgspec.structs.replace


class AssignedNumber(msgspec.Struct, array_like=True, frozen=True):
    """The decision about a multicast, as a partition gets it."""

    token: int
    #: The sequence number; 0: the attempt was given up.
    stamp: int
    #: The ids of the destinations on the partition.
    queues: list[int]


class Pending:
    """One proposal in memory."""

    __slots__ = (
        "asked", "assigned_at", "counted", "driven", "head", "keepers", "lsn", "partition", "since",
    )  # fmt: skip

    def __init__(
        self, partition: int, lsn: int, new: Head, keepers: frozenset[int], now: int
    ) -> None:
        self.partition = partition
        self.lsn = lsn
        self.head = new
        #: `created` of the destinations that keep an order.
        self.keepers = keepers
        self.since = self.asked = now
        self.assigned_at = now
        #: (queue, messages, bytes) as added to the counters of the queues.
        self.counted: list[tuple[QueueState, int, int]] = []
        #: An operation of this node, in this term of leadership, may still decide the multicast.
        self.driven = False

    @property
    def proposal(self) -> Proposal:
        found = self.head.proposal
        assert found is not None, "a proposal has its record"
        return found

    @property
    def name(self) -> tuple[int, int, int]:
        return self.partition, self.head.producer, self.head.batch

    @property
    def coordinates(self) -> bool:
        """True if this partition decides."""
        return self.proposal.coordinator == self.partition


class Proposals:
    """The proposals of the partitions led by this node."""

    def __init__(self) -> None:
        #: partition -> token -> proposal.
        self.by_partition: dict[int, dict[int, Pending]] = {}
        #: (partition, producer, batch) -> proposal.
        self._by_name: dict[tuple[int, int, int], Pending] = {}
        #: Partitions where a decided proposal may be listed now.
        self.changed: set[int] = set()
        self.convoy = ConvoyHistogram()
        #: (coordinator, token) of the attempts that operations of this node may still decide.
        self.attempts: set[tuple[int, int]] = set()

    def __bool__(self) -> bool:
        return bool(self.by_partition)

    def __iter__(self) -> Iterator[Pending]:
        for found in self.by_partition.values():
            yield from found.values()

    def find(self, partition: int, token: int) -> Pending | None:
        return self.by_partition.get(partition, {}).get(token)

    def of_name(self, partition: int, producer: int, batch: int) -> Pending | None:
        return self._by_name.get((partition, producer, batch))

    def add(self, pending: Pending) -> None:
        found = self.by_partition.setdefault(pending.partition, {})
        assert pending.proposal.token not in found, "a token names one proposal of a partition"
        found[pending.proposal.token] = pending
        self._by_name[pending.name] = pending
        if pending.proposal.decided:
            self.changed.add(pending.partition)

    def remove(self, pending: Pending) -> None:
        found = self.by_partition[pending.partition]
        del found[pending.proposal.token]
        if not found:
            del self.by_partition[pending.partition]
        if self._by_name.get(pending.name) is pending:  # without a dedup window a name may repeat
            del self._by_name[pending.name]
        self.changed.add(pending.partition)


def check_not_pending(state: EngineState, partition: int, producer: int, batch: int) -> None:
    """Raises Unavailable while the partition has another attempt of the multicast undecided, or
    decided and not known here yet."""
    other = state.proposals.of_name(partition, producer, batch)
    if other is not None:
        other.asked = 0  # ask its coordinator soon
        raise Unavailable("an earlier attempt of this multicast is not decided yet: retry")


def store(state: EngineState, partition: int, new: Head, payload: bytes) -> Pending:
    """Stores a proposal; its messages count as staged."""
    lsn = state.next_lsn(partition)
    state.overlay.put_records(layout.batch_records(partition, lsn, head.encode(new), payload))
    state.payloads.add(Handle.key_of(partition, lsn), payload)
    return _enter(state, partition, lsn, new)


def load(state: EngineState, partition: int, lsn: int, found: Head) -> None:
    """Takes the head of a proposal from the store. A decided one may have been listed before; in
    memory it then begins as a decided one again."""
    _enter(state, partition, lsn, found)


def assign(state: EngineState, pending: Pending, number: int) -> None:
    """Gives a proposal its sequence number."""
    advance(state, pending.partition, number)
    decided = _replace(pending.proposal, decided=True)
    pending.head = _replace(pending.head, stamp=number, proposal=decided)
    key = layout.head(pending.partition, pending.lsn)
    state.overlay.put(key, head.encode(pending.head))
    state.proposals.changed.add(pending.partition)
    pending.assigned_at = state.now
    remember_names(state, pending)


def take(state: EngineState, partition: int, decision: AssignedNumber) -> None:
    """Carries a decision out, once: an unknown proposal was carried out before."""
    pending = state.proposals.find(partition, decision.token)
    if pending is None or pending.proposal.decided:
        return
    if decision.stamp:
        assign(state, pending, decision.stamp)
    else:
        drop(state, pending)


def drop(state: EngineState, pending: Pending) -> None:
    """Removes a proposal whose attempt was given up; it leaves no trace."""
    assert not pending.proposal.decided, "a decided multicast is in all its queues"
    _count(pending, -1)
    state.proposals.remove(pending)
    state.payloads.drop(Handle.key_of(pending.partition, pending.lsn))
    state.overlay.delete(layout.head(pending.partition, pending.lsn))
    state.overlay.delete(layout.body(pending.partition, pending.lsn))


def release(state: EngineState) -> None:
    """Lists every decided proposal that waits for no other one; called once in each round."""
    changed, state.proposals.changed = state.proposals.changed, set()
    for partition in changed:
        waiting = state.proposals.by_partition.get(partition, {})
        for each in _free(list(waiting.values())):
            _list(state, each)
    state.proposals.changed.clear()  # what was listed just now frees nothing more


def _free(waiting: list[Pending]) -> list[Pending]:
    """The decided proposals without a smaller, conflicting one in a queue of theirs."""
    waiting.sort(key=_stamp)
    free: list[Pending] = []
    #: Queue -> the keys of smaller proposals that wait; None is the key that conflicts with all.
    keys: dict[int, set[str | None]] = {}
    for each in waiting:
        key = each.proposal.conflict_key
        waits = not each.proposal.decided
        for queue in each.keepers:
            smaller = keys.get(queue)
            if smaller and (key is None or key in smaller or None in smaller):
                waits = True
                break
        if not waits:
            free.append(each)
            continue
        for queue in each.keepers:
            keys.setdefault(queue, set()).add(key)
    return free


def _stamp(pending: Pending) -> int:
    return pending.head.stamp


def _list(state: EngineState, pending: Pending) -> None:
    """Lists the messages for pops."""
    _count(pending, -1)
    state.proposals.remove(pending)
    state.proposals.convoy.add(state.now - pending.assigned_at)
    partition, lsn = pending.partition, pending.lsn
    new = _replace(pending.head, proposal=None)
    whole = all(part.count == new.bodies and part.queue in state.by_id for part in new.parts)
    key = Handle.key_of(partition, lsn)
    if whole:
        state.remember(key, new)
        batch_handle = Handle.pack(new.stamp, partition, lsn, new.bodies, new.size)
        for part in new.parts:
            queue = state.by_id[part.queue]
            queue.bytes += new.size
            queue.ready += part.count
            first = WHOLE if new.queues is None else part.first
            # Not `add_fresh`: a message with a larger stamp may be there already.
            queue.ids.add_returned(new.priority, IdEntry(batch_handle, first))
            state.ready_queues[queue.id] = queue
        return
    batch = TouchedBatch.load(partition, lsn, new)
    batch.parts = {}
    state.touched[key] = batch
    for part in new.parts:
        _list_part(state, batch, part)
    state.changed(batch)


def _list_part(state: EngineState, batch: TouchedBatch, part: Part) -> None:
    queue = state.by_id.get(part.queue)
    if queue is not None:
        state.wait(queue, batch, part)
    elif was_purged(part.queue, state.by_created) or state.catalogue in state.led:
        # Purged or deleted since the proposal. Another unknown queue may be too new for the
        # catalogue of this node.
        batch.purged |= message_set.of_range(part.first, part.count)
    else:
        batch.parts[part.first] = part
        state.orphans.setdefault(part.queue, []).append((batch, part))


def forget(state: EngineState, partitions: set[int]) -> None:
    """Discards the proposals of partitions that another node may lead now."""
    for partition in partitions:
        for pending in list(state.proposals.by_partition.get(partition, {}).values()):
            _count(pending, -1)
            state.proposals.remove(pending)


def _enter(state: EngineState, partition: int, lsn: int, new: Head) -> Pending:
    keepers = {
        created
        for created in map(created_of, new.destinations)
        if (queue := state.by_created.get(created)) is None or keeps_order(queue)
    }
    pending = Pending(partition, lsn, new, frozenset(keepers), state.now)
    state.proposals.add(pending)
    for part in new.parts:
        queue = state.by_id.get(part.queue)
        if queue is not None:
            first, stop = part.first, part.first + part.count
            size = new.size * stop // new.bodies - new.size * first // new.bodies
            pending.counted.append((queue, part.count, size))
    _count(pending, 1)
    return pending


def keeps_order(queue: QueueState) -> bool:
    """True for a queue in which multicasts have an order."""
    return queue.settings.ordered or queue.settings.grouped


def remember_names(state: EngineState, pending: Pending) -> None:
    """From the decision on, a resend of the multicast is a duplicate."""
    new = pending.head
    for number, queue_id in enumerate(new.destinations):
        queue = state.by_created.get(created_of(queue_id))
        if queue is not None:
            window = queue.windows.of(pending.partition, state.partitions)
            window.add(new.stamp, new.producer, new.batch, None, new.bodies, number * new.bodies)
            queue.pushed += sum(part.count for part in new.parts if part.queue == queue_id)


def _count(pending: Pending, sign: int) -> None:
    for queue, messages, size in pending.counted:
        queue.staged += sign * messages
        queue.bytes += sign * size
        queue.held_bytes += sign * size
