"""The failures that each partition survives: the rules of ``safety``, applied to an observation.

``safety`` states the rules. Every number here follows from the view, the live nodes and the roles
of the primaries; nothing is remembered between two observations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .planner import (
    Liveness,
    ReplicationFactor,
    Step,
    copies,
    holders,
    plan,
    replenish,
    step,
    voters,
)
from .role import Role
from .view import ReplicaSet

if TYPE_CHECKING:
    from .safety import Observation

_ACTIVE: Final = Role.ACTIVE.value
_IDLE: Final = Role.IDLE.value


class Survival:
    """The results of the rules for each partition, computed once."""

    def __init__(self, seen: Observation, size: ReplicationFactor) -> None:
        self.seen, self.view, self.size = seen, seen.view, size
        #: All partitions; the lists below have one item for each.
        self.numbers = range(len(seen.view.places))
        #: Nodes that may hold data, alive or not; and those that are alive.
        self.holders = frozenset(holders(seen.view))
        self.able = self.holders & seen.alive
        #: Live members of the sync set: only one of these can be the next primary.
        self.live_sync = [seen.alive & set(place.sync) for place in seen.view.places]
        #: Live nodes that can hold the partition: a superset of `live_sync`.
        self.reach = [self._reach(number) for number in self.numbers]
        #: True if the view can change.
        self.quorum = bool(seen.view.voters) and seen.view.quorum(seen.alive)
        self.min_sync = seen.view.min_sync
        #: True if the partition takes pushes, now or soon, without a change of the view.
        self.intact = [self._intact(number) for number in self.numbers]

    def _reach(self, number: int) -> frozenset[str]:
        place, live = self.view.places[number], self.live_sync[number]
        found = live | self.able
        if len(place.sync) < self.view.min_sync:
            found |= self.seen.alive & set(place.learners)
            if number == self.view.catalogue:  # every data node follows it
                data = {n for n, each in self.view.members.items() if not each.witness}
                found |= self.seen.alive & data
        return found

    def _intact(self, number: int) -> bool:
        """True if the partition takes pushes, now or soon, without a change of the view."""
        sync = self.view.places[number].sync
        enough = len(sync) >= self.view.min_sync and len(self.live_sync[number]) == len(sync)
        return enough and self.seen.roles[number] != _IDLE

    def served(self, number: int) -> bool:
        return self.intact[number] and self.seen.roles[number] in (_ACTIVE, None)

    def survives(self, number: int) -> bool:
        """True if the partition is served, or will be served before any dead node returns."""
        return self.intact[number] or (
            self.quorum
            and bool(self.live_sync[number])
            and len(self.reach[number]) >= self.min_sync
        )

    def service(self) -> int:
        """The largest n such that any n live nodes may fail: one fewer than the size of the
        smallest set of failures that stops a partition. A set stops a partition by one of three
        causes; the smallest set for each cause is known without enumerating sets."""
        if not self.numbers:
            return 0
        costs = [min(map(len, self.live_sync))]
        costs += [max(1, len(reach) - self.min_sync + 1) for reach in self.reach]
        costs.append(self._cost_of_majority())
        return max(0, min(costs) - 1)

    def _cost_of_majority(self) -> int:
        """The fewest failures that leave no majority while a partition needs a majority."""
        holding = frozenset[str]().union(*self.live_sync)
        needs_one = not all(self.intact)
        costs = []
        for group in filter(None, self.view.groups):
            live = self.seen.alive & set(group)
            cost = max(0, len(live) - len(group) // 2)
            touches = needs_one or bool(cost and live & holding)
            costs.append(cost if touches else cost + 1)
        return min(costs, default=0)

    def expendable(self) -> tuple[str, ...]:
        """Live members of which any single one may fail without loss of service."""
        critical: set[str] = set()
        needs_majority = not all(self.intact)
        holding = set().union(*(place.sync for place in self.view.places))
        for node in self.seen.alive & set(self.view.deciders):
            decides = self.view.quorum(self.seen.alive - {node})
            if not decides and (needs_majority or node in holding):
                critical.add(node)
        if not self.quorum:
            critical |= holding
        for number in self.numbers:
            live, reach = self.live_sync[number], self.reach[number]
            if len(live) == 1:
                critical |= live
            if len(reach) <= self.min_sync:
                critical |= live if self.intact[number] else reach
        members = set(self.view.members)
        return tuple(sorted((self.seen.alive & members) - critical))

    def thin(self) -> tuple[int, ...]:
        wanted = self.wanted
        return tuple(n for n in self.numbers if len(self.view.places[n].sync) < wanted)

    @property
    def wanted(self) -> int:
        """Synchronous copies that the plan gives each partition."""
        return max(1, min(self.size.sync, len(self.holders)))

    def short(self) -> bool:
        """True if a sync set can still grow with the live nodes."""
        can = max(1, min(self.size.sync, len(self.able)))
        return any(len(live) < can for live in self.live_sync)

    def lagging(self) -> tuple[int, ...]:
        alive = self.seen.alive
        return tuple(
            number
            for number, lag in enumerate(self.seen.lag)
            if any(entries and node in alive for node, entries in lag.items())
        )

    def moving(self) -> tuple[bool, tuple[int, ...]]:
        """True if a next step is due; and the partitions that are not on the planned nodes."""
        goals = plan(self.view, self.size)
        spare = sorted(self.holders)
        due, misplaced = False, []
        for number, (place, goal) in enumerate(zip(self.view.places, goals, strict=True)):
            now = (place.primary, set(place.sync), set(place.learners))
            if now != (goal.primary, set(goal.sync), set(goal.learners)):
                misplaced.append(number)
            due = due or self._next_step(number, place, goal, spare) != Step()
        return due, tuple(misplaced)

    def _next_step(
        self, number: int, place: ReplicaSet, goal: ReplicaSet, spare: list[str]
    ) -> Step:
        """The next step, as the partition's primary computes it (``rebalancer``)."""
        alive = self.seen.alive.__contains__
        least = self.view.min_sync
        liveness = Liveness(alive, alive)
        urgent = replenish(number, place, liveness, self.size.sync, least, spare)
        if urgent != Step() or not all(map(alive, place.sync)):
            return urgent
        return step(number, place, goal, alive, self.size.sync, spare)

    def housekeeping(self) -> list[str]:
        """Changes of the view that the catalogue's primary still has to make."""
        view, found = self.view, []
        if view.joining or set(view.voters) != set(voters(view)):
            found.append("the voters are being replaced")
        if view.min_sync < (needed := copies(view, self.size)):
            found.append(f"pushes are acknowledged on {view.min_sync} of {needed} copies")
        elif view.min_sync > needed and len(self.holders) == 2:
            found.append(f"pushes wait for {view.min_sync} copies; {needed} will do with a witness")
        return found
