"""Bugs that are planted in a node for one run, each against one rule of the protocol.

Switches of the cluster core are in ``weft.dht.planted_bugs``. The bugs here replace a part of the
engine or of the node core by a wrong one while `planted` is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from weft.dht import view as views
from weft.dht.failure_detector import FailureDetector
from weft.dht.leadership_check import LeadershipChecks
from weft.dht.planted_bugs import PlantedBugs
from weft.dht.rebalancer import Handover, Rebalancer
from weft.dht.replica import Replica
from weft.dht.view import ReplicaSet, View
from weft.persistence import layout
from weft.probe_walk import ProbeWalk
from weft.proto import wire
from weft.server.core.catalogue_sync import CatalogueSync
from weft.server.core.commit_gate import CommitGate
from weft.server.core.commit_wait import CommitWait
from weft.server.core.lease_handover import LeaseHandover
from weft.server.core.partition_ownership import PartitionOwnership
from weft.server.engine import (
    ack,
    cancel,
    lease_records,
    multicast,
    outbox,
    partition_recovery,
    push,
    room,
    table_names,
    table_rows,
)
from weft.server.engine import state as engine_state
from weft.server.engine.batch import TouchedBatch, write_touched
from weft.server.engine.channels import ChannelMark
from weft.server.engine.dedup import DedupWindow
from weft.server.engine.groups import GroupQueue
from weft.server.engine.head import Head
from weft.server.engine.lease import Lease
from weft.server.engine.lease_records import LeaseRecords
from weft.server.engine.message_id_queue import WHOLE, Handle, IdEntry
from weft.server.engine.queue import QueueState
from weft.server.engine.state import Answered, EngineState
from weft.server.engine.table_history import RowChange, TableHistory

from . import planted_graphs, planted_multicast

_expire = DedupWindow.expire
_learn = CatalogueSync.learn
_remove = cancel._remove
_since = TableHistory.since
_add_fresh = GroupQueue.add_fresh
_admit_copies = push.admit_copies
_write_record = LeaseRecords._write
_lots = ack.lots
_answer = EngineState.answer


def _not_held(gate: CommitGate, answered: Answered) -> None:
    gate.ready.append(answered)


def _trims_all(replica: Replica, last: int) -> None:
    """Trim every entry, needed or not, applied or not."""
    if replica.log.end > replica.log.base:
        replica.log.trim(replica.log.end)
        replica.save()


def _never_lost(ownership: PartitionOwnership, number: int) -> bool:
    return False


def _no_barrier(confirmations: LeadershipChecks, number: int) -> int:
    return 1 << 62


def _never_old(held: CommitWait, now: int) -> list[tuple[Answered, int]]:
    """Assume that leadership cannot change between a leadership check and its answer."""
    return []


def _pending_not_needed(replica: Replica) -> list[str]:
    """Ignore pending members in leadership checks."""
    return [*replica.place.sync[1:]]


def _expires_early(window: DedupWindow, now: int) -> None:
    """Expire dedup entries by a clock that is ten minutes ahead."""
    _expire(window, now + 600_000_000)


def _buries_at_once(news: CatalogueSync) -> None:
    _learn(news)
    if news._engine.state.orphans:
        news._engine.delete_orphans()


def _never_doubts(news: CatalogueSync) -> None:
    """Assume that a node that was down cannot have missed a delete."""


def _counts_entries(news: CatalogueSync) -> int:
    """Ignore writes without a log entry."""
    return news._core.replicas[news._core.catalogue].log.end


def _answers_unsure(
    state: EngineState, to: object, answer: wire.AnyAnswer, *more: Any, **_: Any
) -> None:
    """Let a former primary answer that something does not exist."""
    state.answers.append(Answered(to, answer, *more))


def _no_leases(state: EngineState, partition: int) -> dict[int, list[Any]]:
    """The next primary does not learn the leases of an ordered queue."""
    return {}


def _removes_in_memory(
    state: EngineState, queue: QueueState, batch: TouchedBatch, index: int
) -> int:
    """A cancelled message is removed from the node's lists, and stays on the disks."""
    dirty = dict(state.dirty)
    count = _remove(state, queue, batch, index)
    state.dirty.clear()
    state.dirty.update(dirty)
    return count


def _leaves_at_once(rebalancer: Rebalancer, *, hurry: bool) -> Handover:
    """A stopping node leaves each set that will have enough other members.

    The node does not wait until a learner has caught up: until then one member is left, and that
    member may be stopping, too.
    """
    core, view, left = rebalancer._core, rebalancer._core.view, Handover.DONE
    for number, place in enumerate(view.places):
        others = [n for n in place.sync if n != core.node and core.met(n)]
        enough = len(others) + sum(map(core.met, place.learners)) >= view.min_sync
        if core.node in place.sync and others and enough:
            left = Handover.MOVING
            if core.proposer.idle:
                core.propose_change(_withdraw_any(number, place.epoch, core.node, "stopped"))
    return left


