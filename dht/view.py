"""The view: who is in the cluster, and which nodes hold each partition, in order.

It is one value, changed only through the register (``register``), so there is one chain of views
and everyone agrees on it. Everyone holds all of it, smart clients too: routing is one look-up.

For each partition there is a *sync set*: its first member is the primary, and an append is
acknowledged only when every member has it. Learners follow without being waited for. Whatever
changes a sync set raises that partition's epoch, and so does the restart of one of its members.

A change is a *function of the view that is read*: it looks whether its reason still holds and
otherwise leaves the view alone, so that a wish that comes late does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

#: A change: the new view, or the same object when there is nothing to change.
Change = Callable[["View"], "View"]


class Member(msgspec.Struct, array_like=True, frozen=True):
    """A node that is in the cluster. Ids are random and never used again."""

    #: Where other nodes reach it, and its public CURVE key: whoever has the secret is this node.
    peer: str
    key: str = ""
    #: Where clients reach it.
    grpc: str = ""
    zmq: str = ""
    #: "active"; "stopped" from when it says that it stops until it starts again; "away" when it
    #: was silent for so long that others hold its data; "leaving".
    state: str = "active"
    #: Has a vote and holds no data.
    witness: bool = False
    #: The public key of its data path, for clients, in hexadecimal digits.
    data_key: str = ""


class Place(msgspec.Struct, array_like=True, frozen=True):
    """Where one partition is."""

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
    #: Who decides: a majority of these, and while they are being replaced one of `joining` too.
    voters: tuple[str, ...]
    joining: tuple[str, ...]
    members: dict[str, Member]
    #: One for each partition, and the last one for the catalogue of queues.
    places: tuple[Place, ...]
    #: Copies that an acknowledgement needs.
    min_sync: int = 1
    #: Ids that were members once: they never come back.
    removed: tuple[str, ...] = ()
    #: Learners that a partition should have, where there are enough nodes. Set when it is founded.
    learners: int = 1

    @property
    def catalogue(self) -> int:
        """The number of the partition that holds the queues' own records."""
        return len(self.places) - 1

    def quorum(self, said: Iterable[str]) -> bool:
        """Whether those who said yes can decide."""
        yes = set(said)
        groups = [self.voters, self.joining] if self.joining else [self.voters]
        return all(2 * len(yes & set(group)) > len(group) for group in groups)

    @property
    def groups(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The voters, and those who are to replace them."""
        return self.voters, self.joining

    @property
    def deciders(self) -> tuple[str, ...]:
        """Everyone who has a vote."""
        return tuple(dict.fromkeys((*self.voters, *self.joining)))


NOTHING = View(0, (), (), {}, ())


def found(node: str, member: Member, partitions: int, learners: int = 1) -> View:
    """The first view of a cluster: one node, which holds everything."""
    places = tuple(Place(1, (node,)) for _ in range(partitions + 1))
    return View(1, (node,), (), {node: member}, places, learners=learners)


def _with_places(view: View, change: Callable[[Place], Place]) -> View:
    places = tuple(map(change, view.places))
    return view if places == view.places else msgspec.structs.replace(view, places=places)


def suspect(by: str, missing: str, epochs: dict[int, int]) -> Change:
    """`by` says that `missing` does not answer: out of every sync set that both are in.

    Only where the epoch is still what `by` knew. The missing one stays a learner, so it is brought
    up to date as soon as it is back. Nobody from outside the sync set becomes primary by this.
    """

    def change(view: View) -> View:
        places = list(view.places)
        for number, epoch in epochs.items():
            place = places[number]
            if place.epoch == epoch and by in place.sync and missing in place.sync:
                rest = tuple(node for node in place.sync if node != missing)
                places[number] = Place(epoch + 1, rest, (*place.learners, missing))
        if tuple(places) == view.places:
            return view
        return msgspec.structs.replace(view, places=tuple(places))

    return change


def retire(node: str, epochs: dict[int, int]) -> Change:
    """A member that stops says so: it leaves its sync sets, stays a learner, and nobody waits for
    it. Never the last of a set: the others could not go on without it anyway."""

    def change(view: View) -> View:
        places = list(view.places)
        for number, epoch in epochs.items():
            place = places[number]
            rest = tuple(each for each in place.sync if each != node)
            if place.epoch == epoch and rest and rest != place.sync:
                places[number] = Place(epoch + 1, rest, (*place.learners, node))
        if tuple(places) == view.places:
            return view
        return msgspec.structs.replace(mark(node, "stopped")(view), places=tuple(places))

    return change


def restart(node: str) -> Change:
    """A member has started again: its partitions get a new epoch, and are reconciled."""

    def one(place: Place) -> Place:
        if node not in place.sync:
            return place
        return Place(place.epoch + 1, place.sync, place.learners)

    def change(view: View) -> View:
        member = view.members.get(node)
        stopped = member is not None and member.state == "stopped"
        return _with_places(mark(node, "active")(view) if stopped else view, one)

    return change


def grow(number: int, epoch: int, learner: str) -> Change:
    """A learner that is level, and whose word was waited for since, joins the sync set."""

    def change(view: View) -> View:
        place = view.places[number]
        if place.epoch != epoch or learner not in place.learners:
            return view
        rest = tuple(node for node in place.learners if node != learner)
        return _replace(view, number, Place(epoch + 1, (*place.sync, learner), rest))

    return change


def shrink(number: int, epoch: int, node: str) -> Change:
    """One member too many leaves the sync set, and the partition's holders altogether."""

    def change(view: View) -> View:
        place = view.places[number]
        if place.epoch != epoch or node not in place.sync or len(place.sync) < 2:
            return view
        rest = tuple(each for each in place.sync if each != node)
        return _replace(view, number, Place(epoch + 1, rest, place.learners))

    return change


def promote(number: int, epoch: int, node: str) -> Change:
    """Another member of the sync set becomes primary."""

    def change(view: View) -> View:
        place = view.places[number]
        if place.epoch != epoch or node not in place.sync or place.primary == node:
            return view
        order = (node, *(each for each in place.sync if each != node))
        return _replace(view, number, Place(epoch + 1, order, place.learners))

    return change


def learn(number: int, epoch: int, learners: tuple[str, ...]) -> Change:
    """Who follows. No epoch is raised: learners decide nothing."""

    def change(view: View) -> View:
        place = view.places[number]
        wanted = tuple(n for n in learners if n in view.members and n not in place.sync)
        if place.epoch != epoch or wanted == place.learners:
            return view
        return _replace(view, number, Place(epoch, place.sync, wanted))

    return change


def join(node: str, member: Member) -> Change:
    def change(view: View) -> View:
        if view.members.get(node) == member or node in view.removed:
            return view
        return msgspec.structs.replace(view, members={**view.members, node: member})

    return change


def mark(node: str, state: str) -> Change:
    """Whoever is away or leaving gets no data; `remove` follows when a leaving one holds none."""

    def change(view: View) -> View:
        member = view.members.get(node)
        if member is None or member.state in (state, "leaving"):
            return view
        marked = msgspec.structs.replace(member, state=state)
        return msgspec.structs.replace(view, members={**view.members, node: marked})

    return change


def require(copies: int, right: Callable[[View], int] | None = None) -> Change:
    """From now on nothing is acknowledged on fewer disks: more only when everything has so many.

    `right` says how many a view should ask for: who was counted may have been joined by others.
    """

    def change(view: View) -> View:
        level = min(len(place.sync) for place in view.places)
        late = right is not None and right(view) != copies
        if late or level < copies or view.min_sync == copies:
            return view
        return msgspec.structs.replace(view, min_sync=copies)

    return change


def remove(node: str) -> Change:
    """The node is no member any more. Refused while a sync set or the vote needs it."""

    def change(view: View) -> View:
        needed = node in view.deciders or any(node in place.sync for place in view.places)
        if needed or node not in view.members:
            return view
        members = {name: member for name, member in view.members.items() if name != node}

        def one(place: Place) -> Place:
            rest = tuple(each for each in place.learners if each != node)
            return place if rest == place.learners else Place(place.epoch, place.sync, rest)

        removed = (*view.removed, node)
        return msgspec.structs.replace(_with_places(view, one), members=members, removed=removed)

    return change


def revote(voters: tuple[str, ...]) -> Change:
    """Other voters, in two steps: first both groups must agree, then the new one alone decides."""

    def change(view: View) -> View:
        if not voters or any(node not in view.members for node in voters):
            return view
        if view.joining == voters:
            return msgspec.structs.replace(view, voters=voters, joining=())
        if view.joining or view.voters == voters:
            return view
        return msgspec.structs.replace(view, joining=voters)

    return change


def _replace(view: View, number: int, place: Place) -> View:
    places = (*view.places[:number], place, *view.places[number + 1 :])
    return msgspec.structs.replace(view, places=places)
