"""The rebalancer: moves the cluster towards the plan, at each tick.

A primary takes the next step of the plan for its own partitions: bring in learners, grow or shrink
a sync set, promote a better placed node. Cluster-wide changes (the voters, the copies that an
acknowledgement needs, members away for too long, removals) are the task of one node, the primary of
the catalogue, so that nodes do not compete for the register.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from . import view as views
from .planner import Liveness, Step, copies, holders, plan, replenish, step, voters
from .role import Role
from .view import ReplicaSet, View

if TYPE_CHECKING:
    from .core import Core

#: Learners not level yet that one node brings in at the same time.
NEW_LEARNERS_MAX: Final = 64
_NO_STEP: Final = Step()


class Handover(IntEnum):
    """The work that is left before a stopping node may end."""

    DONE = 0
    #: Another node is about to take over a lead or a membership in a sync set.
    MOVING = 1
    #: A sync set below ``min_sync`` is about to grow, and needs this node as a member, as a learner
    #: or as a voter: if the node ends now, the only copy that counts may be on one stopped node.
    UNDER_REPLICATED = 2
    #: Leases are being written to the log: leads move once the leases are committed.
    RECORDING = 3


class _Known(NamedTuple):
    """The state of the other nodes at one moment, looked up once for all partitions."""

    #: A stopping node counts itself as not alive.
    alive: frozenset[str]
    reachable: frozenset[str]
    liveness: Liveness
    #: The nodes that may hold data.
    spare: list[str]


class Rebalancer:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._planned: tuple[int, list[ReplicaSet]] = (0, [])
        self._hurry = False
        #: When this process may leave sets without a replacement: one ping interval after the
        #: announced stop, so that the process knows of other nodes that stop at the same time.
        self._shrink_at: int | None = None
        #: What the steps of all partitions depend on, if the last tick found none to take.
        self._settled: object = None

    def tend(self) -> None:
        core = self._core
        if not core.proposer.idle or not core.view.members:
            return
        known = self._observe()
        led = [number for number, each in core.replicas.items() if each.role is Role.ACTIVE]
        shrink = self._shrink_at is not None and core.now >= self._shrink_at
        basis = core.view.version, known.alive, known.reachable, self._hurry, shrink, led
        if basis != self._settled:
            settled = self._take_steps(led, known)
            self._settled = basis if settled else None
        catalogue = core.replicas.get(core.catalogue)
        if catalogue is not None and catalogue.role is Role.ACTIVE and not core.stopping:
            self._maintain_members(core.view)

    def _take_steps(self, led: list[int], known: _Known) -> bool:
        """Takes the next step for each led partition; True if no partition has a next step."""
        core, settled = self._core, True
        room = NEW_LEARNERS_MAX - sum(r.primary.transfer_count for r in core.replicas.values())
        # The catalogue goes first: a node that leads a partition needs the queues' records.
        for number in sorted(led, key=lambda number: number != core.catalogue):
            replica = core.replicas[number]
            next_step = self._next_step(number, replica.place, known)
            replica.primary.wait_only_for(next_step.grow)
            settled = settled and next_step == _NO_STEP
            if next_step.grow:
                if replica.primary.want_grow(next_step.grow):
                    change = next_step.grown(number, replica.place.epoch)
                    self._propose(number, change, next_step.successor)
            elif next_step.change is not None and room > 0:
                room -= 1
                self._propose(number, next_step.change, next_step.successor)
        return settled

    def _propose(self, number: int, change: views.Change, successor: str) -> None:
        """The only place where a primary proposes a change of its own partition's set. `successor`
        is the next primary, if the change gives away the lead. Such a change waits until the
        partition is ready to move: a later tick proposes the change again."""
        if not successor or self._core.ready_to_move(number):
            self._core.propose_change(change)

    def retire(self, *, hurry: bool) -> Handover:
        """Hands over before this node stops; the caller repeats the call until DONE.

        First the node announces the stop in the view, so that no other node counts on this one.
        Then the primary of each of the node's sets (the node itself or another one) replaces the
        node by a level learner that is not stopping. Without such a learner, the node stays a
        member, because the set needs the node again soon, and only gives away its leads. `hurry`:
        give away leads at once, even if a learner is about to be level.
        """
        core, view = self._core, self._core.view
        me = view.members.get(core.node)
        # A witness announces nothing: during its restart, two data nodes keep the guarantees.
        if me is None or me.witness or len(view.members) == 1:
            return Handover.DONE
        if not view.quorum(node for node in view.deciders if core.reachable(node)):
            return Handover.DONE
        core.stopping, self._hurry = True, hurry
        if me.state in ("active", "away"):
            if core.proposer.idle:
                core.propose_change(views.mark(core.node, "stopped"))
            return Handover.MOVING
        if self._shrink_at is None:
            self._shrink_at = core.now + core.pace.ping
        self.tend()
        if core.now < self._shrink_at:
            return Handover.MOVING
        known = self._observe()
        return max(
            (self._handover(number, place, known) for number, place in enumerate(view.places)),
            default=Handover.DONE,
        )

    def _handover(self, number: int, place: ReplicaSet, known: _Known) -> Handover:
        core = self._core
        small = len(place.sync) < core.view.min_sync and core.reachable(place.primary)
        if not place.holds(core.node) and not (small and self._is_needed_to_vote(known)):
            return Handover.DONE
        expected = self._replenish(number, place, known)
        if small:
            return Handover.UNDER_REPLICATED if expected.grow else Handover.DONE
        if place.primary == core.node:
            return Handover.MOVING if expected != Step() else Handover.DONE
        # Another primary replaces this node after learning of the stop, if there is a learner.
        announced = views.is_stopping(core.view, core.node) and core.reachable(place.primary)
        replaced = core.node in place.sync and expected.grow and announced and not self._hurry
        return Handover.MOVING if replaced else Handover.DONE

    def _is_needed_to_vote(self, known: _Known) -> bool:
        """True if this node votes, and the nodes that stay are no majority of the voters."""
        view = self._core.view
        staying = [node for node in known.alive if not views.is_stopping(view, node)]
        return self._core.node in view.deciders and not view.quorum(staying)

    def _replenish(self, number: int, place: ReplicaSet, known: _Known) -> Step:
        core = self._core
        about = (known.liveness, core.size.sync, core.view.min_sync, known.spare)
        shrink = self._shrink_at is not None and core.now >= self._shrink_at
        level = core.replicas[number].primary.is_level
        return replenish(number, place, *about, level=level, hurry=self._hurry, shrink=shrink)

    def _next_step(self, number: int, place: ReplicaSet, known: _Known) -> Step:
        core, alive = self._core, known.liveness.alive
        if len(place.sync) < core.view.min_sync or not all(map(alive, place.sync)):
            # The plan can wait: a set with a dead member, or with too few members, commits nothing.
            return self._replenish(number, place, known)
        goal = self._goal(core.view)[number]
        return step(number, place, goal, alive, core.size.sync, known.spare)

    def _observe(self) -> _Known:
        core = self._core
        reachable = frozenset(filter(core.reachable, core.view.members))
        alive = frozenset(filter(core.alive, reachable))
        if core.stopping:
            alive -= {core.node}
        liveness = Liveness(alive.__contains__, reachable.__contains__)
        return _Known(alive, reachable, liveness, holders(core.view))

    def _goal(self, view: View) -> list[ReplicaSet]:
        if self._planned[0] != view.version:
            self._planned = view.version, plan(view, self._core.size)
        return self._planned[1]

    def _maintain_members(self, view: View) -> None:
        core = self._core
        wanted = voters(view)
        if view.joining:
            core.propose_change(views.revote(view.joining))
        elif set(wanted) != set(view.voters):
            core.propose_change(views.revote(wanted))
        needed = copies(view, core.size)
        # A single data node keeps min_sync: the partner may return with acknowledged entries.
        lower = view.min_sync > needed and len(holders(view)) == 2
        ready = all(len(place.sync) >= needed for place in view.places)
        if lower or (view.min_sync < needed and ready):
            core.propose_change(views.require(needed, lambda view: copies(view, core.size)))
        for node, member in view.members.items():
            silent = core.now - core.last_seen.get(node, core.now)
            here = member.state in ("active", "stopped")
            if here and node != core.node and silent > core.pace.grace:
                core.propose_change(views.mark(node, "away"))
            elif member.state == "away" and core.alive(node):
                core.propose_change(views.mark(node, "active"))
            elif member.state == "leaving" and self._free(view, node):
                core.propose_change(views.remove(node))

    @staticmethod
    def _free(view: View, node: str) -> bool:
        return node not in view.deciders and not any(node in place.sync for place in view.places)