def _withdraw_any(number: int, epoch: int, node: str, state: str = "") -> views.Change:
    def change(view: View) -> View:
        place = view.places[number]
        rest = tuple(each for each in place.sync if each != node)
        if place.epoch != epoch or not rest or rest == place.sync:
            return view
        left = ReplicaSet(epoch + 1, rest, (*place.learners, node))
        return views._replace(views.mark(node, state)(view) if state else view, number, left)

    return change


def _shrinks_anyway(detector: FailureDetector) -> None:
    """Drop a dead or stopping member, even if no other node can take its place."""
    core = detector._core
    for node in core.view.members:
        if node not in detector.last_seen:
            detector.last_seen[node] = detector.awaited[node] = core.now
        if detector.alive(node) or core.now < detector.suspected.get(node, 0):
            continue
        for number, place in enumerate(core.view.places):
            if {core.node, node} <= set(place.sync):
                detector.suspected[node] = core.now + core.pace.suspect
                core.propose_change(_withdraw_any(number, place.epoch, node))


def _always_ready(handover: LeaseHandover, number: int) -> bool:
    """Leads move while their leases are in memory only."""
    return True


def _reads_the_clock(state: EngineState, partition: int) -> int:
    """Rows expire by the clock of the node."""
    return state.now


def _knows_no_name(state: EngineState, *_: int) -> bool:
    """Every attempt of a write is executed."""
    return False


def _drops_changes(history: TableHistory, version: int) -> list[RowChange] | None:
    """A watch that is behind gets the newest change alone."""
    found = _since(history, version)
    return found[-1:] if found else found


def _lists_one_copy(state: EngineState, partition: int, lsn: int, new: Head) -> None:
    """After a failover only the first queue of a multicast has its messages."""
    _admit_copies(state, partition, lsn, msgspec.structs.replace(new, parts=new.parts[:1]))


def _frees_early(state: EngineState, key: int, batch: TouchedBatch) -> None:
    """The first queue that is done with a multicast frees the payload."""
    write_touched(state, key, batch)
    queues = {part.queue for part in batch.parts.values()}
    queues |= {lease.queue.id for lease in batch.leases.values()}
    if queues and len(queues) < len(batch.head.destinations):
        state.payloads.drop(key)
        state.overlay.delete(layout.body(*Handle.split_key(key)))


def _stores_again(windows: list[DedupWindow], producer: int, batch: int) -> bool:
    """A resend of a multicast is stored a second time."""
    return False


def _loads_no_names(state: EngineState, partition: int) -> None:
    """The next primary does not know which writes were executed."""


def _open_group(queue: GroupQueue, priority: int, batch_handle: int) -> None:
    """A new message unblocks its group."""
    _add_fresh(queue, priority, batch_handle)
    group = queue._groups[queue._describe(IdEntry(batch_handle, WHOLE))[0]]
    while group.blocks:
        queue._unblock(group)


def _settle_open(queue: GroupQueue, name: str) -> bool:
    group = queue._groups.get(name)
    return group is not None and group.blocks > 0 and queue._unblock(group)


def _lend_open(queue: GroupQueue, name: str, batch_handle: int) -> None:
    """A lease does not block its group: the next pop continues the lot."""


def _record_moves_only(records: LeaseRecords, state: EngineState, lease: Lease) -> None:
    """The lease of a group is in memory only."""
    moves = Handle.partition(lease.batch.handle) in records.partitions
    if moves or lease.queue.groups is None:
        _write_record(records, state, lease)


def _loads_no_outbox(state: EngineState, partition: int) -> None:
    """The next primary does not know of deliveries and marks."""


def _marks_in_memory(state: EngineState, partition: int, source: int, mark: ChannelMark) -> None:
    """The mark is not in the entry with the effects."""
    state.channels.marks[partition, source] = mark


def _forgets_marks(state: EngineState, partition: int, source: int, mark: ChannelMark) -> None:
    """A destination takes every delivery that arrives."""


def _commits_lost(
    state: EngineState, partition: int, acks: list[wire.CommitAck]
) -> tuple[list[tuple[Lease, int]], int]:
    """A commit goes ahead without the messages whose leases are lost."""
    return _lots(state, partition, acks)[0], 0


def _reads_uncommitted(
    state: EngineState, to: object, answer: wire.AnyAnswer, *more: Any, **sure: Any
) -> None:
    """Deliveries leave before the entry that decides them is committed."""
    _answer(state, to, answer, *(() if isinstance(answer, wire.Outbox) else more), **sure)


