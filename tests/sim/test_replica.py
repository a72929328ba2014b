"""One replica, message by message: the rules that random schedules reach too rarely."""

from __future__ import annotations

from weft.dht.log import Log, agree
from weft.dht.messages import (
    AnyMessage,
    Append,
    Appended,
    Fenced,
    Need,
    Seal,
    Sealed,
)
from weft.dht.replica import Mutant, Replica, Role
from weft.dht.view import Place
from weft.persistence.memory import MemoryStore
from weft.persistence.overlay import Overlay


class Desk:
    """An Outbox that keeps everything for the test to look at."""

    def __init__(self) -> None:
        self.promises: list[int] = []
        self.sent: list[tuple[str, AnyMessage]] = []
        self.outcomes: list[tuple[object, int | None]] = []

    def promise(self, partition: int, epoch: int) -> None:
        self.promises.append(epoch)

    def send(self, to: str, message: AnyMessage) -> None:
        self.sent.append((to, message))

    def outcome(self, to: object, lsn: int | None) -> None:
        self.outcomes.append((to, lsn))

    def take(self) -> list[tuple[str, AnyMessage]]:
        sent, self.sent = self.sent, []
        return sent


def replica(name: str, min_sync: int = 2) -> tuple[Replica, Desk]:
    desk = Desk()
    return Replica(0, name, Log(0, Overlay(MemoryStore())), 0, desk, min_sync), desk


def active(min_sync: int = 2) -> tuple[Replica, Desk]:
    """`a` leads {a, b} in epoch 1, with `b` level."""
    primary, desk = replica("a", min_sync)
    primary.learn(Place(1, ("a", "b"), ("c",)))
    primary.sealed("b", Sealed(0, 1, [], 0))
    primary.appended("b", Appended(0, 1, 0))
    assert primary.role is Role.ACTIVE
    desk.take()
    return primary, desk


def test_who_has_promised_more_is_not_moved_by_an_older_primary() -> None:
    follower, desk = replica("b")
    follower.seal("c", Seal(0, 2))
    follower.append("a", Append(0, 1, (0, 0), [(1, 1, b"late")]))
    assert desk.take()[-1] == ("a", Fenced(0, 2))
    assert follower.log.end == 0
    assert desk.promises == [2]


def test_without_the_fence_it_would_be() -> None:
    follower, desk = replica("b")
    follower.mutant = Mutant()
    follower.mutant.no_fence = True
    follower.seal("c", Seal(0, 2))
    follower.append("a", Append(0, 1, (0, 0), [(1, 1, b"late")]))
    assert follower.log.end == 1
    assert desk.take()[-1] == ("a", Appended(0, 1, 1))


def test_an_entry_is_acknowledged_when_every_member_has_it() -> None:
    primary, desk = active()
    assert primary.propose(b"one", "client") == 1
    assert desk.outcomes == []
    primary.appended("c", Appended(0, 1, 1))  # a learner's word counts for nothing
    assert desk.outcomes == []
    primary.appended("b", Appended(0, 1, 1))
    assert desk.outcomes == [("client", 1)]


def test_a_pending_learner_is_waited_for() -> None:
    primary, desk = active()
    primary.appended("c", Appended(0, 1, 0))
    assert primary.want_grow(3, lambda node: True) == "c"
    primary.propose(b"one", "client")
    primary.appended("b", Appended(0, 1, 1))
    assert desk.outcomes == []
    primary.appended("c", Appended(0, 1, 1))
    assert desk.outcomes == [("client", 1)]


def test_alone_below_min_sync_nothing_is_taken_and_nothing_inherited_is_committed() -> None:
    primary, desk = active()
    primary.propose(b"one", "client")
    primary.learn(Place(2, ("a",), ("b", "c")))
    assert desk.outcomes == [("client", None)]  # it may yet come back: nobody can say
    assert primary.role is Role.ACTIVE
    assert primary.committed == 0
    assert primary.propose(b"two", "other") is None


def test_a_new_primary_adopts_the_longest_log_and_levels_the_others() -> None:
    primary, desk = replica("a")
    primary.learn(Place(3, ("a", "b")))
    assert desk.take() == [("b", Seal(0, 3))]
    primary.sealed("b", Sealed(0, 3, [(1, 1), (2, 2)], 3))
    ((to, fetch),) = desk.take()
    assert to == "b"
    assert primary.role is Role.FETCHING
    assert fetch.first == 1  # type: ignore[union-attr]


def test_a_follower_with_another_past_says_what_it_has_and_is_cut() -> None:
    follower, desk = replica("b")
    follower.append("a", Append(0, 1, (0, 0), [(1, 1, b"x"), (2, 1, b"never acknowledged")]))
    follower.append("c", Append(0, 3, (2, 2), [(3, 3, b"z")]))
    assert isinstance(desk.take()[-1][1], Need)
    follower.append("c", Append(0, 3, (1, 1), [(2, 2, b"y"), (3, 3, b"z")]))
    assert desk.take()[-1] == ("c", Appended(0, 3, 3))
    assert follower.log.entries(1, 10) == [(1, 1, b"x"), (2, 2, b"y"), (3, 3, b"z")]


def test_a_late_copy_of_an_append_cuts_nothing() -> None:
    follower, _ = replica("b")
    first = Append(0, 1, (0, 0), [(1, 1, b"x")])
    follower.append("a", first)
    follower.append("a", Append(0, 1, (1, 1), [(2, 1, b"y")]))
    follower.append("a", first)
    assert follower.log.end == 2


def test_how_far_two_logs_agree() -> None:
    assert agree([], 0, [(1, 1)], 5) == 0
    assert agree([(1, 1)], 5, [(1, 1)], 3) == 3
    assert agree([(1, 1), (2, 4)], 6, [(1, 1), (2, 4)], 5) == 5
    assert agree([(1, 1), (2, 4)], 6, [(1, 1), (3, 4)], 6) == 3
    assert agree([(1, 1), (2, 4)], 6, [(1, 1), (2, 3)], 6) == 2
