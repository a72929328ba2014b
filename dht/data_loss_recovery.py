"""Recovery after disks are lost for good: the one change of the view that may lose messages.

No node outside a sync set ever leads the partition, so a partition without any surviving member is
offline for ever. An operator can declare nodes lost. Then

- a partition with a live member continues with its live members: each has every acknowledged entry;
- a partition without one starts anew from the most advanced copy of a live learner, or empty.
  Entries that the lost members acknowledged and the copy does not have are lost;
- the lost nodes are in ``View.lost`` from then on: other nodes ignore their messages, except
  for Announce and Ping, and a lost node that learns such a view ends. The lost node's disk is not
  wiped, because the disk may hold the lost messages.

If the lost nodes are a majority of the voters, the register cannot decide anything. Then one
surviving node, on the operator's command, writes a view of its own with itself as the only voter
(`forced`). A forced view is safe only if the lost nodes never run again on their own: two of three
lost voters could still decide by the old view. The version and the ballot jump far ahead, so that a
lost node that meets a survivor learns the survivor's view, and not the other way round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from . import view as views
from .planner import holders
from .view import Change, ReplicaSet, View

#: The jump of a forced view's version, and of the counter of its ballot.
VERSION_JUMP: Final = 1 << 32
COUNTER_JUMP: Final = 1 << 40


class Copy(NamedTuple):
    """A live node's copy of a partition: the greater copy is the better base."""

    #: The epoch and the lsn of the copy's last entry.
    epoch: int
    end: int
    node: str


def offline(view: View, lost: Collection[str]) -> list[int]:
    """The partitions with all sync members lost."""
    return [n for n, place in enumerate(view.places) if all(node in lost for node in place.sync)]


def bases(
    view: View, lost: Collection[str], copies: dict[int, list[Copy]], live: Iterable[str]
) -> dict[int, tuple[int, str]]:
    """For each offline partition the epoch and the next primary: the node with the most advanced
    copy, or any live data node if there is no copy."""
    able = [node for node in holders(view) if node in set(live) - set(lost)]
    found: dict[int, tuple[int, str]] = {}
    for number in offline(view, lost) if able else ():
        best = max(
            (copy for copy in copies.get(number, ()) if copy.node in able),
            default=Copy(0, 0, able[number % len(able)]),
        )
        found[number] = view.places[number].epoch, best.node
    return found


def recover(lost: Collection[str], found: dict[int, tuple[int, str]]) -> Change:
    """Removes the lost nodes from every set and marks the nodes as leaving; offline partitions
    begin at their bases.

    The view stays unchanged if the reason is gone: a partition has another epoch, or needs a base
    that `found` does not have. The rebalancer replaces lost voters afterwards.
    """

    def change(view: View) -> View:
        if not all(node in view.members for node in lost):
            return view
        places = []
        for number, place in enumerate(view.places):
            made = _place(place, lost, found.get(number))
            if made is None:
                return view
            places.append(made)
        members = {
            node: msgspec.structs.replace(member, state="leaving") if node in lost else member
            for node, member in view.members.items()
        }
        after = msgspec.structs.replace(
            view,
            places=tuple(places),
            members=members,
            lost=tuple(dict.fromkeys((*view.lost, *sorted(lost)))),
        )
        # A lost disk does not come back: the remaining nodes must be enough to acknowledge.
        copies = max(1, min(view.min_sync, len(holders(after))))
        return msgspec.structs.replace(after, min_sync=copies)

    return change


def _place(
    place: ReplicaSet, lost: Collection[str], base: tuple[int, str] | None
) -> ReplicaSet | None:
    sync = tuple(node for node in place.sync if node not in lost)
    learners = tuple(node for node in place.learners if node not in lost)
    if sync == place.sync:
        return ReplicaSet(place.epoch, sync, learners)
    if sync:
        return ReplicaSet(place.epoch + 1, sync, learners)
    if base is None or base[0] != place.epoch:
        return None
    leader = base[1]
    return ReplicaSet(
        place.epoch + 1, (leader,), tuple(node for node in learners if node != leader)
    )


def forced(view: View, node: str, change: Change) -> View:
    """The view after `change`, decided by `node` alone; the lost nodes are removed at once."""
    after = change(view)
    after = msgspec.structs.replace(after, voters=(node,), joining=())
    for lost in after.lost:
        after = views.remove(lost)(after)
    return msgspec.structs.replace(after, version=view.version + VERSION_JUMP)
