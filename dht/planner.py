"""The planner: who should hold which partition. A pure function of the view, the same everywhere.

It keeps what is there as far as it can and evens out the rest: every node that holds data leads as
many partitions as the others, give or take one, and is in as many sync sets. The primary of each
partition takes the next step from what is to what should be; steps are changes of the view with the
epoch they were meant for, so two nodes that see different views do no harm.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import view as views
from .view import Place, View


class Size(NamedTuple):
    """How many copies a push waits for, where there are enough nodes; learners come on top of
    that, as many as the view says."""

    sync: int = 2


def holders(view: View) -> list[str]:
    """The nodes that may hold data; one that has stopped is expected back."""
    return sorted(
        node
        for node, member in view.members.items()
        if member.state in ("active", "stopped") and not member.witness
    )


def plan(view: View, size: Size) -> list[Place]:
    """Where each partition should be; epochs are those of the view."""
    nodes = holders(view)
    if not nodes:
        return list(view.places)
    partitions = view.places[:-1]
    taken: list[tuple[str, ...]] = [() for _ in partitions]
    wishes = [[place.sync, place.learners] for place in partitions]
    taken = [(primary,) for primary in _even(nodes, wishes, taken)]
    for _ in range(min(size.sync, len(nodes)) - 1):
        chosen = _even(nodes, wishes, taken)
        taken = [(*sofar, node) for sofar, node in zip(taken, chosen, strict=True)]
    sync = taken
    for _ in range(min(view.learners, len(nodes) - len(sync[0])) if sync else 0):
        wishes = [[place.learners, place.sync] for place in partitions]
        chosen = _even(nodes, wishes, taken)
        taken = [(*sofar, node) for sofar, node in zip(taken, chosen, strict=True)]
    planned = [
        Place(place.epoch, members, everyone[len(members) :])
        for place, members, everyone in zip(partitions, sync, taken, strict=True)
    ]
    return [*planned, _catalogue(view, nodes, size)]


def _even(
    nodes: list[str], wishes: list[list[tuple[str, ...]]], taken: list[tuple[str, ...]]
) -> list[str]:
    """One more node for each partition: one that is wished for, as long as loads stay even.

    `taken` are the nodes that each partition has already. Leading is counted apart from following.
    """
    load = dict.fromkeys(nodes, 0)
    for members in taken:
        for node in members[1:]:
            load[node] += 1
    total = sum(load.values()) + len(wishes)
    most, spare = total // len(nodes), total % len(nodes)
    able = [
        [n for group in groups for n in group if n in load and n not in members]
        for groups, members in zip(wishes, taken, strict=True)
    ]
    chosen = [""] * len(wishes)
    # First everyone keeps what is his as far as it fits; then others who have a copy are asked.
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
    _level(chosen, wishes, taken, load)
    return chosen


def _least(heap: list[tuple[int, str]], members: tuple[str, ...]) -> str:
    """Takes out the node with the least to do that is not among these."""
    passed: list[tuple[int, str]] = []
    while (least := heapq.heappop(heap))[1] in members:
        passed.append(least)
    for each in passed:
        heapq.heappush(heap, each)
    return least[1]


def _level(
    chosen: list[str],
    wishes: list[list[tuple[str, ...]]],
    taken: list[tuple[str, ...]],
    load: dict[str, int],
) -> None:
    """The last partitions may have found only nodes that had enough: then somebody else gives way.

    What was not wished for goes first, because it would be moved anyway.
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
        number = max(movable, key=lambda n: (chosen[n] not in wishes[n][0], load[chosen[n]], n))
        load[chosen[number]] -= 1
        load[least] += 1
        chosen[number] = least


def _catalogue(view: View, nodes: list[str], size: Size) -> Place:
    """Every node that has data follows the catalogue, also while it leaves: without the queues'
    records it could not tell what its messages belong to."""
    place = view.places[-1]
    order = [n for n in (*place.sync, *place.learners) if n in nodes]
    order += [n for n in nodes if n not in order]
    count = min(size.sync, len(nodes))
    others = [n for n, member in view.members.items() if not member.witness and n not in nodes]
    return Place(place.epoch, tuple(order[:count]), (*order[count:], *sorted(others)))


class Step(NamedTuple):
    """The next thing to do for a partition: a change, or a learner to be brought into the set."""

    change: views.Change | None = None
    grow: str = ""


def step(
    number: int,
    now: Place,
    goal: Place,
    alive: Callable[[str], bool],
    size: int,
    spare: Sequence[str] = (),
) -> Step:
    """From what is to what should be, one change at a time.

    A set that is too small takes any learner that is there; if none is, one of `spare` learns now,
    whoever the plan still waits for. Otherwise those who should be members join first, and only
    then do the others leave: there are never fewer copies than before.
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
        free = [node for node in spare if alive(node) and not now.holds(node)]
        if free:
            return Step(views.learn(number, now.epoch, (*now.learners, free[number % len(free)])))
    if not missing:
        extra = [node for node in now.sync if node not in goal.sync]
        if now.primary != goal.primary:
            return Step(views.promote(number, now.epoch, goal.primary))
        if extra:
            return Step(views.shrink(number, now.epoch, extra[0]))
    learners = tuple(
        n for n in dict.fromkeys((*goal.learners, *now.learners))
        if n not in now.sync and (n in goal.learners or n in goal.sync or not _done(now, goal))
    )  # fmt: skip
    if learners != now.learners and set(learners) != set(now.learners):
        return Step(views.learn(number, now.epoch, learners))
    return Step()


def _done(now: Place, goal: Place) -> bool:
    """Whether the sync set is as it should be, so that nobody else needs to follow."""
    return set(now.sync) == set(goal.sync)


def copies(view: View, size: Size) -> int:
    """How many disks an acknowledgement should need, at the least.

    Two, as soon as two nodes have data. But a cluster of two was given a witness to go on with one
    of them: then what is acknowledged while the other is down is on one disk, and only the node
    that has it can lead until the other has caught up.
    """
    nodes = holders(view)
    witness = any(each.witness and each.state == "active" for each in view.members.values())
    if len(nodes) < 2 or (len(nodes) == 2 and witness):
        return 1
    return min(size.sync, 2)


def voters(view: View) -> tuple[str, ...]:
    """Who should vote: one, two, three or five nodes, as there are; those who do stay if they can.

    Two can decide only together, so a third one, with or without data, is worth having.
    """
    able = sorted(n for n, member in view.members.items() if member.state in ("active", "stopped"))
    count = len(able) if len(able) < 3 else 3 if len(able) < 5 else 5
    kept = [node for node in view.voters if node in able]
    others = [node for node in able if node not in kept]
    return tuple((kept + others)[:count]) or view.voters
