"""The words of a verdict: reasons for an operator, most urgent first, and what to do about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from .survival import Survival
from .view import View

#: Node names in one reason; the others are counted.
NAMES_MAX: Final = 4
#: Digits of a node id in a reason.
ID_DIGITS: Final = 8


class Findings(NamedTuple):
    """The partitions and nodes that a verdict names; ``safety.Verdict`` defines each field."""

    unserved: tuple[int, ...]
    blocked: tuple[int, ...]
    stranded: tuple[int, ...]
    down: tuple[str, ...]
    thin: tuple[int, ...]
    lagging: tuple[int, ...]
    #: Partitions that are not on the planned nodes.
    misplaced: tuple[int, ...]


def reasons(survival: Survival, found: Findings, advice: list[str]) -> list[str]:
    """The reasons besides an outage; appends to the advice."""
    view = survival.view
    if _has_left(survival):
        return []  # what this node knows of the others is outdated
    if not view.places:
        advice.append("start the nodes, or query another node with -s")
        return ["no partitions are known"]
    return [
        *_failovers(found),
        *_dead_members(view, found, advice),
        *_observer_cut_off(survival, advice),
        *_unsteady_members(survival),
        *_placement(survival, found),
        *survival.housekeeping(),
    ]


def _failovers(found: Findings) -> list[str]:
    passing = len(found.unserved) - len(found.blocked)
    if not passing:
        return []
    return [f"{_partitions(passing)} not served for the moment: a failover is under way"]


def _dead_members(view: View, found: Findings, advice: list[str]) -> list[str]:
    down = found.down
    if not down:
        return []
    if not advice:
        advice.append(f"start {named(view, down)}, or remove it with `weft cluster leave`")
    many = f"{len(down)} of {len(view.members)} members " + ("is" if len(down) == 1 else "are")
    return [f"{many} down: {named(view, down)}"]


def _observer_cut_off(survival: Survival, advice: list[str]) -> list[str]:
    """An observer that hears a minority is the likelier problem than a dead majority."""
    view, observer = survival.view, survival.seen.observer
    heard = len(survival.seen.alive & view.members.keys())
    if not observer or 2 * heard >= len(view.members) or len(view.members) <= 2:
        return []
    advice.append("query another node with -s")
    return [
        f"{named(view, [observer])} reaches {heard} of {len(view.members)} members: "
        "its own network may be cut"
    ]


def _unsteady_members(survival: Survival) -> list[str]:
    """Live members that hold, or are about to hold, no data."""
    view, alive = survival.view, survival.seen.alive
    found = []
    for state in ("leaving", "away", "stopped"):
        nodes = [n for n, each in view.members.items() if each.state == state and n in alive]
        if nodes:
            found.append(f"{named(view, nodes)}: {state}")
    return found


def _placement(survival: Survival, found: Findings) -> list[str]:
    said = []
    if found.thin:
        thin = _partitions(len(found.thin))
        said.append(f"{thin} with fewer than {survival.wanted} copies in step")
    if found.misplaced and not found.down:  # a dead member explains its empty places
        said.append(f"{_partitions(len(found.misplaced))} not on the planned nodes yet")
    if found.lagging:
        said.append(f"{_partitions(len(found.lagging))} with a follower behind")
    return said


def outage(survival: Survival, found: Findings) -> tuple[list[str], list[str]]:
    """Why partitions stay unserved until a node returns, and which nodes to start."""
    view = survival.view
    said: list[str] = []
    advice: list[str] = []
    if _has_left(survival):
        left = named(view, [survival.seen.observer])
        said.append(f"{left} was leaving and reaches no other member: it has left, or is cut off")
        advice.append(f"query another node with -s; if {left} has left, stop its process")
        return said, advice
    if view.places and not survival.quorum:
        _lost_quorum(survival, said, advice)
    if found.stranded:
        _stranded(view, found.stranded, said, advice)
    elif found.blocked:
        blocked = _partitions(len(found.blocked))
        said.append(f"{blocked} without the {view.min_sync} live copies that a push needs")
    return said, advice


def _has_left(survival: Survival) -> bool:
    """True if the observer has probably left: the others send nothing to a former member, so its
    last view has itself as leaving, and the others look dead."""
    seen, view = survival.seen, survival.view
    member = view.members.get(seen.observer)
    if member is None or member.state != "leaving" or len(view.members) < 2:
        return False
    others = (seen.alive & view.members.keys()) - {seen.observer}
    return not others and not any(seen.observer in place.sync for place in view.places)


def _lost_quorum(survival: Survival, said: list[str], advice: list[str]) -> None:
    view, alive = survival.view, survival.seen.alive
    voting = view.deciders
    dead = [node for node in voting if node not in alive]
    live = len(voting) - len(dead)
    said.append(f"quorum lost: {live} of {len(voting)} voters alive, dead are {named(view, dead)}")
    missing = max(len(group) // 2 + 1 - len(alive & set(group)) for group in view.groups)
    advice.append(f"start {missing} of {named(view, dead)}: a majority of the voters must run")


def _stranded(view: View, stranded: tuple[int, ...], said: list[str], advice: list[str]) -> None:
    lost = named(view, sorted({node for number in stranded for node in view.places[number].sync}))
    said.append(
        f"{_partitions(len(stranded))} without a live copy: only {lost} had all of their messages"
    )
    advice.append(f"start {lost}; only if the disks are lost permanently: `weft cluster recover`")


def named(view: View, nodes: Sequence[str]) -> str:
    """Node names for an operator: the beginning of the id, and the address."""

    def name(node: str) -> str:
        member = view.members.get(node)
        short = node[:ID_DIGITS]
        return f"{short} ({member.grpc})" if member is not None and member.grpc else short

    return some([name(node) for node in nodes])


def some(names: Sequence[str]) -> str:
    """At most NAMES_MAX names, and the number of the others."""
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _partitions(count: int) -> str:
    return f"{count} partition{'s' if count != 1 else ''}"


def disks(count: int) -> str:
    return f"{count} disk{'s' if count != 1 else ''}"
