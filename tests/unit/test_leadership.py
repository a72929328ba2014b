"""Three cores, message by message: leadership checks, stopping nodes, and their replacements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from weft.dht import replica_limits
from weft.dht import view as views
from weft.dht.core import Core
from weft.dht.messages import AnyMessage, Confirm, Confirmed, FencedReply, Ping
from weft.dht.planner import Liveness, Step, replenish, step
from weft.dht.rebalancer import Handover
from weft.dht.view import Member, ReplicaSet, View
from weft.persistence import layout, table_layout
from weft.persistence.memory import MemoryStore

NODES = ("a", "b", "c")
MEMBERS = {name: Member(f"{name}:1") for name in NODES}
#: One partition and the catalogue; `a` leads both with `b`, and `c` learns.
FIRST = View(
    3, NODES, (), MEMBERS, (ReplicaSet(1, ("a", "b"), ("c",)), ReplicaSet(1, ("a", "b"), ("c",))), 2
)


def chosen(change: views.Change) -> View:
    """The view after FIRST."""
    return msgspec.structs.replace(change(FIRST), version=FIRST.version + 1)


SECOND = chosen(views.suspect("b", "a", {0: 1, 1: 1}, live=["c"]))


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
        """One round of one node; its messages wait."""
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
        """Deliver messages among these nodes, for some rounds; the others are lost."""
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


ROWS = [table_layout.key(0, name) for name in "xyz"]


def _propose(core: Core, *rows: bytes) -> None:
    for row in rows:
        core.propose(0, [(row, layout.seal(row, b"new"))])


def _reads(core: Core, *rows: bytes) -> list[bool]:
    """Whether the engine of this core reads each row."""
    return [core.pending.get(row) is not None for row in rows]


def test_entries_of_a_set_of_one_are_read_before_they_are_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are committed at once, but a round applies only so many of them."""
    monkeypatch.setattr(replica_limits, "APPLY_MAX", 1)
    made = Cluster()
    alone = ReplicaSet(1, ("a",), ("b", "c"))
    made.learn(View(3, NODES, (), MEMBERS, (alone, alone), 1), *NODES)
    made.exchange(*NODES)
    core = made.cores["a"]
    made.round("a", lambda core: _propose(core, *ROWS))
    assert made.stores["a"].get(ROWS[2]) is None, "the round has applied one entry"
    assert _reads(core, *ROWS) == [True, True, True]
    for _ in ROWS:
        made.round("a", lambda core: _propose(core, ROWS[0]))
    assert made.stores["a"].get(ROWS[2]) is not None
    assert _reads(core, *ROWS) == [True, True, True]


def test_a_primary_that_was_fenced_and_leads_on_reads_its_entries() -> None:
    """A view that tells nothing new of the partition arrives between the fence and the next epoch
    of the same primary. The engine keeps its state all the while, so its reads must agree."""
    made = led_by_a()
    core = made.cores["a"]
    made.round("a", lambda core: _propose(core, ROWS[0]))
    made.lost.clear()
    generation = core.replicas[0].ownership_generation
    made.round("a", lambda core: core.receive("b", FencedReply(0, 2)))
    assert not core.serving(0)
    made.learn(msgspec.structs.replace(FIRST, version=4), "a")
    assert _reads(core, ROWS[0]) == [True]
    third = ReplicaSet(2, ("a", "b", "c"))
    made.learn(msgspec.structs.replace(FIRST, version=5, places=(third, third)), *NODES)
    made.exchange(*NODES)
    assert core.serving(0)
    assert core.replicas[0].ownership_generation == generation
    assert _reads(core, ROWS[0]) == [True]


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
    made.learn(SECOND, "b", "c")  # `a` is partitioned off
    made.exchange("b", "c")
    core = made.cores["a"]
    made.round("a", _ask)
    assert [m for _, to, m in made.lost if to == "b"] == [Confirm([(0, 1, 1)])]
    made.exchange("a", "b", rounds=1)
    fenced = [m for _, to, m in made.lost if to == "a" and isinstance(m, FencedReply)]
    assert fenced == [FencedReply(0, 2)]
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


# --- suspicion ----------------------------------------------------------------------------------


def _silence(made: Cluster, name: str, silent: str, pings: int) -> bool:
    """True if the node proposes a view without the silent one, during so many ping intervals."""
    core = made.cores[name]
    for _ in range(pings):
        made.now += core.pace.ping
        others = [node for node in NODES if node not in (name, silent)]
        for other in others:
            made.round(name, lambda core, s=other: core.receive(s, Ping(core.view.version)))  # type: ignore[misc]
    return silent in core.failure_detector.suspected


