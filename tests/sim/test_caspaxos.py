"""The CASPaxos register alone: promises, ballots, merged changes, voter changes in two steps."""

from __future__ import annotations

from weft.dht import view as views
from weft.dht.caspaxos import Proposer, Vote, Voter
from weft.dht.messages import Accept, Accepted, AnyMessage, Prepare, Promise, ProposalRejected
from weft.dht.view import Member, ReplicaSet, View

FIRST = views.found("a", Member("a"), 2)


class Ring:
    """Voters with their disks, and proposers; messages arrive at once unless held."""

    def __init__(self, names: str, view: View) -> None:
        self.disk: dict[str, Vote] = {}
        self.voters = {name: Voter(Vote((0, 0, "a"), (0, 0, "a"), view), self._saver(name))
                       for name in names}  # fmt: skip
        self.proposers = {name: Proposer(name, 1) for name in names}

    def _saver(self, name: str):  # type: ignore[no-untyped-def]
        return lambda vote: self.disk.__setitem__(name, vote)

    def carry(self, name: str, deaf: str = "") -> list[tuple[str, AnyMessage]]:
        """One round trip for all messages of a proposer; returns the messages sent."""
        proposer = self.proposers[name]
        sends = list(proposer.sends)
        proposer.sends.clear()
        for to, message in sends:
            if to in deaf:
                continue
            voter = self.voters[to]
            answer = (
                voter.prepare(message) if isinstance(message, Prepare) else voter.accept(message)  # type: ignore[arg-type]
            )
            match answer:
                case Promise():
                    proposer.promise(to, answer)
                case Accepted():
                    proposer.accepted(to, answer)
                case ProposalRejected():
                    proposer.reject(answer)
        return sends

    def decide(self, name: str, known: View, deaf: str = "") -> View:
        proposer = self.proposers[name]
        proposer.start(known)
        for _ in range(10):
            self.carry(name, deaf)
        assert proposer.chosen, "nothing was decided"
        return proposer.chosen.pop(0)


def _three(**fields: object) -> View:
    members = {name: Member(name) for name in "abcde"}
    base = View(7, ("a", "b", "c"), (), members, (ReplicaSet(3, ("a", "b"), ("c",)),) * 3)
    return View(**{**{f: getattr(base, f) for f in base.__struct_fields__}, **fields})


def test_wishes_are_folded_into_one_view() -> None:
    view = _three()
    ring = Ring("abc", view)
    proposer = ring.proposers["a"]
    proposer.propose_change(views.shrink(0, 3, "b"))
    proposer.propose_change(views.grow(1, 3, "c"))
    proposer.propose_change(views.mark("e", "leaving"))
    chosen = ring.decide("a", view)
    assert chosen.version == view.version + 1
    assert chosen.places[0].sync == ("a",)
    assert chosen.places[1].sync == ("a", "b", "c")
    assert chosen.members["e"].state == "leaving"
    assert proposer.idle


def test_a_wish_that_lost_its_reason_changes_nothing_and_the_view_is_chosen_again() -> None:
    view = _three()
    ring = Ring("abc", view)
    ring.proposers["a"].propose_change(views.shrink(0, 2, "b"))  # meant for an epoch that is over
    chosen = ring.decide("a", view)
    assert chosen == view


def test_voters_change_in_two_steps_and_nothing_else_goes_with_them() -> None:
    view = _three()
    ring = Ring("abcde", view)
    proposer = ring.proposers["a"]
    proposer.propose_change(views.shrink(0, 3, "b"))
    proposer.propose_change(views.revote(("a", "d", "e")))
    proposer.propose_change(views.revote(("a", "d", "e")))
    proposer.propose_change(views.shrink(1, 3, "b"))
    joint = ring.decide("a", view)
    assert (joint.voters, joint.joining) == (("a", "b", "c"), ("a", "d", "e"))
    assert joint.places[0].sync == ("a",)
    assert joint.places[1].sync == ("a", "b")  # this change waits for the next round
    done = ring.decide("a", joint)
    assert (done.voters, done.joining) == (("a", "d", "e"), ())
    assert done.version == joint.version + 1
    last = ring.decide("a", done)
    assert last.places[1].sync == ("a",)


