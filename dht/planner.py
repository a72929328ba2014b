"""The planner: which nodes should hold each partition. A pure function of the view.

Every node computes the same plan. The plan keeps present assignments as far as possible and
balances the rest: every data node leads as many partitions as the others, give or take one, and is
in as many sync sets. The primary of each partition takes the next step from the present replica set
to the planned one. A step is a change of the view for one epoch only, so two nodes with different
views do no harm.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import view as views
from .view import ReplicaSet, View


class ReplicationFactor(NamedTuple):
    """The copies that a push waits for, where there are enough nodes. Learners come on top; the
    view has their number."""

    sync: int = 2


def holders(view: View) -> list[str]:
    """The nodes that may hold data, stopped nodes included: a stopped node is expected back."""
    return sorted(
        node
        for node, member in view.members.items()
        if member.state in ("active", "stopped") and not member.witness
    )


def plan(view: View, size: ReplicationFactor) -> list[ReplicaSet]:
    """The planned replica set of each partition, with the epochs of the view."""
    nodes = holders(view)
    if not nodes:
        return list(view.places)
    partitions = view.places[:-1]
    taken: list[tuple[str, ...]] = [() for _ in partitions]
    preferences = [[place.sync, place.learners] for place in partitions]
    taken = [(primary,) for primary in _even(nodes, preferences, taken)]
    for _ in range(min(size.sync, len(nodes)) - 1):
        chosen = _even(nodes, preferences, taken)
        taken = [(*sofar, node) for sofar, node in zip(taken, chosen, strict=True)]
    sync = taken
    for _ in range(min(view.learners, len(nodes) - len(sync[0])) if sync else 0):
        preferences = [[place.learners, place.sync] for place in partitions]
        chosen = _even(nodes, preferences, taken)
        taken = [(*sofar, node) for sofar, node in zip(taken, chosen, strict=True)]
    planned = [
        ReplicaSet(place.epoch, members, everyone[len(members) :])
        for place, members, everyone in zip(partitions, sync, taken, strict=True)
    ]
    return [*planned, _catalogue(view, nodes, size)]


def _even(
    nodes: list[str], preferences: list[list[tuple[str, ...]]], taken: list[tuple[str, ...]]
) -> list[str]:
    """Chooses one more node for each partition: a preferred one, as long as loads stay even.

    `taken` has the nodes already chosen for each partition, `preferences` the preferred
    groups. Leading is counted apart from following.
    """
    load = dict.fromkeys(nodes, 0)
    for members in taken:
        for node in members[1:]:
            load[node] += 1
    total = sum(load.values()) + len(preferences)
    most, spare = total // len(nodes), total % len(nodes)
    able = [
        [n for group in groups for n in group if n in load and n not in members]
        for groups, members in zip(preferences, taken, strict=True)
    ]
    chosen = [""] * len(preferences)
    # First every partition keeps its first preference if there is room; then other nodes with a
    # copy come into question.
    for depth in (1, None):
        for number, wished in enumerate(able):
            for node in wished[:depth] if not chosen[number] else ():
                if load[node] < most or (load[node] == most and spare > 0):
                    chosen[number] = node
                    spare -= load[node] == most
                    load[node] += 1
                    break
    heap = [(count, node) for node, count in load.items()]
    heapq.heapify(heap)
    for number, members in enumerate(taken):
        if not chosen[number]:
            chosen[number] = node = _least(heap, members)
            load[node] += 1
            heapq.heappush(heap, (load[node], node))
    _level(chosen, preferences, taken, load)
    return chosen


def _least(heap: list[tuple[int, str]], members: tuple[str, ...]) -> str:
    """Removes from the heap the least loaded node outside `members`."""
    passed: list[tuple[int, str]] = []
    while (least := heapq.heappop(heap))[1] in members:
        passed.append(least)
    for each in passed:
        heapq.heappush(heap, each)
    return least[1]


def _level(
    chosen: list[str],
    preferences: list[list[tuple[str, ...]]],
    taken: list[tuple[str, ...]],
    load: dict[str, int],
) -> None:
    """Evens out the loads: the last partitions may have found only nodes with a full load. Then
    other partitions move to the least loaded node.

    Partitions off their preferred nodes move first, because these would move anyway.
    """
    while True:
        least = min(load, key=lambda node: (load[node], node))
        movable = [
            number
            for number, node in enumerate(chosen)
            if load[node] > load[least] + 1 and least not in taken[number]
        ]
        if not movable:
            return
        number = max(
            movable, key=lambda n: (chosen[n] not in preferences[n][0], load[chosen[n]], n)
        )
        load[chosen[number]] -= 1
        load[least] += 1
        chosen[number] = least


def _catalogue(view: View, nodes: list[str], size: ReplicationFactor) -> ReplicaSet:
    """Every data node follows the catalogue, even while leaving: without the queues' records a node
    cannot assign its messages to queues."""
    place = view.places[-1]
    order = [n for n in (*place.sync, *place.learners) if n in nodes]
    order += [n for n in nodes if n not in order]
    count = min(size.sync, len(nodes))
    others = [n for n, member in view.members.items() if not member.witness and n not in nodes]
    return ReplicaSet(place.epoch, tuple(order[:count]), (*order[count:], *sorted(others)))


class Step(NamedTuple):
    """The next step for a partition: a change of the view, or a learner to grow the set by."""

    change: views.Change | None = None
    grow: str = ""
    #: The member that the learner `grow` replaces.
    drop: str = ""
    #: The member that leads after this step, if the step moves the lead.
    successor: str = ""

    @property
    def grown(self) -> Callable[[int, int], views.Change]:
        """Makes the change that adds `grow`, from a partition's number and epoch."""
        if self.drop:
            return lambda number, epoch: views.substitute(number, epoch, self.drop, self.grow)
        return lambda number, epoch: views.grow(number, epoch, self.grow)