def test_a_silent_member_is_suspected_after_the_timeout() -> None:
    made = led_by_a()
    pings = made.cores["b"].pace.suspect // made.cores["b"].pace.ping
    assert not _silence(made, "b", "a", pings - 1)
    assert _silence(made, "b", "a", 2)


def test_a_process_that_has_just_started_waits_for_the_first_message_of_its_peers() -> None:
    """Its peers send nothing until they have connected again: a suspicion would end their leads,
    and the leases of their consumers."""
    made = led_by_a()
    made.cores["b"] = core = Core("b", made.stores["b"], partitions=1, entropy=lambda below: 0)
    core.recover(made.now)
    pings = core.pace.suspect // core.pace.ping
    assert not _silence(made, "b", "a", 2 * pings)
    assert _silence(made, "b", "a", 2 * pings), "a dead node is not waited for without end"


# --- stopping members and their replacements ----------------------------------------------------


def _stopping(*nodes: str, view: View = FIRST) -> View:
    for node in nodes:
        view = views.mark(node, "stopped")(view)
    return view


def test_a_level_learner_takes_the_place_of_a_member_that_stops() -> None:
    replaced = views.substitute(0, 1, "a", "c")(_stopping("a"))
    assert replaced.places[0] == ReplicaSet(2, ("b", "c"), ("a",))
    back = views.restart("a")(replaced)
    assert back.members["a"].state == "active"
    assert back.places[0] == replaced.places[0]


@pytest.mark.parametrize(
    ("view", "epoch", "old", "new"),
    [
        (_stopping("a"), 7, "a", "c"),  # another epoch
        (_stopping("a", "c"), 1, "a", "c"),  # the learner stops, too
        (_stopping("a"), 1, "c", "c"),  # no member
        (_stopping("a"), 1, "a", "d"),  # no learner
    ],
)
def test_a_member_is_not_replaced_for_a_reason_that_is_gone(
    view: View, epoch: int, old: str, new: str
) -> None:
    assert views.substitute(0, epoch, old, new)(view) is view


def test_a_set_is_never_left_below_min_sync() -> None:
    stopping = _stopping("a")
    assert views.withdraw(0, 1, "a")(stopping) is stopping
    lower = msgspec.structs.replace(stopping, min_sync=1)
    assert views.withdraw(0, 1, "a")(lower).places[0] == ReplicaSet(2, ("b",), ("c", "a"))
    both = _stopping("b", view=lower)
    assert views.withdraw(0, 1, "a")(both) is both, "b is about to end as well"


def test_a_suspicion_shrinks_a_set_below_min_sync_only_if_a_live_node_can_join_it() -> None:
    suspect = views.suspect("b", "a", {0: 1}, live=["b", "c"])
    assert suspect(FIRST).places[0] == ReplicaSet(2, ("b",), ("c", "a"))
    for view in (_stopping("c"), _stopping("b"), _stopping("a", "b", "c")):
        assert suspect(view) is view
    nobody = views.suspect("b", "a", {0: 1}, live=["b"])
    assert nobody(FIRST) is FIRST


def test_the_lead_is_not_given_to_a_node_that_stops() -> None:
    stopping = _stopping("b")
    assert views.promote(0, 1, "b")(stopping) is stopping
    assert views.promote(0, 1, "b")(FIRST).places[0].primary == "b"


def test_a_stopping_learner_joins_a_set_that_has_too_few_copies_and_no_other() -> None:
    stopping = _stopping("c")
    assert views.grow(0, 1, "c")(stopping) is stopping
    alone = chosen(views.suspect("b", "a", {0: 1}, live=["c"]))
    alone = _stopping("c", view=alone)
    assert views.grow(0, 2, "c")(alone).places[0].sync == ("b", "c")


def test_who_has_stopped_counts_as_gone_at_once() -> None:
    made = led_by_a()
    core = made.cores["b"]
    assert core.alive("a")
    made.learn(chosen(views.mark("a", "stopped")), "b")
    assert not core.alive("a")
    assert core.reachable("a"), "it still answers"


# --- sets with a dead or stopping member ---------------------------------------------------------


