"""Three cores, message by message: who may say that he leads, who stops, who stands in."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.dht import view as views
from weft.dht.core import Core
from weft.dht.messages import AnyMessage, Confirm, Confirmed, Fenced
from weft.dht.planner import step
from weft.dht.view import Member, Place, View
from weft.persistence.memory import MemoryStore

NODES = ("a", "b", "c")
MEMBERS = {name: Member(f"{name}:1") for name in NODES}
#: One partition and the catalogue; `a` leads both with `b`, and `c` learns.
FIRST = View(3, NODES, (), MEMBERS, (Place(1, ("a", "b"), ("c",)), Place(1, ("a", "b"), ("c",))), 2)


def chosen(change: views.Change) -> View:
    """The view after FIRST."""
    return msgspec.structs.replace(change(FIRST), version=FIRST.version + 1)


SECOND = chosen(views.suspect("b", "a", {0: 1, 1: 1}))


class Cluster:
    """Cores whose messages are delivered when a test says so."""

    def __init__(self) -> None:
        self.now = 1
        self.stores = {name: MemoryStore() for name in NODES}
        self.cores = {
            name: Core(name, self.stores[name], partitions=1, entropy=lambda below: 0)
            for name in NODES
        }
        self.lost: list[tuple[str, str, AnyMessage]] = []
        for core in self.cores.values():
            core.recover(self.now)

    def round(self, name: str, do: Callable[[Core], None] = lambda core: None) -> None:
        """One round of one node; what it sends waits."""
        core = self.cores[name]
        self.now += 1
        core.begin(self.now)
        do(core)
        self.stores[name].write(core.end(), sync=True)
        self.lost += [(name, to, message) for to, message in core.take_sends()]

    def learn(self, view: View, *names: str) -> None:
        for name in names:
            self.round(name, lambda core: core.learn(view))

    def exchange(self, *names: str, rounds: int = 20) -> None:
        """Delivers what these say to each other, for a while; the rest is lost."""
        for _ in range(rounds):
            sent, self.lost = self.lost, []
            for sender, to, message in sent:
                if sender in names and to in names:
                    self.round(to, lambda core, s=sender, m=message: core.receive(s, m))  # type: ignore[misc]


def led_by_a() -> Cluster:
    made = Cluster()
    made.learn(FIRST, *NODES)
    made.exchange(*NODES)
    assert made.cores["a"].serving(0)
    return made


def test_who_leads_is_confirmed_by_the_others() -> None:
    made = led_by_a()
    core = made.cores["a"]
    tickets: list[int] = []
    made.round("a", lambda core: tickets.extend((core.confirm(0), core.confirm(0))))
    assert tickets == [1, 1], "one question for all pops of a round"
    assert core.confirmed(0) == 0
    made.exchange("a", "b")
    assert core.confirmed(0) == 1


def test_who_was_replaced_is_not_confirmed() -> None:
    made = led_by_a()
    made.learn(SECOND, "b", "c")  # `a` is behind a cut
    made.exchange("b", "c")
    core = made.cores["a"]
    made.round("a", _ask)
    assert [m for _, to, m in made.lost if to == "b"] == [Confirm([(0, 1, 1)])]
    made.exchange("a", "b", rounds=1)
    fenced = [m for _, to, m in made.lost if to == "a" and isinstance(m, Fenced)]
    assert fenced == [Fenced(0, 2)]
    made.exchange("a", "b")
    assert core.confirmed(0) == 0
    assert not core.serving(0)


def test_an_answer_of_an_older_epoch_counts_for_nothing() -> None:
    made = led_by_a()
    made.round("a", _ask)
    made.lost.clear()
    made.learn(chosen(views.restart("b")), *NODES)
    made.exchange(*NODES, rounds=1)
    made.round("a", lambda core: core.receive("b", Confirmed([(0, 1, 1)])))
    assert made.cores["a"].confirmed(0) == 0


def _ask(core: Core) -> None:
    core.confirm(0)


# --- who stops, who stands in -------------------------------------------------------------------


def test_who_stops_leaves_its_sets_and_stays_a_learner() -> None:
    stopped = views.retire("a", {0: 1, 1: 1})(FIRST)
    assert stopped.places[0] == Place(2, ("b",), ("c", "a"))
    assert stopped.members["a"].state == "stopped"
    back = views.restart("a")(stopped)
    assert back.members["a"].state == "active"
    assert back.places == stopped.places


def test_who_stops_does_so_only_in_the_epoch_it_knew_and_never_as_the_last() -> None:
    assert views.retire("a", {0: 7, 1: 7})(FIRST) is FIRST
    alone = views.suspect("a", "b", {0: 1, 1: 1})(FIRST)
    assert views.retire("a", {0: 2, 1: 2})(alone) is alone


def test_who_has_stopped_counts_as_gone_at_once() -> None:
    made = led_by_a()
    core = made.cores["b"]
    assert core.alive("a")
    made.learn(chosen(views.retire("a", {0: 1, 1: 1})), "b")
    assert not core.alive("a")


def test_a_set_without_a_living_learner_takes_any_node() -> None:
    now = Place(4, ("c",), ("a", "b"))
    alive = {"c", "d", "e"}
    spare = ["a", "b", "c", "d", "e"]
    found = step(0, now, Place(4, ("a", "c"), ("b",)), alive.__contains__, 2, spare)
    view = View(3, NODES, (), {n: Member(f"{n}:1") for n in "abcde"}, (now,), 2)
    assert found.change is not None
    assert found.change(view).places[0] == Place(4, ("c",), ("a", "b", "d"))
    next_step = step(0, found.change(view).places[0], now, alive.__contains__, 2, spare)
    assert next_step.grow == "d"


def test_a_set_that_is_large_enough_waits_for_its_learner() -> None:
    now = Place(4, ("c", "d"), ("a",))
    assert step(0, now, now, {"c", "d", "e"}.__contains__, 2, ["a", "c", "d", "e"]) == (None, "")
