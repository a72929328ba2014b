"""Bugs that are planted in a node for one run, each against one rule of the protocol.

Switches of the cluster core are in ``weft.dht.planted_bugs``. The bugs here replace a part of the
engine or of the node core by a wrong one while `planted` is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.dht import view as views
from weft.dht.core import Core
from weft.dht.leadership_check import LeadershipChecks
from weft.dht.planted_bugs import PlantedBugs
from weft.dht.rebalancer import Handover, Rebalancer
from weft.dht.replica import Replica
from weft.dht.view import ReplicaSet, View
from weft.proto import wire
from weft.server.core.catalogue_sync import CatalogueSync
from weft.server.core.commit_gate import CommitGate
from weft.server.core.commit_wait import CommitWait
from weft.server.core.lease_handover import LeaseHandover
from weft.server.core.partition_ownership import PartitionOwnership
from weft.server.engine import cancel, lease_records
from weft.server.engine.batch import TouchedBatch
from weft.server.engine.dedup import DedupWindow
from weft.server.engine.queue import QueueState
from weft.server.engine.state import Answered, EngineState

_expire = DedupWindow.expire
_learn = CatalogueSync.learn
_remove = cancel._remove


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


def _shrinks_anyway(core: Core) -> None:
    """Drop a dead or stopping member, even if no other node can take its place."""
    for node in core.view.members:
        if node not in core.heard:
            core.heard[node] = core._awaited[node] = core.now
        if core.alive(node) or core.now < core._suspected.get(node, 0):
            continue
        for number, place in enumerate(core.view.places):
            if {core.node, node} <= set(place.sync):
                core._suspected[node] = core.now + core.pace.suspect
                core.propose_change(_withdraw_any(number, place.epoch, node))


def _always_ready(handover: LeaseHandover, number: int) -> bool:
    """Leads move while their leases are in memory only."""
    return True


#: name -> (class or module, attribute, replacement)
_PLANTS: dict[str, tuple[object, str, Callable[..., Any] | property]] = {
    "answers_not_held": (CommitGate, "add", _not_held),
    "trimmed_too_early": (Replica, "trim", _trims_all),
    "generation_ignored": (PartitionOwnership, "_is_lost", _never_lost),
    "no_barrier": (LeadershipChecks, "level", _no_barrier),
    "late_word_counts": (CommitWait, "old", _never_old),
    "unheard_trusted": (Core, "met", Core.alive),
    "pending_not_asked": (Replica, "needed", property(_pending_not_needed)),
    "ordered_leases_lost": (lease_records, "load", _no_leases),
    "leases_not_handed_over": (LeaseHandover, "ready", _always_ready),
    "dedup_by_clock": (DedupWindow, "expire", _expires_early),
    "strays_buried_early": (CatalogueSync, "learn", _buries_at_once),
    "not_sure": (EngineState, "answer", _answers_unsure),
    "missed_deletes_ignored": (CatalogueSync, "view_changed", _never_doubts),
    "cancel_not_written": (cancel, "_remove", _removes_in_memory),
    "stop_strands": (Rebalancer, "retire", _leaves_at_once),
    "suspicion_strands": (Core, "_suspect", _shrinks_anyway),
    "records_not_counted": (CatalogueSync, "_all", _counts_entries),
}
SWITCHES = tuple(name for name in vars(PlantedBugs) if not name.startswith("_"))
ALL = (*SWITCHES, *_PLANTS)


@contextmanager
def planted(name: str) -> Iterator[str]:
    """Plant the bug; yield the name of the switch to set, or an empty string."""
    if name in SWITCHES:
        yield name
        return
    owner, attribute, wrong = _PLANTS[name]
    right = getattr(owner, attribute)
    setattr(owner, attribute, wrong)
    try:
        yield ""
    finally:
        setattr(owner, attribute, right)
