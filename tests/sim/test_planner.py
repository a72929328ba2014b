"""The planner: balance, few moves, a fixpoint; and the steps that lead to the goal."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from weft.dht import view as views
from weft.dht.planner import ReplicationFactor, copies, holders, plan, step, voters
from weft.dht.view import Member, ReplicaSet, View

SIZE = ReplicationFactor()


def _view(nodes: int, partitions: int = 64) -> View:
    view = views.found("n00", Member("n00"), partitions)
    for number in range(1, nodes):
        view = views.join(f"n{number:02}", Member(f"n{number:02}"))(view)
    return view


def _settled(view: View, *, size: ReplicationFactor = SIZE, dead: str = "") -> tuple[View, int]:
    """Apply all steps in turn until none is left; return the view and their number."""
    for steps in range(10_000):
        goal = plan(view, size)
        for number, place in enumerate(view.places):
            next_step = step(number, place, goal[number], lambda n: n != dead, size.sync)
            change = next_step.change
            if next_step.grow:
                change = views.grow(number, place.epoch, next_step.grow)
            if change is not None:
                changed = change(view)
                assert changed is not view, "a step that changes nothing is taken for ever"
                _safe(view, changed)
                view = changed
                break
        else:
            return view, steps
    raise AssertionError("it never settles")


def _safe(before: View, after: View) -> None:
    for old, new in zip(before.places, after.places, strict=True):
        assert new.primary in old.sync
        assert len(new.sync) >= min(len(old.sync), 2), "fewer copies than before"
        assert old.sync == new.sync or new.epoch > old.epoch


def _even(view: View, nodes: list[str]) -> None:
    partitions = view.places[:-1]
    lead = Counter(place.primary for place in partitions)
    follow = Counter(node for place in partitions for node in place.sync[1:])
    for load in (lead, follow):
        counts = [load[node] for node in nodes]
        assert max(counts) - min(counts) <= 1, load


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 7, 12])
def test_a_new_cluster_is_balanced_within_one(nodes: int) -> None:
    view, _ = _settled(_view(nodes))
    _even(view, sorted(view.members))
    for place in view.places[:-1]:
        assert len(place.sync) == 2
        assert len(place.learners) == min(1, nodes - 2)


@pytest.mark.parametrize("learners", [0, 2])
def test_there_are_as_many_learners_as_the_cluster_was_made_with(learners: int) -> None:
    view, _ = _settled(msgspec.structs.replace(_view(5), learners=learners))
    assert {len(place.learners) for place in view.places[:-1]} == {learners}
    after, _ = _settled(views.join("new", Member("new"))(view))
    assert after.learners == learners
    assert {len(place.learners) for place in after.places[:-1]} == {learners}


def test_what_is_planned_is_a_fixpoint() -> None:
    view, _ = _settled(_view(5))
    goal = plan(view, SIZE)
    assert [place.sync for place in goal] == [place.sync for place in view.places]
    assert [set(place.learners) for place in goal] == [set(p.learners) for p in view.places]


def test_a_joining_node_takes_its_share_and_nothing_else_moves() -> None:
    view, _ = _settled(_view(4))
    joined = views.join("new", Member("new"))(view)
    after, _ = _settled(joined)
    _even(after, sorted(after.members))
    pairs = list(zip(view.places[:-1], after.places[:-1], strict=True))
    moved = Counter(
        node
        for old, new in pairs
        for node in {*new.sync, *new.learners} - {*old.sync, *old.learners}
    )
    # The new node gets a fifth of 64 times three copies; hardly anything else is copied.
    assert 36 <= moved["new"] <= 39
    assert moved.total() - moved["new"] <= 6
    assert sum(old.primary != new.primary for old, new in pairs) <= 16


def test_a_leaving_node_ends_in_no_set_and_the_others_share_what_it_had() -> None:
    view, _ = _settled(_view(5))
    leaving = views.mark("n02", "leaving")(view)
    after, _ = _settled(leaving)
    assert not any(place.holds("n02") for place in after.places[:-1])
    assert "n02" not in after.places[-1].sync
    assert "n02" in after.places[-1].learners  # a leaving member still needs the catalogue
    _even(after, [n for n in sorted(after.members) if n != "n02"])
    for old, new in zip(view.places[:-1], after.places[:-1], strict=True):
        if "n02" not in (*old.sync, *old.learners):
            assert len(set(old.sync) & set(new.sync)) >= 1


def test_everyone_with_data_follows_the_catalogue_and_a_witness_holds_nothing() -> None:
    view = views.join("w", Member("w", witness=True))(_view(4))
    view, _ = _settled(view)
    catalogue = view.places[-1]
    assert {*catalogue.sync, *catalogue.learners} == {"n00", "n01", "n02", "n03"}
    assert len(catalogue.sync) == 2
    assert not any(place.holds("w") for place in view.places)
    assert holders(view) == ["n00", "n01", "n02", "n03"]
    assert "w" in voters(views.join("w", Member("w", witness=True))(_view(2)))


def test_a_set_that_is_too_small_takes_who_is_there() -> None:
    place = ReplicaSet(4, ("a",), ("b", "c"))
    goal = ReplicaSet(4, ("a", "b"), ("c",))
    assert step(0, place, goal, lambda n: n != "b", 2).grow == "c"
    assert step(0, place, goal, lambda n: True, 2).grow == "b"


def test_a_dead_node_stops_nothing() -> None:
    view, _ = _settled(_view(4))
    after, _ = _settled(views.mark("n03", "away")(view), dead="n03")
    assert not any("n03" in place.sync for place in after.places)
    _even(after, ["n00", "n01", "n02"])


def test_random_comings_and_goings_always_settle_balanced() -> None:
    rng = random.Random(3)
    for _ in range(15):
        view = _view(rng.randrange(1, 5), 16)
        for number in range(rng.randrange(1, 5)):
            active = holders(view)
            if rng.random() < 0.5 or len(active) < 3:
                view = views.join(f"x{number}", Member(f"x{number}"))(view)
            else:
                view = views.mark(rng.choice(active), "leaving")(view)
            if rng.random() < 0.6:
                view, _ = _settled(view)
        view, _ = _settled(view)
        _even(view, holders(view))


@pytest.mark.parametrize(("nodes", "count"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (9, 5)])
def test_how_many_vote(nodes: int, count: int) -> None:
    assert len(voters(_view(nodes))) == count


def test_voters_stay_if_they_can() -> None:
    view = _view(5)
    view = View(
        **{f: getattr(view, f) for f in view.__struct_fields__} | {"voters": ("n04", "n01")}
    )
    assert set(voters(view)) >= {"n04", "n01"}
    gone = views.mark("n01", "leaving")(view)
    assert "n01" not in voters(gone)


def test_a_late_wish_for_fewer_copies_is_none() -> None:
    """Two nodes and a witness require one copy; after a third node has joined, two again."""
    view = views.join("w", Member("w", witness=True))(_view(2))
    view, _ = _settled(view)
    view = views.require(2)(view)
    assert view.min_sync == 2
    propose_change = views.require(1, lambda read: copies(read, SIZE))
    assert propose_change(view).min_sync == 1
    assert propose_change(views.join("late", Member("late"))(view)).min_sync == 2