class Liveness(NamedTuple):
    """The state of the other nodes, as known to the primary of a partition."""

    #: The node answers, and has not announced its stop.
    alive: Callable[[str], bool]
    #: The node answers, and may be stopping.
    reachable: Callable[[str], bool]


def replenish(
    number: int,
    now: ReplicaSet,
    liveness: Liveness,
    size: int,
    min_sync: int,
    spare: Sequence[str],
    *,
    level: Callable[[str], bool] = lambda node: False,
    hurry: bool = False,
    shrink: bool = True,
) -> Step:
    """The repair of a set with a dead or stopping member, or with fewer than `min_sync` members; an
    empty step if no node can help.

    A set below `min_sync` grows by any learner that answers, even by a stopping learner: two
    stopped nodes with a copy are better than one. A learner known to be `level` comes first, since
    another one may be dead and not suspected yet. A learner that may hold data, one of `spare`,
    replaces a dead or stopping member in one step (see ``views.substitute``). A stopping primary
    without a replacement, or without one in time (`hurry`), gives away the lead, or leaves a set
    that has enough other members (`shrink`).
    """
    alive = liveness.alive
    gone = [node for node in now.sync if not alive(node)]
    staying = [node for node in now.sync if alive(node)]
    learners = [node for node in now.learners if alive(node) and node in spare]
    if len(now.sync) < min_sync:
        learners += [n for n in now.learners if liveness.reachable(n) and n not in learners]
        learners.sort(key=lambda node: not level(node))
        return Step(grow=learners[0]) if learners else _recruit(number, now, alive, spare)
    if not gone:
        return Step()
    stops = now.primary in gone  # only the primary takes this step: not dead, so stopping
    if len(now.sync) <= size and learners and not (stops and hurry):
        if len(now.sync) == 1:
            return Step(grow=learners[0])
        successor = [*staying, *now.sync[1:]][0] if stops else ""
        return Step(None, learners[0], now.primary if stops else gone[0], successor)
    if not stops:
        return _recruit(number, now, alive, spare) if len(now.sync) <= size else Step()
    if not staying:
        return Step()
    if len(staying) >= min_sync:
        if not shrink:
            return Step()
        return Step(views.withdraw(number, now.epoch, now.primary), successor=staying[0])
    return Step(views.promote(number, now.epoch, staying[0]), successor=staying[0])


def _recruit(
    number: int, now: ReplicaSet, alive: Callable[[str], bool], spare: Sequence[str]
) -> Step:
    """Makes one of the `spare` nodes a learner, so that the node can join the set later."""
    free = [node for node in spare if alive(node) and not now.holds(node)]
    if not free:
        return Step()
    return Step(views.learn(number, now.epoch, (*now.learners, free[number % len(free)])))


def step(
    number: int,
    now: ReplicaSet,
    goal: ReplicaSet,
    alive: Callable[[str], bool],
    size: int,
    spare: Sequence[str] = (),
) -> Step:
    """The next change from the present replica set to the planned one, `goal`.

    A set that is too small takes any live learner; without one, a `spare` node becomes a learner at
    once, even if the plan waits for another node. Otherwise the planned members join first, and
    only then do the others leave: there are never fewer copies than before.
    """
    missing = [node for node in goal.sync if node not in now.sync]
    for node in missing:
        if node not in now.learners and alive(node):
            return Step(views.learn(number, now.epoch, (*now.learners, node)))
    wanted = [node for node in missing if alive(node)]
    if len(now.sync) < size:
        wanted += [n for n in now.learners if alive(n) and n not in wanted]
    if wanted:
        return Step(grow=wanted[0])
    if len(now.sync) < size:
        recruit = _recruit(number, now, alive, spare)
        if recruit.change is not None:
            return recruit
    if not missing:
        extra = [node for node in now.sync if node not in goal.sync]
        if now.primary != goal.primary and alive(goal.primary):
            change = views.promote(number, now.epoch, goal.primary)
            return Step(change, successor=goal.primary)
        if extra:
            return Step(views.shrink(number, now.epoch, extra[0]))
    learners = tuple(
        n for n in dict.fromkeys((*goal.learners, *now.learners))
        if n not in now.sync and (n in goal.learners or n in goal.sync or not _done(now, goal))
    )  # fmt: skip
    if learners != now.learners and set(learners) != set(now.learners):
        return Step(views.learn(number, now.epoch, learners))
    return Step()


def _done(now: ReplicaSet, goal: ReplicaSet) -> bool:
    """True if the sync set is as planned, so that no other node needs to follow."""
    return set(now.sync) == set(goal.sync)


def copies(view: View, size: ReplicationFactor) -> int:
    """The least number of disks that an acknowledgement should need.

    Two, as soon as there are two data nodes. But a cluster of two data nodes has a witness in order
    to continue with one of the two: then entries acknowledged while the other node is down are on
    one disk, and only the node with these entries can lead until the other has caught up.
    """
    nodes = holders(view)
    witness = any(each.witness and each.state == "active" for each in view.members.values())
    if len(nodes) < 2 or (len(nodes) == 2 and witness):
        return 1
    return min(size.sync, 2)


def voters(view: View) -> tuple[str, ...]:
    """The planned voters: one, two, three or five nodes, as available; present voters stay if able.

    Two voters can decide only together, so a third node, with or without data, is worth having.
    """
    able = sorted(n for n, member in view.members.items() if member.state in ("active", "stopped"))
    count = len(able) if len(able) < 3 else 3 if len(able) < 5 else 5
    kept = [node for node in view.voters if node in able]
    others = [node for node in able if node not in kept]
    return tuple((kept + others)[:count]) or view.voters
