"""Messages of task graphs: no pop gets one before its parents have ended, or one has failed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.engine.commits import PARTITIONS, deliver, names, new_rig, others, put
from tests.engine.rig import Asked, Cut, Rig, Taken, payload_of
from weft.errors import InvalidArgument, LeaseLost, MessageLeased
from weft.ids import partition_of
from weft.proto import wire
from weft.proto.settings import Settings

QUEUE = "graph"


@pytest.fixture
def rig() -> Rig:
    return graph_rig()


def graph_rig(seed: int = 0) -> Rig:
    made = new_rig(seed)
    made.create(QUEUE, graphs=True)
    return made


def waiting_push(partition: int, *waits: int, bodies: Sequence[bytes] = ()) -> wire.CommitPush:
    batch = next(n for n in names if partition_of(9, n, PARTITIONS) == partition)
    found = list(bodies) or [b"%d" % n for n in range(len(waits))]
    push = wire.PushWaiting(QUEUE, 9, batch, len(waits), waits=list(waits))
    return wire.CommitPush(push, payload_of(found))


def store(rig: Rig, partition: int, *waits: int) -> int:
    """Pushes a batch with these counts; returns its number."""
    made = waiting_push(partition, *waits)
    pushed = rig.call(made.push, made.payload)
    assert isinstance(pushed, wire.Pushed)
    assert pushed.partition == partition
    return made.push.batch


def arrival(
    partition: int,
    batch: int,
    *ended: tuple[int, int] | tuple[int, int, int],
    failed: Sequence[tuple[int, int]] = (),
    queue: str = QUEUE,
) -> wire.Arrival:
    reason = "task 7 failed" if failed else ""
    triples = [(first, count, rest[0] if rest else 1) for first, count, *rest in ended]
    return wire.Arrival(queue, partition, 9, batch, triples, list(failed), reason)


def arrive(rig: Rig, home: int, *arrivals: wire.Arrival, messages: Sequence[Taken] = ()) -> None:
    number = next(names)
    acked = [wire.CommitAck(QUEUE, [each.receipt for each in messages])] if messages else []
    request = wire.CommitGraph(home, 5, number, acked, [], [], list(arrivals))
    assert isinstance(rig.call(request), wire.Committed)


def test_a_message_is_listed_when_its_last_parent_has_ended(rig: Rig) -> None:
    batch = store(rig, 1, 0, 2, 1, 1)
    assert rig.bodies(QUEUE, 10) == [b"0"]
    assert rig.stats(QUEUE).waiting == 3
    arrive(rig, 1, arrival(1, batch, (1, 3)))
    assert rig.bodies(QUEUE, 10) == [b"2", b"3"]
    arrive(rig, 1, arrival(1, batch, (1, 1)))
    assert rig.bodies(QUEUE, 10) == [b"1"]
    assert rig.stats(QUEUE).waiting == 0
    arrive(rig, 1, arrival(1, batch, (0, 4)))
    assert rig.bodies(QUEUE, 10) == []


def test_neighbours_that_are_released_together_are_one_lease(rig: Rig) -> None:
    batch = store(rig, 1, *[1] * 20)
    arrive(rig, 1, arrival(1, batch, (3, 10)))
    assert len({each.lent.nonce for each in rig.pop(QUEUE, 20)}) == 1


def test_a_failed_parent_releases_at_once_and_with_the_reason(rig: Rig) -> None:
    batch = store(rig, 1, 3, 3)
    arrive(rig, 1, arrival(1, batch, failed=[(0, 1)]))
    (message,) = rig.pop(QUEUE, 10)
    assert (message.body, message.lent.reason) == (b"0", "task 7 failed")
    # The other parents end later: nothing changes.
    arrive(rig, 1, arrival(1, batch, (0, 1)))
    arrive(rig, 1, arrival(1, batch, (0, 1), failed=[(0, 1)]))
    assert rig.pop(QUEUE, 10) == []
    rig.crash()
    assert [each.lent.reason for each in rig.pop(QUEUE, 10)] == ["task 7 failed"]


def test_several_parents_of_one_commit_count_each(rig: Rig) -> None:
    batch = store(rig, 1, 2, 3)
    arrive(rig, 1, arrival(1, batch, (0, 2, 2)))
    assert rig.bodies(QUEUE, 10) == [b"0"]
    arrive(rig, 1, arrival(1, batch, (1, 1, 5)))
    assert rig.bodies(QUEUE, 10) == [b"1"]


def test_the_end_of_a_parent_and_its_arrivals_are_one_entry(rig: Rig) -> None:
    batch = store(rig, 1, 0, 1)
    (parent,) = rig.pop(QUEUE, 10, lease_ms=1_000)
    rig.advance(2_000)
    with pytest.raises(LeaseLost):
        arrive(rig, 1, arrival(1, batch, (1, 1)), messages=[parent])
    (parent,) = rig.pop(QUEUE, 10)
    assert parent.body == b"0"
    arrive(rig, 1, arrival(1, batch, (1, 1)), messages=[parent])
    assert rig.bodies(QUEUE, 10) == [b"1"]


def test_a_resent_commit_counts_once(rig: Rig) -> None:
    batch = store(rig, 1, 2)
    request = wire.CommitGraph(1, 5, next(names), [], [], [], [arrival(1, batch, (0, 1))])
    assert rig.call(request) == wire.Committed(False, [])
    rig.crash()
    assert rig.call(request) == wire.Committed(True, [])
    assert rig.stats(QUEUE).waiting == 1


def test_arrivals_elsewhere_are_delivered_once(rig: Rig) -> None:
    home, (one, two) = 0, others(0)
    first, second = store(rig, one, 1, 2), store(rig, two, 1)
    arrive(rig, home, arrival(one, first, (0, 2)), arrival(two, second, (0, 1)))
    assert rig.stats(QUEUE).waiting == 3
    page = rig.call(wire.ReadOutbox(home))
    assert isinstance(page, wire.Outbox)
    assert all(page.queues)
    request = wire.Deliver(home, page.channel, page.partitions, page.after, page.entries, [])
    rig.call(request)
    rig.crash()
    rig.call(request)
    assert (rig.stats(QUEUE).waiting, len(rig.bodies(QUEUE, 10))) == (1, 2)
    assert deliver(rig, home) is not None
    assert deliver(rig, home) is None
    assert rig.stats(QUEUE).waiting == 1


@pytest.mark.parametrize("cut", [*Cut])
@pytest.mark.parametrize("seed", range(3))
def test_a_power_loss_leaves_all_of_the_end_or_nothing(cut: Cut, seed: int) -> None:
    rig = graph_rig(seed)
    batch = store(rig, 1, 0, 1, 2)
    (parent,) = rig.pop(QUEUE, 10)
    ended = arrival(1, batch, (1, 2))
    name = 5, next(names)
    acked = [wire.CommitAck(QUEUE, [parent.receipt])]
    rig.cut_round(
        cut, random.Random(seed), Asked(wire.CommitGraph(1, *name, acked, [], [], [ended]))
    )
    waiting = rig.stats(QUEUE).waiting
    assert waiting in (1, 2)
    assert rig.bodies(QUEUE, 10) == ([b"1"] if waiting == 1 else [b"0"])


def test_waiting_messages_survive_a_restart_in_their_compact_form(rig: Rig) -> None:
    batch = store(rig, 2, 1, 1, 1, 2, 0)
    arrive(rig, 2, arrival(2, batch, (1, 1), (3, 1)))
    rig.crash()
    assert rig.stats(QUEUE).waiting == 3
    arrive(rig, 2, arrival(2, batch, (0, 4)))
    rig.crash()
    assert sorted(rig.bodies(QUEUE, 10)) == [b"0", b"1", b"2", b"3", b"4"]


def test_another_primary_takes_over_with_the_counts(rig: Rig) -> None:
    batch = store(rig, 2, 2, 1)
    arrive(rig, 2, arrival(2, batch, (0, 1)))
    rig.engine.abandon({2})
    assert rig.engine.queues[QUEUE].waiting == 0
    assert rig.engine.queues[QUEUE].bytes == 0
    rig.engine.adopt({2})
    assert rig.stats(QUEUE).waiting == 2
    arrive(rig, 2, arrival(2, batch, (0, 2)))
    assert sorted(rig.bodies(QUEUE, 10)) == [b"0", b"1"]


def test_a_purge_and_a_delete_remove_waiting_messages(rig: Rig) -> None:
    batch = store(rig, 1, 0, 1, 2)
    (leased,) = rig.pop(QUEUE, 10)
    rig.purge(QUEUE)
    rig.settle()
    assert rig.stats(QUEUE).waiting == 0
    arrive(rig, 1, arrival(1, batch, (1, 2)))
    assert rig.bodies(QUEUE, 10) == []
    with pytest.raises(LeaseLost):
        arrive(rig, 1, messages=[leased])
    store(rig, 1, 1)
    assert rig.delete(QUEUE) == 1
    rig.settle()
    arrive(rig, 1, arrival(1, batch, (1, 2)))  # dropped with the queue


def test_a_purge_during_the_search_for_waiting_messages_survives_a_crash(rig: Rig) -> None:
    store(rig, 1, 1, 1)
    rig.purge(QUEUE)
    rig.crash()
    rig.settle()
    assert rig.stats(QUEUE).waiting == 0


def test_a_message_of_a_graph_is_not_removed_alone(rig: Rig) -> None:
    batch = store(rig, 1, 0, 1)
    pushed = wire.Pushed(1, 9, batch, 2, False, "")
    for index in (0, 1):
        with pytest.raises(MessageLeased, match="task graph"):
            rig.cancel(QUEUE, pushed, index)


def test_a_nack_an_expiry_and_a_dead_letter_keep_a_message_in_its_graph(rig: Rig) -> None:
    rig.create("dead", graphs=True)
    rig.update(QUEUE, max_deliveries=2, dead_letter="dead")
    batch = store(rig, 1, 0)
    for _ in range(2):
        (message,) = rig.pop(QUEUE)
        rig.call(wire.Nack(QUEUE, [message.receipt]))
    assert rig.stats("dead").ready == 1
    pushed = wire.Pushed(1, 9, batch, 1, False, "")
    with pytest.raises(MessageLeased, match="task graph"):
        rig.cancel("dead", pushed)
    rig.redrive("dead")
    with pytest.raises(MessageLeased, match="task graph"):
        rig.cancel(QUEUE, pushed)


def test_a_batch_without_counts_for_each_message_is_refused(rig: Rig) -> None:
    for waits in ([], [1], [1, 1, 1], [-1, 0], [1 << 20, 0]):
        push = wire.PushWaiting(QUEUE, 9, 1, 2, waits=waits)
        with pytest.raises(InvalidArgument):
            rig.call(push, payload_of([b"a", b"b"]))
    with pytest.raises(InvalidArgument, match="graphs"):
        rig.call(wire.PushWaiting("out", 9, 1, 1, waits=[1]), payload_of([b"a"]))
    assert rig.stats(QUEUE).pushed == 0


@pytest.mark.parametrize(
    "wrong",
    [
        wire.Arrival(QUEUE, PARTITIONS, 9, 1, [(0, 1, 1)]),
        wire.Arrival(QUEUE, 1, 9, 1, [(-1, 1, 1)]),
        wire.Arrival(QUEUE, 1, 9, 1, [(0, 0, 1)]),
        wire.Arrival(QUEUE, 1, 9, 1, [(4_000, 4_000, 1)]),
        wire.Arrival(QUEUE, 1, 9, 1, [(0, 1, 0)]),
        wire.Arrival(QUEUE, 1, 9, 1, [], [(0, 1)]),
        wire.Arrival(QUEUE, 1, 9, 1, [], [(0, 1)], "x" * 100_000),
        wire.Arrival(QUEUE, 1, 9, 1, [(0, 1, 1)] * 10_000),
    ],
)
def test_a_wrong_arrival_changes_nothing(rig: Rig, wrong: wire.Arrival) -> None:
    batch = store(rig, 1, 1)
    right = arrival(1, batch, (0, 1))
    with pytest.raises(InvalidArgument):
        rig.call(wire.CommitGraph(1, 5, next(names), [], [], [put(1)], [right, wrong]))
    assert rig.stats(QUEUE).waiting == 1


def test_graphs_stay_on_and_exclude_what_would_drop_or_order_messages(rig: Rig) -> None:
    with pytest.raises(InvalidArgument, match="stays on"):
        rig.update(QUEUE, graphs=False)
    for more in ({"ordered": True}, {"grouped": True}, {"retention_ms": 1000}):
        with pytest.raises(InvalidArgument):
            rig.create("other", graphs=True, **more)
    with pytest.raises(InvalidArgument):
        rig.call(wire.CreateQueue("other", Settings(graphs=True)))
    rig.update("in", graphs=True)
    assert rig.stats("in").settings.graphs


def test_a_full_queue_counts_waiting_messages(rig: Rig) -> None:
    rig.update(QUEUE, max_messages=3)
    store(rig, 1, 1, 1, 1)
    with pytest.raises(Exception, match="at most 3"):
        store(rig, 1, 1)


def test_a_backup_keeps_the_counts(rig: Rig) -> None:
    batch = store(rig, 1, 0, 2, 1, 1)
    arrive(rig, 1, arrival(1, batch, (1, 1)))
    with pytest.raises(InvalidArgument, match="newer version"):
        rig.call(wire.Snapshot(1))
    page = rig.call(wire.Snapshot(1, graphs=True))
    assert isinstance(page, wire.Snapped)
    other = graph_rig()
    (kept,) = page.batches
    with pytest.raises(InvalidArgument, match="restore_waiting"):
        other.call(wire.Restore(QUEUE, (1, 1), 1, kept))
    other.call(wire.RestoreWaiting(QUEUE, (1, 1), 1, kept))
    assert (other.stats(QUEUE).waiting, other.bodies(QUEUE, 10)) == (3, [b"0"])
    other.crash()
    arrive(other, 1, arrival(1, batch, (1, 3)))
    assert sorted(other.bodies(QUEUE, 10)) == [b"0", b"1", b"2", b"3"]
    plain = new_rig()
    plain.create(QUEUE)
    with pytest.raises(InvalidArgument, match="graphs"):
        plain.call(wire.RestoreWaiting(QUEUE, (1, 1), 1, kept))


def test_an_undone_purge_restores_the_counts(rig: Rig) -> None:
    batch = store(rig, 1, 1, 2)
    page = rig.call(wire.Snapshot(1, graphs=True))
    assert isinstance(page, wire.Snapped)
    rig.purge(QUEUE)
    rig.settle()
    (kept,) = page.batches
    rig.call(wire.RestoreWaiting(QUEUE, (1, 1), -1, kept, purged_only=True))
    assert rig.stats(QUEUE).waiting == 2
    arrive(rig, 1, arrival(1, batch, (0, 2)))
    assert rig.bodies(QUEUE, 10) == [b"0"]


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_arrivals_crashes_and_moves_gives_each_message_once(seed: int) -> None:
    """Against a model: counts by message, in a dict."""
    rng, rig = random.Random(seed), graph_rig(seed)
    counts: dict[tuple[int, int], int] = {}
    places: dict[int, int] = {}
    got: set[tuple[int, int]] = set()
    for _ in range(60):
        action = rng.random()
        if action < 0.2 or not counts:
            waits = [rng.choice([0, 1, 1, 2, 3]) for _ in range(rng.randrange(1, 9))]
            partition = rng.randrange(PARTITIONS)
            batch = store(rig, partition, *waits)
            places[batch] = partition
            counts |= {(batch, index): count for index, count in enumerate(waits)}
        elif action < 0.75:
            arrivals: dict[int, list[list[tuple[int, int]]]] = {}
            for batch, index in rng.sample(sorted(counts), min(4, len(counts))):
                fails = rng.random() < 0.15
                arrivals.setdefault(batch, [[], []])[fails].append((index, 1))
            for batch, (ended, failed) in arrivals.items():
                for index, _ in ended:
                    counts[batch, index] -= 1
                for index, _ in failed:
                    counts[batch, index] = 0
            home = rng.randrange(PARTITIONS)
            arrive(
                rig, home,
                *[arrival(places[b], b, *one, failed=two) for b, (one, two) in arrivals.items()],
            )  # fmt: skip
            for source in range(PARTITIONS):
                deliver(rig, source)
        elif action < 0.85:
            rig.crash(rng)
        elif action < 0.9:
            moved = {rng.randrange(PARTITIONS)}
            rig.engine.abandon(moved)
            rig.engine.adopt(moved)
        else:
            for message in rig.pop(QUEUE, 5):
                arrive(rig, message.lent.partition, messages=[message])
                name = message.lent.batch, message.index
                assert counts[name] <= 0
                assert name not in got
                got.add(name)
        open_ = sum(count > 0 for count in counts.values())
        assert rig.stats(QUEUE).waiting == open_
    rig.advance(60_000)
    while messages := rig.pop(QUEUE, 5):
        for message in messages:
            arrive(rig, message.lent.partition, messages=[message])
            got.add((message.lent.batch, message.index))
    assert got == {name for name, count in counts.items() if count <= 0}
