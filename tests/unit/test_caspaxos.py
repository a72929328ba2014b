"""The CASPaxos register during a change of voters: schedules that random ones reach too rarely."""

from __future__ import annotations

from weft.dht import view as views
from weft.dht.caspaxos import Proposer, Vote, Voter
from weft.dht.messages import Accept, Accepted, Ballot, Prepare, Promise
from weft.dht.view import Member, View

MEMBERS = {name: Member(f"{name}:1") for name in "abc"}
#: Two voters, on their way to three.
JOINT = View(5, ("a", "b"), ("a", "b", "c"), MEMBERS, ())
THREE = View(6, ("a", "b", "c"), (), MEMBERS, ())
OLD: Ballot = (1, 1, "a")
TRIED: Ballot = (2, 1, "a")


def voters(**accepted: tuple[Ballot, View]) -> dict[str, Voter]:
    return {name: Voter(Vote(vote[0], *vote), lambda _: None) for name, vote in accepted.items()}


def proposer() -> Proposer:
    made = Proposer("b", 1, 9)
    made.propose_change(views.mark("c", "away"))
    made.start(JOINT)
    return made


def take(made: Proposer) -> list[tuple[str, object]]:
    sends, made.sends = list(made.sends), []
    return list(sends)


def promise(made: Proposer, held: dict[str, Voter], *names: str) -> None:
    for to, message in take(made):
        assert isinstance(message, Prepare)
        if to in names:
            said = held[to].prepare(message)
            assert isinstance(said, Promise)
            made.promise(to, said)


def test_a_view_that_was_only_tried_is_decided_by_the_voters_before_it_too() -> None:
    """A view that was only proposed needs a quorum of the previous voters, too.

    `a` alone has accepted the view of three voters. Two of the three must not decide without `a`: a
    majority of the new voters is not a majority of the old ones.
    """
    held = voters(a=(TRIED, THREE), b=(OLD, JOINT), c=(OLD, JOINT))
    made = proposer()
    promise(made, held, "b", "c")
    assert not made.sends, "b and c are no quorum of the joint view"
    said = held["a"].prepare(Prepare((10, 1, "b")))
    assert isinstance(said, Promise)
    made.promise("a", said)
    accepts = take(made)
    assert {to for to, _ in accepts} == {"a", "b", "c"}
    message = accepts[0][1]
    assert isinstance(message, Accept)
    assert (message.view.version, message.view.voters) == (7, ("a", "b", "c"))
    for name in ("b", "c"):
        made.accepted(name, Accepted((10, 1, "b")))
        assert not made.chosen
    made.accepted("a", Accepted((10, 1, "b")))
    assert [view.version for view in made.chosen] == [7]


def test_whoever_the_read_view_names_is_asked_with_the_same_ballot() -> None:
    """A node with an old view finds the current voters, and reads their view."""
    known = View(1, ("b",), (), MEMBERS, ())
    now = View(6, ("b", "c"), (), MEMBERS, ())
    newest = View(9, ("b", "c"), (), MEMBERS, ())
    held = voters(b=(OLD, now), c=(TRIED, newest))
    made = Proposer("a", 1, 9)
    made.propose_change(views.mark("c", "away"))
    made.start(known)
    promise(made, held, "b")
    assert [to for to, _ in made.sends] == ["c"]
    promise(made, held, "c")
    accept = take(made)[0][1]
    assert isinstance(accept, Accept)
    assert accept.view.version == 10