def test_a_joint_view_needs_a_majority_of_both_groups() -> None:
    joint = _three(joining=("c", "d", "e"))
    assert not joint.quorum("ab")
    assert not joint.quorum("cde")
    assert joint.quorum("acd")
    assert _three().quorum("ac")
    assert not _three().quorum("ade")


def test_a_promise_stands_against_lower_ballots_and_over_a_crash() -> None:
    view = _three()
    ring = Ring("abc", view)
    assert isinstance(ring.voters["b"].prepare(Prepare((5, 1, "c"))), Promise)
    again = Voter(ring.disk["b"], lambda _: None)
    answer = again.accept(Accept((4, 9, "a"), view))
    assert answer == ProposalRejected((4, 9, "a"), (5, 1, "c"))


def test_who_is_refused_starts_above_what_refused_it() -> None:
    view = _three()
    ring = Ring("abc", view)
    for voter in ring.voters.values():
        voter.prepare(Prepare((9, 1, "c")))
    proposer = ring.proposers["a"]
    proposer.propose_change(views.shrink(0, 3, "b"))
    proposer.start(view)
    ring.carry("a")
    assert proposer.lost
    assert not proposer.trying
    assert ring.decide("a", view).places[0].sync == ("a",)


def test_what_one_voter_accepted_is_read_and_finished_by_the_next_proposer() -> None:
    view = _three()
    ring = Ring("abc", view)
    first = ring.proposers["a"]
    first.propose_change(views.shrink(0, 3, "b"))
    first.start(view)
    ring.carry("a")
    ring.carry("a", deaf="bc")  # only a accepts
    assert not first.chosen
    second = ring.proposers["b"]
    second.propose_change(views.shrink(1, 3, "a"))
    second.start(view)
    ring.carry("b", deaf="c")
    assert second.lost or second.trying
    second.lost = False
    chosen = ring.decide("b", view, deaf="c")
    assert chosen.places[0].sync == ("a",)  # the first proposer's change took effect as well
    assert chosen.places[1].sync == ("b",)


def test_a_proposer_that_read_older_voters_asks_the_newer_ones() -> None:
    old = _three()
    new = View(9, ("c", "d", "e"), (), old.members, old.places)
    ring = Ring("abcde", old)
    for name in "cde":
        ring.voters[name].accept(Accept((3, 1, "d"), new))
    proposer = ring.proposers["a"]
    proposer.propose_change(views.shrink(0, 3, "b"))
    proposer.start(old)
    said: set[str] = set()
    for _ in range(10):
        proposer.lost = False
        if not proposer.trying and not proposer.chosen:
            proposer.start(old)
        said |= {to for to, _ in ring.carry("a", deaf="b")}
    assert {"d", "e"} <= said
    assert proposer.chosen[0].version == 10
    assert proposer.chosen[0].voters == ("c", "d", "e")


def _reuse(boots: tuple[int, int]) -> bool:
    """A schedule in which a proposer crashes between its two phases and restarts.

    True if two different views were taken for chosen under one version.
    """
    view = _three()
    ring = Ring("abc", view)
    first = Proposer("a", boots[0])
    first.propose_change(views.shrink(0, 3, "b"))
    first.start(view)
    ring.proposers["a"] = first
    ring.carry("a")
    late = [each for each in first.sends if each[0] == "b"]  # crash with ACCEPTs in flight
    second = Proposer("a", boots[1])
    second.propose_change(views.shrink(0, 3, "a"))
    second.start(view)
    ring.proposers["a"] = second
    ring.carry("a", deaf="b")
    accepts = list(second.sends)
    # The new ACCEPTs reach a and are answered; the old one reaches b, which answers under that
    # ballot.
    for to, message in accepts:
        if to == "a" and isinstance(message, Accept):
            answer = ring.voters["a"].accept(message)
            if isinstance(answer, Accepted):
                second.accepted("a", answer)
    for _, message in late:
        assert isinstance(message, Accept)
        answer = ring.voters["b"].accept(message)
        if isinstance(answer, Accepted):
            second.accepted("b", answer)
    if not second.chosen:
        return False
    taken = second.chosen[0]
    return ring.voters["b"].vote.view != taken and ring.voters["c"].vote.view != taken


def test_a_ballot_is_never_used_twice() -> None:
    """The planted bug reuses a ballot: a view of one voter alone counts as chosen."""
    assert not _reuse((1, 2))
    assert _reuse((0, 0))
