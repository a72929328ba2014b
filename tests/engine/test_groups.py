"""Grouped queues: order within a group, groups in parallel, and leases that survive."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.rig import Rig, Taken
from weft.errors import InvalidArgument
from weft.persistence import layout
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.engine.groups import PREFETCHED_GROUPS_MAX

LEASE_MS = 2_000


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.create("q", lease_ms=LEASE_MS, grouped=True)
    return rig


def bodies(taken: list[Taken]) -> list[bytes]:
    return [each.body for each in taken]


def left(rig: Rig, limit: int = 1) -> int:
    answer = rig.call(wire.Pop("q", limit))
    assert isinstance(answer, wire.Popped)
    return answer.left


def records(rig: Rig) -> int:
    return sum(key[:1] == layout.LEASE for key in rig.store._rows)


# --- order --------------------------------------------------------------------------------------


def test_a_group_is_on_one_partition_and_groups_are_on_many(rig: Rig) -> None:
    places = {g: {rig.push("q", b"x", group=g).partition for _ in range(4)} for g in "abcdefgh"}
    assert all(len(each) == 1 for each in places.values())
    assert len(set.union(*places.values())) > 1


def test_a_group_has_the_same_partition_in_every_queue(rig: Rig) -> None:
    rig.create("other", grouped=True)
    assert rig.push("q", b"x", group="a").partition == rig.push("other", b"x", group="a").partition


def test_one_lot_of_a_group_at_a_time_and_groups_in_parallel(rig: Rig) -> None:
    for number in range(3):
        rig.push("q", b"a%d" % number, group="a")
        rig.push("q", b"b%d" % number, group="b")
    first = rig.pop("q", 2)
    assert bodies(first) == [b"a0", b"a1"], "the run of the oldest group"
    second = rig.pop("q", 2)
    assert bodies(second) == [b"b0", b"b1"]
    assert not rig.pop("q", 10)
    rig.ack("q", *second)
    assert bodies(rig.pop("q", 10)) == [b"b2"]
    rig.ack("q", first[0])
    assert not rig.pop("q", 10), "a1 is still leased"
    rig.ack("q", first[1])
    assert bodies(rig.pop("q", 10)) == [b"a2"]


def test_a_large_pop_takes_several_groups_each_in_order(rig: Rig) -> None:
    for number in range(3):
        for group in "abc":
            rig.push("q", b"%s%d" % (group.encode(), number), group=group)
    taken = rig.pop("q", 100)
    assert len(taken) == 9
    for name in (b"a", b"b", b"c"):
        mine = [each for each in bodies(taken) if each.startswith(name)]
        assert mine == sorted(mine)
    assert {each.lent.group for each in taken} == {"a", "b", "c"}


def test_a_new_message_does_not_overtake_a_leased_head(rig: Rig) -> None:
    rig.push("q", b"a0", group="a")
    taken = rig.pop("q")
    rig.push("q", b"a1", group="a")
    assert not rig.pop("q", 5)
    rig.nack("q", *taken)
    assert bodies(rig.pop("q", 5)) == [b"a0", b"a1"]


def test_a_new_message_does_not_overtake_a_delayed_head(rig: Rig) -> None:
    rig.push("q", b"a0", b"a1", group="a")
    taken = rig.pop("q", 2)
    rig.nack("q", taken[0], delay_ms=500)
    rig.ack("q", taken[1])
    rig.push("q", b"a2", group="a")
    rig.push("q", b"b0", group="b")
    assert bodies(rig.pop("q", 5)) == [b"b0"], "only the other group is open"
    rig.restart()
    assert not rig.pop("q", 5)
    rig.advance(501)
    assert bodies(rig.pop("q", 5)) == [b"a0", b"a2"]


def test_a_lot_cut_in_the_middle_of_a_batch_continues_there(rig: Rig) -> None:
    rig.push("q", *[b"a%d" % number for number in range(5)], group="a")
    for start in (0, 2, 4):
        taken = rig.pop("q", 2)
        assert bodies(taken) == [b"a%d" % number for number in range(start, min(start + 2, 5))]
        assert not rig.pop("q", 2)
        rig.ack("q", *taken)


def test_an_expired_lot_is_delivered_again_from_its_first_message(rig: Rig) -> None:
    rig.push("q", b"a0", group="a")
    rig.push("q", b"a1", group="a")
    rig.push("q", b"a2", group="a")
    taken = rig.pop("q", 2)
    rig.advance(LEASE_MS + 1)
    again = rig.pop("q", 3)
    assert bodies(again) == [b"a0", b"a1", b"a2"]
    assert rig.ack("q", *taken).lost == [0, 1]


def test_a_cancelled_head_opens_its_group_for_the_next_message(rig: Rig) -> None:
    head = rig.push("q", b"a0", group="a")
    rig.push("q", b"a1", group="a")
    assert rig.cancel("q", head) == 1
    assert bodies(rig.pop("q", 5)) == [b"a1"]


def test_a_cancelled_delayed_message_opens_its_group(rig: Rig) -> None:
    head = rig.push("q", b"a0", group="a")
    rig.push("q", b"a1", group="a")
    rig.nack("q", *rig.pop("q"), delay_ms=60_000)
    assert not rig.pop("q")
    assert rig.cancel("q", head) == 1
    assert bodies(rig.pop("q", 5)) == [b"a1"]


# --- counts -------------------------------------------------------------------------------------


def test_blocked_messages_do_not_count_as_takeable(rig: Rig) -> None:
    for _ in range(3):
        rig.push("q", b"x", group="a")
    rig.push("q", b"y", group="b")
    assert left(rig) == 1, "two of a are blocked, b is open"
    assert left(rig) == 0
    assert rig.engine.ready.count("q") == 0
    assert rig.stats("q").ready == 2


def test_a_waiting_pop_is_served_when_its_group_opens(rig: Rig) -> None:
    rig.push("q", b"a0", b"a1", group="a")
    first = rig.pop("q", 1)
    token = rig.ask(wire.Pop("q", 1, 60_000))
    rig.push("q", b"a2", group="a")
    assert rig.answer(token) is None, "a push to a blocked group serves no pop"
    rig.ack("q", first[0])
    assert rig.answer(token) is not None


def test_the_node_announces_a_queue_when_a_group_opens_and_not_before(rig: Rig) -> None:
    rig.push("q", b"a0", b"a1", group="a")
    first = rig.pop("q", 1)
    rig.engine.ready.take_changed()
    rig.push("q", b"a2", group="a")
    assert not rig.engine.ready.take_changed()
    rig.ack("q", first[0])
    assert rig.engine.ready.take_changed() == {"q"}


def test_a_prefetching_pop_takes_few_groups(rig: Rig) -> None:
    for number in range(3 * PREFETCHED_GROUPS_MAX):
        rig.push("q", b"x", b"y", group=f"g{number}")
    taken = rig.pop("q", 1000, prefetch=True)
    assert len({each.lent.group for each in taken}) == PREFETCHED_GROUPS_MAX
    assert len(taken) == 2 * PREFETCHED_GROUPS_MAX


# --- leases -------------------------------------------------------------------------------------


@pytest.mark.parametrize("crashes", [False, True])
def test_the_lease_of_a_group_survives_a_restart(rig: Rig, crashes: bool) -> None:
    rig.push("q", b"a0", b"a1", b"a2", group="a")
    rig.push("q", b"b0", group="b")
    first = rig.pop("q", 2)
    rig.ack("q", first[0])
    (rig.crash if crashes else rig.restart)()
    assert bodies(rig.pop("q", 9)) == [b"b0"], "a1 is still lent"
    assert rig.ack("q", first[1]).done == 1
    assert bodies(rig.pop("q", 9)) == [b"a2"]


def test_a_restart_never_shortens_the_lease(rig: Rig) -> None:
    rig.push("q", b"a0", b"a1", group="a")
    rig.pop("q", 1)
    rig.advance(LEASE_MS - 10)
    rig.crash()
    rig.advance(LEASE_MS - 10)
    assert not rig.pop("q", 1), "the answer may have been sent just before the crash"
    rig.advance(20)
    assert bodies(rig.pop("q", 9)) == [b"a0", b"a1"]


def test_after_a_crash_the_delivery_counts(rig: Rig) -> None:
    rig.push("q", b"a0", group="a")
    rig.pop("q")
    rig.crash()
    rig.advance(LEASE_MS + 1)
    assert rig.pop("q")[0].deliveries == 2


def test_a_planned_move_keeps_the_lease_and_the_unsent_answer(rig: Rig) -> None:
    rig.push("q", b"a0", b"a1", group="a")
    taken = rig.pop("q", 1)
    partitions = set(range(rig.engine.state.partitions))
    rig.engine.recorded_leases.begin(partitions)
    rig.round()
    assert all(map(rig.engine.recorded_leases.complete, partitions))
    rig.engine.recorded_leases.end(partitions)
    rig.round()
    rig.engine.recorded_leases.begin(partitions)
    rig.round()
    rig.restart()
    assert not rig.pop("q", 5)
    assert rig.ack("q", *taken).done == 1
    assert bodies(rig.pop("q", 5)) == [b"a1"]


def test_a_settled_lease_leaves_no_record(rig: Rig) -> None:
    rig.push("q", b"a0", b"a1", group="a")
    taken = rig.pop("q", 2)
    assert records(rig) == 1
    rig.ack("q", taken[0])
    assert records(rig) == 1
    rig.ack("q", taken[1])
    assert records(rig) == 0


def test_the_lease_survives_on_a_node_that_learns_of_the_queue_later(rig: Rig) -> None:
    rig.push("q", b"a0", b"a1", b"a2", group="a")
    rig.push("q", b"a3", group="a")
    taken = rig.pop("q", 2)
    engine, state = rig.engine, rig.engine.state
    partitions = set(range(state.partitions))
    engine.abandon(partitions | {state.catalogue})
    engine.learn_queue(b"qq", None)
    engine.adopt(partitions)
    engine.learn_queue(b"qq", rig.store.get(b"qq"))
    assert not rig.pop("q", 4), "two messages are lent"
    rig.ack("q", *taken)
    assert bodies(rig.pop("q", 4)) == [b"a2", b"a3"]


def test_losing_a_partition_forgets_its_groups_and_adopting_it_finds_them(rig: Rig) -> None:
    for number in range(8):
        rig.push("q", b"0", b"1", group=f"g{number}")
    taken = rig.pop("q", 1) + rig.pop("q", 1)
    engine, state = rig.engine, rig.engine.state
    partitions = set(range(state.partitions))
    engine.abandon(partitions)
    assert not state.queues["q"].ids.oldest()
    engine.adopt(partitions)
    again = rig.pop("q", 100)
    assert len(again) == 12
    assert not {each.lent.group for each in again} & {each.lent.group for each in taken}


def test_a_purge_leaves_no_lease_and_no_blocked_group(rig: Rig) -> None:
    rig.push("q", b"a0", b"a1", group="a")
    taken = rig.pop("q", 1)
    rig.purge("q")
    rig.push("q", b"a2", group="a")
    assert bodies(rig.pop("q", 5)) == [b"a2"]
    assert rig.ack("q", *taken).lost == [0]
    rig.settle()
    assert records(rig) == 1


# --- dead letters -------------------------------------------------------------------------------


def test_dead_letters_keep_their_groups_and_their_order() -> None:
    rig = Rig()
    rig.create("q", lease_ms=LEASE_MS, grouped=True, max_deliveries=1, dead_letter="q.dead")
    assert rig.stats("q.dead").settings.grouped
    for number in range(3):
        rig.push("q", b"a%d" % number, group="a")
    rig.push("q", b"b0", group="b")
    for _ in range(4):
        rig.nack("q", *rig.pop("q"))
    first = rig.pop("q.dead", 1)
    assert bodies(first) == [b"a0"]
    assert bodies(rig.pop("q.dead", 9)) == [b"b0"], "the dead letters of a are one sequence"
    rig.nack("q.dead", *first)
    rig.advance(60_000)
    assert rig.redrive("q.dead") == 4
    assert bodies(rig.pop("q", 3)) == [b"a0", b"a1", b"a2"]


def test_a_dead_letter_opens_its_group_for_the_next_message() -> None:
    rig = Rig()
    rig.create("q", lease_ms=LEASE_MS, grouped=True, max_deliveries=1, dead_letter="q.dead")
    rig.push("q", b"a0", b"a1", group="a")
    rig.nack("q", *rig.pop("q"), delay_ms=60_000)
    assert bodies(rig.pop("q", 9)) == [b"a1"]


def test_a_plain_queue_has_no_grouped_dead_letter_queue(rig: Rig) -> None:
    with pytest.raises(InvalidArgument, match="is grouped, and messages of plain have no group"):
        rig.create("plain", max_deliveries=1, dead_letter="q")


# --- retention ----------------------------------------------------------------------------------


def test_retention_drops_the_old_messages_of_open_groups() -> None:
    rig = Rig()
    rig.create("q", lease_ms=LEASE_MS, grouped=True, retention_ms=10_000)
    rig.push("q", b"a0", group="a")
    rig.push("q", b"b0", group="b")
    rig.advance(9_000)
    rig.push("q", b"a1", group="a")
    rig.advance(2_000)
    assert bodies(rig.pop("q", 9)) == [b"a1"]


# --- refusals -----------------------------------------------------------------------------------

REFUSED: list[tuple[str, Callable[[Rig], object]]] = [
    ("grouped: push each message with a group", lambda rig: rig.push("q", b"x")),
    ("not grouped: push without", lambda rig: rig.push("plain", b"x", group="a")),
    ("group bytes must be 1 to 256, not 0", lambda rig: rig.push("q", b"x", group="")),
    ("group bytes must be 1 to 256, not 257", lambda rig: rig.push("q", b"x", group="x" * 257)),
    ("neither delays nor priorities", lambda rig: rig.push("q", b"x", group="a", delay_ms=5)),
    ("neither delays nor priorities", lambda rig: rig.push("q", b"x", group="a", priority=1)),
    ("no dedup keys", lambda rig: rig.push("q", b"x", group="a", dedup_key="k")),
    ("grouped of q cannot be changed", lambda rig: rig.update("q", grouped=False)),
    ("grouped of plain cannot be changed", lambda rig: rig.update("plain", grouped=True)),
    ("grouped or ordered, not both", lambda rig: rig.create("new", grouped=True, ordered=True)),
    (
        "create_grouped_queue",
        lambda rig: rig.call(wire.CreateQueue("new", Settings(grouped=True))),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("words", "act"), REFUSED)
def test_bad_input_is_refused_and_nothing_is_stored(
    rig: Rig, words: str, act: Callable[[Rig], object]
) -> None:
    rig.create("plain")
    before = dict(rig.store._rows)
    with pytest.raises(InvalidArgument, match=words):
        act(rig)
    assert rig.store._rows == before


def test_a_resent_push_is_stored_once(rig: Rig) -> None:
    rig.push("q", b"x", group="a", batch=1)
    assert rig.push("q", b"x", group="a", batch=1).duplicate
    assert rig.counts("q") == (1, 0, 0)
