"""The view: the members of the cluster, and the ordered list of nodes that hold each partition.

The view is one value, changed only through the register (``caspaxos``), so there is one chain of
views, and all nodes agree on the chain. Every node and every smart client holds the whole view:
routing is one look-up.

Each partition has a *sync set*: the first member is the primary, and an append is acknowledged only
when every member has the append. Learners follow, but no acknowledgement waits for a learner. Every
change of a sync set raises the partition's epoch, and so does the restart of a member.

A change is a *function of the view that is read*: the function checks if its reason still holds,
and otherwise returns the view unchanged, so that a late proposal does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

#: Returns the new view, or the same object if there is nothing to change.
Change = Callable[["View"], "View"]


class Member(msgspec.Struct, array_like=True, frozen=True):
    """A node of the cluster. Node ids are random and never reused."""

    #: The address for other nodes, and the public CURVE key: the owner of the secret is this node.
    peer: str
    key: str = ""
    #: The addresses for clients.
    grpc: str = ""
    zmq: str = ""
    #: "active"; "stopped" from the announced stop until the next start; "away" after a silence so
    #: long that other nodes hold the node's data; "leaving".
    state: str = "active"
    #: A witness has a vote and holds no data.
    witness: bool = False
    #: The public key of the data path, for clients, in hexadecimal digits.
    data_key: str = ""
    #: The zone of the node, chosen by its operator: a data centre, or a rack.
    zone: str = ""


class ReplicaSet(msgspec.Struct, array_like=True, frozen=True):
    """The nodes that hold one partition."""

    epoch: int
    sync: tuple[str, ...]
    learners: tuple[str, ...] = ()

    @property
    def primary(self) -> str:
        return self.sync[0]

    def holds(self, node: str) -> bool:
        return node in self.sync or node in self.learners


class View(msgspec.Struct, array_like=True, frozen=True):
    version: int
    #: A majority of these decides; during a replacement, also a majority of `joining`.
    voters: tuple[str, ...]
    joining: tuple[str, ...]
    members: dict[str, Member]
    #: One replica set for each partition, and the last one for the catalogue of queues.
    places: tuple[ReplicaSet, ...]
    #: Copies that an acknowledgement needs.
    min_sync: int = 1
    #: Ids of former members: a removed id never comes back.
    removed: tuple[str, ...] = ()
    #: Learners per partition, where there are enough nodes. Set when the cluster is founded.
    learners: int = 1
    #: Nodes with disks declared lost by an operator (``data_loss_recovery``): never serve again.
    lost: tuple[str, ...] = ()

    @property
    def catalogue(self) -> int:
        """The number of the partition with the queues' own records."""
        return len(self.places) - 1

    def quorum(self, said: Iterable[str]) -> bool:
        """True if the nodes in `said` can decide: a majority of the voters, and of `joining`."""
        yes = set(said)
        groups = [self.voters, self.joining] if self.joining else [self.voters]
        return all(2 * len(yes & set(group)) > len(group) for group in groups)

    @property
    def groups(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The present voters, and their replacements (empty if there are none)."""
        return self.voters, self.joining

    @property
    def deciders(self) -> tuple[str, ...]:
        """All nodes with a vote."""
        return tuple(dict.fromkeys((*self.voters, *self.joining)))


NOTHING = View(0, (), (), {}, ())


def found(node: str, member: Member, partitions: int, learners: int = 1) -> View:
    """The first view of a cluster: one node, which holds all partitions."""
    places = tuple(ReplicaSet(1, (node,)) for _ in range(partitions + 1))
    return View(1, (node,), (), {node: member}, places, learners=learners)


def _with_places(view: View, change: Callable[[ReplicaSet], ReplicaSet]) -> View:
    places = tuple(map(change, view.places))
    return view if places == view.places else msgspec.structs.replace(view, places=places)


def is_stopping(view: View, node: str) -> bool:
    """True from a member's announcement of its stop until its next start."""
    member = view.members.get(node)
    return member is not None and member.state == "stopped"


def substitutes(view: View, place: ReplicaSet, live: Iterable[str]) -> list[str]:
    """The `live` nodes that can join the sync set: data nodes outside of the set that neither stop
    nor leave. Learners come first, because a learner holds a copy already."""
    found = []
    for node in live:
        member = view.members.get(node)
        able = member is not None and member.state == "active" and not member.witness
        if able and node not in place.sync:
            found.append(node)
    return sorted(found, key=lambda node: node not in place.learners)


def suspect(by: str, missing: str, epochs: dict[int, int], live: Iterable[str] = ()) -> Change:
    """`by` reports that `missing` does not answer: `missing` leaves every sync set that has both.

    Only where the epoch is still the one that `by` knew. The missing node stays a learner, so the
    primary brings the node up to date as soon as the node is back. No node from outside the sync
    set becomes primary.

    A set does not shrink below ``min_sync`` unless one of the `live` nodes can join afterwards:
    such a set acknowledges nothing, and if the last member is lost or absent, no node can lead the
    partition although the missing node has a full copy. For the same reason a stopping node
    shrinks no set.
    """

    def change(view: View) -> View:
        if is_stopping(view, by):
            return view
        places = list(view.places)
        for number, epoch in epochs.items():
            place = places[number]
            if place.epoch == epoch and by in place.sync and missing in place.sync:
                rest = tuple(node for node in place.sync if node != missing)
                if len(rest) >= view.min_sync or substitutes(view, place, live):
                    places[number] = ReplicaSet(epoch + 1, rest, (*place.learners, missing))
        if tuple(places) == view.places:
            return view
        return msgspec.structs.replace(view, places=tuple(places))

    return change


def withdraw(number: int, epoch: int, node: str) -> Change:
    """A stopping member leaves the sync set and stays a learner, so that the others do not wait for
    its acknowledgements. Refused unless ``min_sync`` members remain that are not stopping."""

    def change(view: View) -> View:
        place = view.places[number]
        staying = tuple(n for n in place.sync if n != node and not is_stopping(view, n))
        if place.epoch != epoch or node not in place.sync or len(staying) < max(view.min_sync, 1):
            return view
        rest = (*staying, *(n for n in place.sync if n != node and n not in staying))
        return _replace(view, number, ReplicaSet(epoch + 1, rest, (*place.learners, node)))

    return change


def substitute(number: int, epoch: int, old: str, new: str) -> Change:
    """The learner `new` replaces the member `old` in one step: the set never has one member less.

    The change is `grow` and the removal of `old` at once, with the same condition on `new`: the
    primary has waited for the learner's acknowledgements, and the learner is level. So every
    acknowledged entry is on every member of the new set. `old` stays a learner. If `old` leads, the
    next member leads.
    """

    def change(view: View) -> View:
        place = view.places[number]
        rest = [node for node in place.sync if node != old]
        able = new in place.learners and new in substitutes(view, place, [new])
        if place.epoch != epoch or old not in place.sync or not rest or not able:
            return view
        rest.sort(key=lambda node: is_stopping(view, node))
        learners = (*(node for node in place.learners if node != new), old)
        return _replace(view, number, ReplicaSet(epoch + 1, (*rest, new), learners))

    return change


def restart(node: str) -> Change:
    """A member has restarted: its partitions get a new epoch, and the members reconcile."""

    def one(place: ReplicaSet) -> ReplicaSet:
        if node not in place.sync:
            return place
        return ReplicaSet(place.epoch + 1, place.sync, place.learners)

    def change(view: View) -> View:
        member = view.members.get(node)
        stopped = member is not None and member.state == "stopped"
        return _with_places(mark(node, "active")(view) if stopped else view, one)

    return change


def grow(number: int, epoch: int, learner: str) -> Change:
    """A level learner joins the sync set, after commits have waited for its acknowledgements."""

    def change(view: View) -> View:
        place = view.places[number]
        if place.epoch != epoch or learner not in place.learners:
            return view
        # A stopping node joins only a set that has too few copies otherwise.
        if is_stopping(view, learner) and len(place.sync) >= view.min_sync:
            return view
        rest = tuple(node for node in place.learners if node != learner)
        return _replace(view, number, ReplicaSet(epoch + 1, (*place.sync, learner), rest))

    return change


def shrink(number: int, epoch: int, node: str) -> Change:
    """A surplus member leaves the sync set and no longer holds the partition."""

    def change(view: View) -> View:
        place = view.places[number]
        if place.epoch != epoch or node not in place.sync or len(place.sync) < 2:
            return view
        rest = tuple(each for each in place.sync if each != node)
        return _replace(view, number, ReplicaSet(epoch + 1, rest, place.learners))

    return change


def promote(number: int, epoch: int, node: str) -> Change:
    """Another member of the sync set becomes primary, unless the member is stopping."""

    def change(view: View) -> View:
        place = view.places[number]
        if place.epoch != epoch or node not in place.sync or place.primary == node:
            return view
        if is_stopping(view, node):
            return view
        order = (node, *(each for each in place.sync if each != node))
        return _replace(view, number, ReplicaSet(epoch + 1, order, place.learners))

    return change


def learn(number: int, epoch: int, learners: tuple[str, ...]) -> Change:
    """Replaces the learners. The epoch stays the same: learners decide nothing."""

    def change(view: View) -> View:
        place = view.places[number]
        wanted = tuple(n for n in learners if n in view.members and n not in place.sync)
        if place.epoch != epoch or wanted == place.learners:
            return view
        return _replace(view, number, ReplicaSet(epoch, place.sync, wanted))

    return change


def join(node: str, member: Member) -> Change:
    def change(view: View) -> View:
        if view.members.get(node) == member or node in view.removed:
            return view
        return msgspec.structs.replace(view, members={**view.members, node: member})

    return change


def mark(node: str, state: str) -> Change:
    """Sets a member's state. Members away or leaving get no data; `remove` follows when a leaving
    member holds none."""

    def change(view: View) -> View:
        member = view.members.get(node)
        if member is None or member.state in (state, "leaving"):
            return view
        marked = msgspec.structs.replace(member, state=state)
        return msgspec.structs.replace(view, members={**view.members, node: marked})

    return change


def require(copies: int, right: Callable[[View], int] | None = None) -> Change:
    """Sets ``min_sync``: from now on no change is acknowledged on fewer disks. ``min_sync`` rises
    only when every sync set has as many members.

    `right` computes the number for a view: nodes may have joined since the proposer counted.
    """

    def change(view: View) -> View:
        level = min(len(place.sync) for place in view.places)
        late = right is not None and right(view) != copies
        if late or level < copies or view.min_sync == copies:
            return view
        return msgspec.structs.replace(view, min_sync=copies)

    return change


def remove(node: str) -> Change:
    """Removes a member. Refused while a sync set or the vote needs the node."""

    def change(view: View) -> View:
        needed = node in view.deciders or any(node in place.sync for place in view.places)
        if needed or node not in view.members:
            return view
        members = {name: member for name, member in view.members.items() if name != node}

        def one(place: ReplicaSet) -> ReplicaSet:
            rest = tuple(each for each in place.learners if each != node)
            return place if rest == place.learners else ReplicaSet(place.epoch, place.sync, rest)

        removed = (*view.removed, node)
        return msgspec.structs.replace(_with_places(view, one), members=members, removed=removed)

    return change


def revote(voters: tuple[str, ...]) -> Change:
    """Replaces the voters in two steps: first both groups must agree, then the new one decides."""

    def change(view: View) -> View:
        if not voters or any(node not in view.members for node in voters):
            return view
        if view.joining == voters:
            return msgspec.structs.replace(view, voters=voters, joining=())
        if view.joining or view.voters == voters:
            return view
        return msgspec.structs.replace(view, joining=voters)

    return change


def _replace(view: View, number: int, place: ReplicaSet) -> View:
    places = (*view.places[:number], place, *view.places[number + 1 :])
    return msgspec.structs.replace(view, places=places)
