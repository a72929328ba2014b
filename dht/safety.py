"""The verdict on a cluster: the present problems, and the failures that it survives. Pure.

`assess` is the only place that decides whether a cluster is settled. The command line, doctor,
``/readyz``, the metrics and the test clusters all show the same result, so none can disagree.

`assess` follows the rules of the protocol:

- An append is acknowledged when every member of the partition's sync set has the append. A
  partition takes pushes while the whole sync set is alive and has at least ``min_sync`` members
  (*intact*).
- Any other partition needs a change of the view first: the dead member leaves the sync set, another
  node joins the sync set, or a restarted member raises the epoch. A change of the view needs a
  majority of the voters, and also of the new voters during a replacement.
- Only a member of the sync set becomes primary, so at least one member must be alive.
- If a set would fall below ``min_sync``, a live node that may hold data replaces the dead member: a
  learner takes over at once; another node copies the whole partition first. A set already below
  ``min_sync`` grows by any live learner.

So after the nodes ``F`` have failed, a partition is served if intact without ``F``, or if a
majority of the voters, one member of the sync set, and ``min_sync`` nodes able to hold the
partition remain.

| state | meaning |
|---|---|
| settled | every member is alive; every partition is served and is on the planned nodes |
| degraded | every partition is served; any one node may fail; not everything is as planned |
| at risk | every partition is served; one more failure may stop service or lose messages |
| unavailable | at least one partition is not served |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
from .view import ReplicaSet, View

SETTLED: Final = "settled"
DEGRADED: Final = "degraded"
AT_RISK: Final = "at risk"
UNAVAILABLE: Final = "unavailable"
#: From best to worst.
STATES: Final = (SETTLED, DEGRADED, AT_RISK, UNAVAILABLE)
#: Node names in one reason; the others are counted.
NAMES_MAX: Final = 4
#: Digits of a node id in a reason.
ID_DIGITS: Final = 8

_ACTIVE: Final = Role.ACTIVE.value
_IDLE: Final = Role.IDLE.value
_SIZE: Final = ReplicationFactor()


@dataclass(frozen=True)
class Observation:
    """A cluster as one node sees it."""

    view: View
    alive: frozenset[str]
    #: For each partition the role of the primary; None if the primary was not asked.
    roles: Sequence[str | None]
    #: For each partition the number of missing entries, for each follower that is behind.
    lag: Sequence[Mapping[str, int]] = ()
    #: The node that made this observation; "" if unknown.
    observer: str = ""


@dataclass(frozen=True)
class Verdict:
    """The result of `assess`. `service` and `data` count nodes: any so many may fail at once."""

    state: str
    #: The problems, most urgent first. Empty if and only if the cluster is settled.
    reasons: tuple[str, ...]
    #: Actions for an operator.
    advice: tuple[str, ...]
    #: The number of nodes that may fail without loss of service.
    service: int
    #: The number of disks that may be lost without loss of an acknowledged message.
    data: int
    #: Live nodes of which any single one may fail without loss of service.
    may_fail: tuple[str, ...]
    #: Live nodes with the only live synchronous copy of a partition.
    sole_copies: tuple[str, ...]
    #: Members that are not alive.
    down: tuple[str, ...]
    #: True if a majority of the voters is alive.
    quorum: bool
    #: Partitions that take no pushes now.
    unserved: tuple[int, ...]
    #: The unserved partitions that stay unserved until a dead node is back.
    blocked: tuple[int, ...]
    #: The blocked partitions without a live member of the sync set.
    stranded: tuple[int, ...]
    #: Partitions with fewer synchronous copies than planned.
    thin: tuple[int, ...]
    #: Partitions with a live follower that is behind.
    lagging: tuple[int, ...]
    #: Why partitions are blocked; "" if none is.
    outage: str
    #: Synchronous copies that the plan gives each partition.
    copies: int
    #: True if the live nodes have done all repairs possible without an operator.
    recovered: bool

    @property
    def settled(self) -> bool:
        return self.state == SETTLED

    @property
    def outlook(self) -> str:
        """The failures that the cluster survives now, in one sentence."""
        return f"{self._service_words()}; {self._data_words()}"

    def _service_words(self) -> str:
        if self.unserved:
            return "service is lost already" if self.blocked else "service is interrupted"
        if self.service:
            more = "1 more node" if self.service == 1 else f"{self.service} more nodes"
            return f"can lose {more} without losing service"
        if self.may_fail:
            names = _some([name[:ID_DIGITS] for name in self.may_fail])
            return f"can lose no node without losing service, except one of: {names}"
        return "can lose no node without losing service"

    def _data_words(self) -> str:
        if self.stranded:
            return "some messages are on dead nodes only"
        if self.data:
            return f"can lose {_disks(self.data)} without losing messages"
        return "can lose no disk without losing messages"


def assess(seen: Observation, size: ReplicationFactor = _SIZE) -> Verdict:
    """Computes the verdict, in milliseconds for hundreds of nodes and thousands of partitions."""
    tally = _Tally(seen, size)
    unserved = tuple(n for n in tally.numbers if not tally.served(n))
    blocked = tuple(n for n in tally.numbers if not tally.survives(n))
    stranded = tuple(n for n in blocked if not tally.live_sync[n])
    thin, lagging = tally.thin(), tally.lagging()
    moving, misplaced = tally.moving()
    down = tuple(node for node in seen.view.members if node not in seen.alive)
    service = 0 if unserved else tally.service()
    data = max(0, min((len(live) for live in tally.live_sync), default=0) - 1)
    outage, advice = _outage(tally, blocked, stranded)
    reasons = outage + _words(
        tally, advice, unserved=unserved, blocked=blocked, down=down, thin=thin, lagging=lagging,
        misplaced=misplaced,
    )  # fmt: skip
    if not reasons:
        state = SETTLED
    elif unserved or not tally.numbers:
        state = UNAVAILABLE
    else:
        state = DEGRADED if service and data else AT_RISK
    return Verdict(
        state, tuple(reasons), tuple(advice), service, data,
        () if unserved else tally.expendable(),
        tuple(sorted({next(iter(live)) for live in tally.live_sync if len(live) == 1})),
        down, tally.quorum, unserved, blocked, stranded, thin, lagging,
        "; ".join(outage) if blocked else "", tally.wanted,
        recovered=bool(tally.numbers) and not (
            unserved or moving or lagging or tally.short() or tally.housekeeping()
        ),
    )  # fmt: skip


class _Tally:
    """The results of the rules for each partition, computed once."""

    def __init__(self, seen: Observation, size: ReplicationFactor) -> None:
        self.seen, self.view, self.size = seen, seen.view, size
        self.numbers = range(len(seen.view.places))
        self.holders = frozenset(holders(seen.view))
        self.able = self.holders & seen.alive
        self.live_sync = [seen.alive & set(place.sync) for place in seen.view.places]
        #: Live nodes that can hold the partition, including the live sync members.
        self.reach = [self._reach(number) for number in self.numbers]
        self.quorum = bool(seen.view.voters) and seen.view.quorum(seen.alive)
        self.min_sync = seen.view.min_sync
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


def _words(
    tally: _Tally,
    advice: list[str],
    *,
    unserved: tuple[int, ...],
    blocked: tuple[int, ...],
    down: tuple[str, ...],
    thin: tuple[int, ...],
    lagging: tuple[int, ...],
    misplaced: tuple[int, ...],
) -> list[str]:
    """The reasons besides an outage; appends to the advice."""
    view, alive = tally.view, tally.seen.alive
    if not view.places:
        advice.append("start the nodes, or ask another one with -s")
        return ["no partitions are known"]
    reasons = []
    passing = len(unserved) - len(blocked)
    if passing:
        reasons.append(f"{_partitions(passing)} not served for the moment: a failover is under way")
    if down:
        many = f"{len(down)} of {len(view.members)} members " + ("is" if len(down) == 1 else "are")
        reasons.append(f"{many} down: {_named(view, down)}")
        if not advice:
            advice.append(f"start {_named(view, down)}, or take it out with `weft cluster leave`")
    heard = len(alive & view.members.keys())
    if tally.seen.observer and 2 * heard < len(view.members) and len(view.members) > 2:
        observer = _named(view, [tally.seen.observer])
        reasons.append(
            f"{observer} hears {heard} of {len(view.members)} members: it may be cut off itself"
        )
        advice.append("ask another node, with -s")
    for state in ("leaving", "away", "stopped"):
        nodes = [n for n, each in view.members.items() if each.state == state and n in alive]
        if nodes:
            reasons.append(f"{_named(view, nodes)}: {state}")
    if thin:
        reasons.append(f"{_partitions(len(thin))} with fewer than {tally.wanted} copies in step")
    if misplaced and not down:  # a dead member explains its empty places
        reasons.append(f"{_partitions(len(misplaced))} not on the planned nodes yet")
    if lagging:
        reasons.append(f"{_partitions(len(lagging))} with a follower behind")
    return reasons + tally.housekeeping()


def _outage(
    tally: _Tally, blocked: tuple[int, ...], stranded: tuple[int, ...]
) -> tuple[list[str], list[str]]:
    """Why partitions stay unserved until a node returns, and which nodes to start."""
    view, alive = tally.view, tally.seen.alive
    reasons, advice = [], []
    if view.places and not tally.quorum:
        voting = view.deciders
        dead = [node for node in voting if node not in alive]
        live = len(voting) - len(dead)
        reasons.append(
            f"quorum lost: {live} of {len(voting)} voters alive, dead are {_named(view, dead)}"
        )
        missing = max(len(group) // 2 + 1 - len(alive & set(group)) for group in view.groups)
        advice.append(f"start {missing} of {_named(view, dead)}: a majority of the voters must run")
    if stranded:
        lost = {node for number in stranded for node in view.places[number].sync}
        reasons.append(
            f"{_partitions(len(stranded))} without a live copy: only {_named(view, sorted(lost))} "
            "had all of their messages"
        )
        advice.append(
            f"start {_named(view, sorted(lost))}; only if the disks are lost for good: "
            "`weft cluster recover`"
        )
    if blocked and not stranded:
        reasons.append(
            f"{_partitions(len(blocked))} without the {view.min_sync} live copies that a push needs"
        )
    return reasons, advice


def _named(view: View, nodes: Sequence[str]) -> str:
    """Node names for an operator: the beginning of the id, and the address."""

    def name(node: str) -> str:
        member = view.members.get(node)
        short = node[:ID_DIGITS]
        return f"{short} ({member.grpc})" if member is not None and member.grpc else short

    return _some([name(node) for node in nodes])


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _partitions(count: int) -> str:
    return f"{count} partition{'s' if count != 1 else ''}"


def _disks(count: int) -> str:
    return f"{count} disk{'s' if count != 1 else ''}"
