"""The verdict on a cluster: each claim is compared with the protocol's own rules, step by step."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable

import msgspec
import pytest

from weft.dht import planner, safety
from weft.dht import view as views
from weft.dht.planner import ReplicationFactor
from weft.dht.safety import Observation, Verdict, assess
from weft.dht.view import Member, ReplicaSet, View

SIZE = ReplicationFactor()


def member(name: str, **other: object) -> Member:
    return Member(f"{name}:7703", grpc=f"{name}:7700", **other)  # type: ignore[arg-type]


def made(nodes: int, *, witness: bool = False, partitions: int = 12, learners: int = 1) -> View:
    """A cluster that matches the plan."""
    names = [chr(ord("a") + number) for number in range(nodes)]
    members = {name: member(name) for name in names}
    if witness:
        members["w"] = member("w", witness=True)
    places = tuple(ReplicaSet(1, (names[n % nodes],)) for n in range(partitions + 1))
    view = View(1, tuple(members)[:1], (), members, places, 1, (), learners)
    view = msgspec.structs.replace(
        view, voters=planner.voters(view), min_sync=planner.copies(view, SIZE)
    )
    for _ in range(4):
        view = msgspec.structs.replace(view, places=tuple(planner.plan(view, SIZE)))
    return view


def judged(
    view: View, dead: Iterable[str] = (), *, role: str | None = "active", observer: str = ""
) -> Verdict:
    alive = frozenset(view.members) - set(dead)
    return assess(Observation(view, alive, [role] * len(view.places), observer=observer))


# --- brute force over the rules ---------------------------------------------------------------


def after(view: View, alive: frozenset[str], idle: set[int]) -> tuple[View, set[int]]:
    """The cluster's final state when just these nodes are left.

    Every change of the view that the protocol allows is applied until there is none. Also returns
    the served partitions.
    """
    quorum = view.quorum(alive)
    if quorum:
        idle = {n for n in idle if not alive & set(view.places[n].sync)}
        for _ in range(30):
            changed = _change(view, alive)
            if changed.places == view.places and changed.min_sync == view.min_sync:
                break
            view = changed
    served = {
        number
        for number, place in enumerate(view.places)
        if set(place.sync) <= alive and len(place.sync) >= view.min_sync and number not in idle
    }
    return view, served


def _change(view: View, alive: frozenset[str]) -> View:
    """One round of `Core._suspect` and of `Rebalancer.tend`, at every live node."""
    able = planner.holders(view)
    live = [node for node in able if node in alive]
    for number, place in enumerate(view.places):
        for by, missing in itertools.permutations(place.sync, 2):
            replaced = place.primary in alive and len(place.sync) <= view.min_sync
            if by in alive and missing not in alive and not replaced:
                epochs = {number: view.places[number].epoch}
                view = views.suspect(by, missing, epochs, live)(view)
    goals = planner.plan(view, SIZE)
    heard = planner.Liveness(alive.__contains__, alive.__contains__)
    for number, place in enumerate(view.places):
        if place.primary not in alive:
            continue
        about = (heard, SIZE.sync, view.min_sync, able)
        next_step = planner.replenish(number, place, *about)
        if next_step == planner.Step() and set(place.sync) <= alive:
            goal = goals[number]
            next_step = planner.step(number, place, goal, heard.alive, SIZE.sync, able)
        if next_step.grow:
            view = next_step.grown(number, place.epoch)(view)
        elif next_step.change is not None:
            view = next_step.change(view)
    return view


def some_view(rng: random.Random) -> tuple[View, frozenset[str], list[str | None]]:
    """A cluster in any state; but nodes leave only while enough nodes stay to hold the data."""
    names = [f"n{number}" for number in range(rng.randint(1, 6))]
    states = ["active"] * 6 + ["leaving", "away", "stopped"]
    members = {name: member(name, state=rng.choice(states)) for name in names}
    data = list(names)
    for number in range(rng.choice([0, 0, 1, 3])):
        members[f"w{number}"] = member(f"w{number}", witness=True)
    everyone = list(members)

    def voting() -> tuple[str, ...]:
        return tuple(rng.sample(everyone, min(len(everyone), rng.choice([1, 2, 3, 3, 5]))))

    places = []
    for _ in range(rng.randint(1, 4)):
        order = rng.sample(data, len(data))
        cut = min(len(data), rng.choice([1, 2, 2, 2, 3]))
        places.append(
            ReplicaSet(1, tuple(order[:cut]), tuple(order[cut : cut + rng.randint(0, 2)]))
        )
    joining = voting() if rng.random() < 0.2 else ()
    stay = sum(
        each.state in ("active", "stopped") for name, each in members.items() if name in data
    )
    min_sync = max(1, min(stay, rng.choice([1, 2, 2])))
    view = View(
        3, voting(), joining, members, tuple(places), min_sync, (), rng.choice([0, 1, 1])
    )  # fmt: skip
    often = rng.choice([0.0, 0.2, 0.5])
    # A node that has announced its stop counts as dead.
    dead = {n for n, each in members.items() if each.state == "stopped" or rng.random() < often}
    roles = [rng.choice(["active"] * 8 + [None, "idle", "sealing"]) for _ in places]
    return view, frozenset(everyone) - dead, roles


@pytest.mark.parametrize("seed", range(4))
def test_what_it_says_is_what_the_rules_make_of_it(seed: int) -> None:
    rng = random.Random(seed)
    compared = 0
    for _ in range(400):
        view, alive, roles = some_view(rng)
        found = assess(Observation(view, alive, roles))
        idle = {number for number, role in enumerate(roles) if role == "idle"}
        everything = set(range(len(view.places)))
        assert set(found.blocked) == everything - after(view, alive, idle)[1], (view, alive, roles)
        if found.unserved:
            assert (found.service, found.may_fail) == (0, ())
            continue
        compared += 1

        def serves(failed: Iterable[str], view: View = view, alive: frozenset[str] = alive) -> bool:
            return len(after(view, alive - set(failed), set())[1]) == len(view.places)

        assert set(found.may_fail) == {node for node in alive if serves({node})}, (view, alive)
        assert found.service == _most(alive, serves), (view, alive)
    assert compared > 50


@pytest.mark.parametrize("seed", range(2))
def test_data_is_kept_while_a_member_of_every_sync_set_is_left(seed: int) -> None:
    rng = random.Random(100 + seed)
    for _ in range(300):
        view, alive, roles = some_view(rng)
        found = assess(Observation(view, alive, roles))

        def kept(failed: Iterable[str], view: View = view, alive: frozenset[str] = alive) -> bool:
            return all(set(place.sync) & alive - set(failed) for place in view.places)

        if found.stranded:
            assert found.data == 0
            assert not kept(())
        else:
            assert found.data == _most(alive, kept)
            assert set(found.sole_copies) == {node for node in alive if not kept({node})}


def _most(alive: frozenset[str], holds: Callable[[Iterable[str]], bool]) -> int:
    """The largest k for which any k of these may fail."""
    for count in range(1, len(alive) + 1):
        if not all(map(holds, itertools.combinations(sorted(alive), count))):
            return count - 1
    return len(alive)


# --- the states and their words ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "witness", "service", "data"),
    [(1, False, 0, 0), (2, False, 0, 1), (2, True, 1, 1), (3, False, 1, 1), (5, False, 1, 1)],
)
def test_settled(nodes: int, witness: bool, service: int, data: int) -> None:
    found = judged(made(nodes, witness=witness))
    assert (found.state, found.reasons, found.advice) == ("settled", (), ())
    assert (found.service, found.data) == (service, data)
    assert found.settled
    assert found.recovered


def test_a_dead_member_is_never_settled() -> None:
    for nodes, witness in ((2, False), (2, True), (3, False), (5, False)):
        view = made(nodes, witness=witness)
        for node in view.members:
            found = judged(view, {node})
            assert not found.settled
            assert found.down == (node,)
            assert any(f"{node} ({node}:7700)" in reason for reason in found.reasons)


def test_one_of_three_dead_before_and_after_the_failover() -> None:
    view = made(3)
    found = judged(view, {"c"})
    assert (found.state, found.blocked, found.recovered) == ("unavailable", (), False)
    assert "service is interrupted" in found.outlook
    view, _ = after(view, frozenset("ab"), set())
    found = judged(view, {"c"})
    assert (found.state, found.service, found.data, found.may_fail) == ("at risk", 0, 1, ())
    assert found.reasons[0] == "1 of 3 members is down: c (c:7700)"
    assert found.outlook == (
        "can lose no node without losing service; can lose 1 disk without losing messages"
    )
    assert found.recovered


def test_two_of_three_dead() -> None:
    view, _ = after(made(3), frozenset("ab"), set())
    found = judged(view, {"b", "c"}, observer="a")
    assert found.state == "unavailable"
    assert len(found.blocked) == len(view.places)
    assert not found.quorum
    assert found.reasons[0] == ("quorum lost: 1 of 3 voters alive, dead are b (b:7700), c (c:7700)")
    assert "a (a:7700) reaches 1 of 3 members: its own network may be cut" in found.reasons
    assert found.advice[0].startswith("start 1 of b (b:7700), c (c:7700)")


def test_a_partition_whose_whole_sync_set_is_dead_names_its_nodes_and_the_last_resort() -> None:
    view = made(5)
    found = judged(view, {"a", "b"})
    assert found.quorum
    assert found.stranded
    assert all(set(view.places[n].sync) <= {"a", "b"} for n in found.stranded)
    assert any("without a live copy: only a (a:7700), b (b:7700)" in r for r in found.reasons)
    (advice,) = found.advice
    assert advice.startswith("start a (a:7700), b (b:7700); only if")
    assert "weft cluster recover" in advice


def test_five_nodes_lose_one_after_the_other() -> None:
    view, alive = made(5, partitions=64), frozenset("abcde")
    states = []
    for node in "edc":
        alive -= {node}
        view, served = after(view, alive, set())
        found = judged(view, set("abcde") - alive)
        states.append((found.state, found.service))
        assert bool(found.blocked) == (len(served) < len(view.places))
    assert states == [("degraded", 1), ("at risk", 0), ("unavailable", 0)]


def test_a_witness_lets_one_of_two_go_on() -> None:
    view, served = after(made(2, witness=True), frozenset("bw"), set())
    assert len(served) == len(view.places)
    found = judged(view, {"a"})
    assert (found.state, found.service, found.data) == ("at risk", 0, 0)
    assert found.sole_copies == ("b",)
    assert found.may_fail == ("w",)


def test_what_is_not_in_its_place_is_not_settled() -> None:
    view = made(3)
    first = view.places[0]

    def with_place(place: ReplicaSet) -> View:
        return msgspec.structs.replace(view, places=(place, *view.places[1:]))

    swapped = ReplicaSet(1, (first.sync[1], first.sync[0]), first.learners)
    bare = ReplicaSet(1, first.sync)
    thin = ReplicaSet(1, first.sync[:1], (first.sync[1], *first.learners))
    replaced = msgspec.structs.replace
    marked = {**view.members, "c": member("c", state="leaving")}
    for changed, word in (
        (with_place(swapped), "not on the planned nodes yet"),
        (with_place(bare), "not on the planned nodes yet"),
        (with_place(thin), "with fewer than 2 copies in step"),
        (replaced(view, voters=("a",)), "the voters are being replaced"),
        (replaced(view, joining=("a", "b", "c")), "the voters are being replaced"),
        (replaced(view, min_sync=1), "acknowledged on 1 of 2 copies"),
        (replaced(view, members=marked), "c (c:7700): leaving"),
    ):
        found = judged(changed)
        assert not found.settled
        assert any(word in reason for reason in found.reasons), (word, found.reasons)
        assert not found.recovered


def test_a_primary_that_is_not_active_and_a_follower_that_is_behind() -> None:
    view = made(3)
    roles: list[str | None] = ["active"] * len(view.places)
    roles[4] = "sealing"
    found = assess(Observation(view, frozenset("abc"), roles))
    assert (found.state, found.unserved, found.blocked) == ("unavailable", (4,), ())
    roles[4] = None  # the primary was not asked
    assert assess(Observation(view, frozenset("abc"), roles)).settled
    lag: list[dict[str, int]] = [{} for _ in view.places]
    lag[2] = {"b": 7}
    found = assess(Observation(view, frozenset("abc"), roles, lag))
    assert (found.state, found.lagging) == ("degraded", (2,))


def test_without_quorum_intact_partitions_are_served_and_nothing_may_fail() -> None:
    members = {name: member(name, witness=name in "wxyz") for name in "abwxyz"}
    view = View(1, tuple("abwxy"), (), members, (ReplicaSet(1, ("a", "b")),) * 3, 1, (), 0)
    found = judged(view, set("wxy"))
    assert not found.quorum
    assert (found.unserved, found.state, found.service) == ((), "at risk", 0)
    assert found.may_fail == ("z",)


def test_nothing_known_is_not_settled() -> None:
    found = assess(Observation(views.NOTHING, frozenset(), []))
    assert (found.state, found.recovered) == ("unavailable", False)


def test_every_verdict_has_reasons_unless_it_is_settled() -> None:
    rng = random.Random(7)
    seen = set()
    for _ in range(500):
        view, alive, roles = some_view(rng)
        found = assess(Observation(view, alive, roles))
        assert found.settled == (not found.reasons)
        assert found.state in safety.STATES
        seen.add(found.state)
        if found.settled:
            assert alive == set(view.members)
    assert seen >= {"degraded", "at risk", "unavailable"}


def test_a_thousand_nodes_take_no_time() -> None:
    names = [f"{number:04}" for number in range(1024)]
    members = {name: member(name) for name in names}
    places = tuple(
        ReplicaSet(1, (names[n % 1024], names[(n + 1) % 1024]), (names[(n + 2) % 1024],))
        for n in range(4097)
    )
    view = View(1, tuple(names[:5]), (), members, places, 2)
    start = time.process_time()
    found = judged(view)
    taken = time.process_time() - start
    assert found.service == 1
    assert len(found.may_fail) == 1024
    assert taken < 5, f"{taken:.2f} s"


def test_a_node_that_has_left_does_not_call_for_a_recovery() -> None:
    """Its last view has itself as leaving. It said that the quorum is lost, and advised to start
    the two nodes that served all the while, or `weft cluster recover`."""
    view = views.mark("a", "leaving")(made(3))
    rest = ("b", "c")
    places = tuple(ReplicaSet(2, rest, ("a",)) for _ in view.places)
    view = msgspec.structs.replace(view, places=places, voters=rest)
    found = judged(view, rest, role=None, observer="a")
    assert found.state == safety.UNAVAILABLE
    assert len(found.reasons) == 1
    assert "it has left, or is cut off" in found.outage
    assert "recover" not in " ".join(found.advice)
    assert "query another node with -s" in " ".join(found.advice)
    assert "quorum lost" in judged(view, rest, role=None, observer="").outage
    assert "left" not in judged(view, {"c"}, observer="a").outage, "another member answers"