def _keeps_in_memory(queue: QueueState) -> bool:
    """The leases of a queue with `keep_leases` are in memory only."""
    return queue.groups is not None


def _sweeps_nothing(walk: ProbeWalk) -> None:
    """A pop ends after its probes, whatever the other nodes have."""


def _wakes_nobody(state: EngineState) -> None:
    """Room is given to those who ask at the right moment, and to no waiting producer."""
    for queue in list(state.rooms.values()):
        if queue.buffer is not None:
            for to in [to for to, each in queue.buffer.waiting.items() if each.until <= state.now]:
                del queue.buffer.waiting[to]
                state.answer(to, wire.Done(0))
            queue.buffer.expire(state.now)


_Plant = tuple[object, str, Callable[..., Any] | property]
#: name -> (class or module, attribute, replacement)
_PLANTS: dict[str, _Plant] = {
    "answers_not_held": (CommitGate, "add", _not_held),
    "trimmed_too_early": (Replica, "trim", _trims_all),
    "generation_ignored": (PartitionOwnership, "_is_lost", _never_lost),
    "no_barrier": (LeadershipChecks, "level", _no_barrier),
    "late_word_counts": (CommitWait, "old", _never_old),
    "unheard_trusted": (FailureDetector, "met", FailureDetector.alive),
    "pending_not_asked": (Replica, "needed", property(_pending_not_needed)),
    "ordered_leases_lost": (lease_records, "load", _no_leases),
    "leases_not_handed_over": (LeaseHandover, "ready", _always_ready),
    "dedup_by_clock": (DedupWindow, "expire", _expires_early),
    "strays_buried_early": (CatalogueSync, "learn", _buries_at_once),
    "not_sure": (EngineState, "answer", _answers_unsure),
    "missed_deletes_ignored": (CatalogueSync, "view_changed", _never_doubts),
    "cancel_not_written": (cancel, "_remove", _removes_in_memory),
    "stop_strands": (Rebalancer, "retire", _leaves_at_once),
    "suspicion_strands": (FailureDetector, "suspect", _shrinks_anyway),
    "ttl_by_clock": (table_rows, "clock", _reads_the_clock),
    "watch_drops": (TableHistory, "since", _drops_changes),
    "named_twice": (table_names, "has", _knows_no_name),
    "names_not_loaded": (table_names, "load", _loads_no_names),
    "records_not_counted": (CatalogueSync, "_all", _counts_entries),
    "new_message_opens_group": (GroupQueue, "add_fresh", _open_group),
    "group_lease_not_replicated": (LeaseRecords, "_write", _record_moves_only),
    "group_lent_twice": (GroupQueue, "lend", _lend_open),
    "kept_lease_in_memory": (QueueState, "records_leases", property(_keeps_in_memory)),
    "outbox_not_loaded": (outbox, "load", _loads_no_outbox),
    "mark_not_replicated": (outbox, "_mark", _marks_in_memory),
    "mark_ignored": (outbox, "_mark", _forgets_marks),
    "lost_lease_commits": (ack, "lots", _commits_lost),
    "delivered_uncommitted": (EngineState, "answer", _reads_uncommitted),
    "multicast_loaded_in_part": (partition_recovery, "admit_copies", _lists_one_copy),
    "multicast_payload_freed_early": (engine_state, "write_touched", _frees_early),
    "multicast_stored_again": (multicast, "_is_resend", _stores_again),
    "never_sweeps": (ProbeWalk, "_plan_sweep", _sweeps_nothing),
    "room_not_woken": (room, "serve", _wakes_nobody),
    **planted_graphs.PLANTS,
}
#: Further replacements, without which a bug would end in an assertion of the engine at once.
_ALSO: dict[str, _Plant] = {
    "new_message_opens_group": (GroupQueue, "settle", _settle_open),
    "group_lent_twice": (GroupQueue, "settle", _settle_open),
}
_PLANTS |= planted_multicast.PLANTS
SWITCHES = tuple(name for name in vars(PlantedBugs) if not name.startswith("_"))
ALL = (*SWITCHES, *_PLANTS)


@contextmanager
def planted(name: str) -> Iterator[str]:
    """Plant the bug; yield the name of the switch to set, or an empty string."""
    if name in SWITCHES:
        yield name
        return
    with ExitStack() as undo:
        for owner, attribute, wrong in filter(None, (_PLANTS[name], _ALSO.get(name))):
            undo.callback(setattr, owner, attribute, getattr(owner, attribute))
            setattr(owner, attribute, wrong)
        yield ""