def _needs(sync: str, learners: str, alive: str, reachable: str = "", **more: Any) -> Step:
    liveness = Liveness(alive.__contains__, (reachable or alive).__contains__)
    place = ReplicaSet(4, tuple(sync), tuple(learners))
    return replenish(0, place, liveness, 2, more.pop("min_sync", 2), "abcde", **more)


def test_nothing_is_needed_while_all_members_are_there() -> None:
    assert _needs("ab", "c", "ab") == Step()


def test_a_dead_follower_is_replaced_by_a_learner_in_one_step() -> None:
    assert _needs("ab", "c", "ac") == Step(grow="c", drop="b")


def test_a_primary_that_stops_is_replaced_and_the_other_member_leads() -> None:
    assert _needs("ab", "c", "bc") == Step(grow="c", drop="a", successor="b")
    assert _needs("ab", "c", "bc", hurry=True).successor == "b"
    assert _needs("ab", "c", "bc", hurry=True).grow == "", "it only gives away the lead"


def test_two_members_that_stop_at_once_are_replaced_one_after_the_other() -> None:
    assert _needs("ab", "c", "c", "abc") == Step(grow="c", drop="a", successor="b")


def test_if_everybody_stops_nothing_moves() -> None:
    assert _needs("ab", "c", "", "abc") == Step()


def test_a_set_with_too_few_copies_takes_a_learner_that_stops() -> None:
    assert _needs("a", "bc", "", "abc") == Step(grow="b")
    assert _needs("a", "bc", "c", "abc") == Step(grow="c"), "better one that stays"


def test_a_set_with_too_few_copies_takes_a_learner_that_is_level_first() -> None:
    """Another one may be dead and not suspected yet."""
    found = _needs("a", "cb", "c", "abc", level="b".__contains__)
    assert found == Step(grow="b")
    assert _needs("a", "cb", "cb", level="bc".__contains__) == Step(grow="c")


def _last_word_of_a_stopping_voter(states: str) -> Handover:
    """What is left for c, which votes and holds nothing, while a set of one has a level learner."""
    small, whole = ReplicaSet(1, ("a",), ("b",)), ReplicaSet(1, ("a", "b"))
    made = Cluster()
    members = {
        name: msgspec.structs.replace(MEMBERS[name], state=state)
        for name, state in zip(NODES, states.split(), strict=True)
    }
    made.learn(View(4, NODES, (), members, (small, whole), 2), *NODES)
    made.exchange(*NODES)
    left: list[Handover] = []
    for _ in range(2):
        made.now += made.cores["c"].pace.ping
        made.round("c", lambda core: left.append(core.retire(hurry=False)))
    return left[-1]


def test_a_stopping_voter_stays_while_a_set_has_too_few_copies() -> None:
    """The growth of a set is a change of the view, and needs a majority of the voters."""
    word = _last_word_of_a_stopping_voter("stopped stopped stopped")
    assert word is Handover.UNDER_REPLICATED
    assert _last_word_of_a_stopping_voter("active active stopped") is Handover.DONE


def test_one_of_two_data_nodes_that_stops_leaves_the_other_to_go_on_beside_a_witness() -> None:
    found = _needs("ab", "", "b", min_sync=1)
    assert found.successor == "b"
    assert found.change is not None
    view = msgspec.structs.replace(FIRST, places=(ReplicaSet(4, ("a", "b")),), min_sync=1)
    assert found.change(view).places[0] == ReplicaSet(5, ("b",), ("a",))


def test_a_set_without_a_living_learner_takes_any_node() -> None:
    now = ReplicaSet(4, ("c",), ("a", "b"))
    alive = {"c", "d", "e"}
    spare = ["a", "b", "c", "d", "e"]
    found = step(0, now, ReplicaSet(4, ("a", "c"), ("b",)), alive.__contains__, 2, spare)
    view = View(3, NODES, (), {n: Member(f"{n}:1") for n in "abcde"}, (now,), 2)
    assert found.change is not None
    assert found.change(view).places[0] == ReplicaSet(4, ("c",), ("a", "b", "d"))
    next_step = step(0, found.change(view).places[0], now, alive.__contains__, 2, spare)
    assert next_step.grow == "d"


def test_a_set_that_is_large_enough_waits_for_its_learner() -> None:
    now = ReplicaSet(4, ("c", "d"), ("a",))
    assert step(0, now, now, {"c", "d", "e"}.__contains__, 2, ["a", "c", "d", "e"]) == Step()
