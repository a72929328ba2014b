"""Multicasts to ordered and grouped queues on several partitions: the engine's part."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.engine.commits import deliver
from tests.engine.rig import Asked, Cut, Rig, payload_of
from tests.engine.test_multicast import Fan, bodies, stored
from weft.dht import placement
from weft.errors import InvalidArgument, QueueFull, QueueNotFound, Unavailable
from weft.persistence import layout
from weft.proto import wire
from weft.server.engine.convoy_histogram import ConvoyHistogram
from weft.server.engine.partition_clock import CLOCK_AHEAD_US, tick

PARTITIONS = 4
BODIES = [b"one", b"two"]


def queue_on(partition: int, start: str = "o") -> str:
    names = (f"{start}{number}" for number in itertools.count())
    return next(name for name in names if placement.of_text(name, PARTITIONS) == partition)


A, B, C = (queue_on(number) for number in (0, 1, 2))


class Nodes(Fan):
    """The primaries of all partitions."""

    coordinator = 0


@pytest.fixture
def rig() -> Nodes:
    """A node that is one of several: the primary of all partitions, which agree by messages."""
    rig = Nodes(partitions=PARTITIONS)
    for name in (A, B, C):
        rig.create(name, ordered=True)
    rig.create("plain")
    return rig


@pytest.fixture
def alone() -> Nodes:
    rig = Nodes(partitions=PARTITIONS)
    rig.engine.commits.set_alone(True)
    for name in (A, B, C):
        rig.create(name, ordered=True)
    rig.create("plain")
    rig.create("grouped", grouped=True)
    return rig


def propose(
    rig: Nodes, token: int, queue: str, *others: str, key: str | None = None, batch: int = 0
) -> wire.Proposed:
    """A proposal at the partition of `queue`; `others`: it coordinates for those queues."""
    partition = placement.of_text(queue, PARTITIONS)
    participants = [placement.of_text(each, PARTITIONS) for each in others]
    coordinator = partition if others else rig.coordinator
    rig.coordinator = coordinator
    if others:
        rig.engine.unfinished.start_attempt(partition, token)
    answer = rig.call(
        wire.ProposeMulticast(
            partition, coordinator, token, [rig.queue(queue).id], [[(0, 2)]], 7, batch or token, 2,
            key, participants,
        ),
        payload_of(BODIES),
    )  # fmt: skip
    assert isinstance(answer, wire.Proposed)
    return answer


def decide(rig: Nodes, token: int, stamp: int, coordinator: int = 0) -> None:
    rig.call(wire.DecideMulticast(coordinator, token, stamp))


def attempt(rig: Nodes, token: int, *queues: str, key: str | None = None) -> int:
    """All proposals and the decision; the coordinator's queue comes first."""
    stamps = [propose(rig, token, queues[0], *queues[1:], key=key).stamp]
    stamps += [propose(rig, token, queue, key=key).stamp for queue in queues[1:]]
    decide(rig, token, max(stamps), placement.of_text(queues[0], PARTITIONS))
    return max(stamps)


def test_the_queues_get_the_messages_when_the_number_is_assigned(rig: Nodes) -> None:
    number = attempt(rig, 1, A, B)
    assert bodies(rig, A, ack=True) == BODIES
    assert bodies(rig, B) == []
    assert rig.queue(B).staged == 2
    deliver(rig, 0)
    taken = rig.pop(B, 10)
    assert [each.body for each in taken] == BODIES
    assert {each.lent.pushed_ms for each in taken} == {number // 1000}
    rig.ack(B, *taken)
    assert (stored(rig, layout.HEAD), stored(rig, layout.BODY)) == (0, 0)


def test_a_smaller_conflicting_proposal_is_waited_for(rig: Nodes) -> None:
    first = [propose(rig, 1, A, B).stamp, propose(rig, 1, B).stamp]
    attempt(rig, 2, A, B)
    deliver(rig, 0)
    assert bodies(rig, A) == []
    assert bodies(rig, B) == []
    decide(rig, 1, max(first))
    deliver(rig, 0)
    for name in (A, B):
        lots = [rig.pop(name, 10)]
        rig.ack(name, *lots[0])
        assert {each.lent.batch for each in lots[0]} == {1, 2}
        assert [each.lent.batch for each in lots[0]] == [1, 1, 2, 2]


def test_messages_with_other_keys_and_plain_pushes_do_not_wait(rig: Nodes) -> None:
    propose(rig, 1, A, B, key="x")
    attempt(rig, 2, A, B, key="y")
    rig.push(A, b"plain")
    assert bodies(rig, A) == [*BODIES, b"plain"]


def test_a_message_without_a_key_conflicts_with_all(rig: Nodes) -> None:
    propose(rig, 1, A, B)
    attempt(rig, 2, A, B, key="y")
    assert bodies(rig, A) == []
    rig.call(wire.AbandonMulticast(0, 1, [1]))
    assert bodies(rig, A) == BODIES


def test_the_decision_and_what_waits_survive_a_restart(rig: Nodes) -> None:
    first = [propose(rig, 1, A, B).stamp, propose(rig, 1, B).stamp]
    attempt(rig, 2, B, C)
    decide(rig, 1, max(first))
    rig.restart()
    deliver(rig, 0)
    deliver(rig, 1)
    assert bodies(rig, A, ack=True) == BODIES
    assert bodies(rig, C, ack=True) == BODIES
    assert bodies(rig, B, ack=True) == BODIES * 2
    assert (stored(rig, layout.HEAD), stored(rig, layout.BODY)) == (0, 0)


def test_a_listed_message_is_listed_after_a_restart(rig: Nodes) -> None:
    attempt(rig, 1, A, B)
    deliver(rig, 0)
    rig.restart()
    for name in (A, B):
        taken = rig.pop(name, 1)
        rig.restart()
        assert [each.body for each in taken] == BODIES[:1]
        rig.ack(name, *taken)
        assert bodies(rig, name, ack=True) == BODIES[1:]


def test_the_next_primary_gives_up_what_is_not_decided(rig: Nodes) -> None:
    propose(rig, 1, A, B)
    stamp = propose(rig, 1, B).stamp
    rig.restart()
    with pytest.raises(Unavailable, match="given up"):
        decide(rig, 1, stamp)
    deliver(rig, 0)
    assert not rig.engine.state.proposals
    assert (stored(rig, layout.HEAD), stored(rig, layout.BODY)) == (0, 0)


def test_an_unknown_attempt_is_judged_as_gone(rig: Nodes) -> None:
    propose(rig, 1, B)
    assert rig.call(wire.JudgeMulticasts(0, 1, [1])) == wire.JudgedMulticasts([1])
    rig.call(wire.DropMulticasts(1, [1]))
    assert not rig.engine.state.proposals


def test_a_judge_spares_what_may_be_decided_or_is_decided(rig: Nodes) -> None:
    propose(rig, 1, A, B)
    propose(rig, 1, B)
    assert rig.call(wire.JudgeMulticasts(0, 1, [1])) == wire.JudgedMulticasts([])
    decide(rig, 1, 1 << 50)
    assert rig.call(wire.JudgeMulticasts(0, 1, [1])) == wire.JudgedMulticasts([])
    deliver(rig, 0)
    assert bodies(rig, B) == BODIES


def test_an_attempt_without_its_operation_is_given_up_by_the_judge(rig: Nodes) -> None:
    stamp = propose(rig, 1, A, B).stamp
    propose(rig, 1, B)
    rig.engine.unfinished.stop_driving(0, 7, 1, 1)
    assert rig.call(wire.JudgeMulticasts(0, 1, [1])) == wire.JudgedMulticasts([])
    with pytest.raises(Unavailable):
        decide(rig, 1, stamp)
    deliver(rig, 0)
    assert not rig.engine.state.proposals


def test_another_attempt_waits_for_the_first_one(rig: Nodes) -> None:
    propose(rig, 1, B)
    with pytest.raises(Unavailable, match="earlier attempt"):
        propose(rig, 2, B, batch=1)
    rig.call(wire.DropMulticasts(1, [1]))
    propose(rig, 2, B, batch=1)


def test_a_resend_is_known(rig: Nodes) -> None:
    attempt(rig, 1, A, B)
    assert propose(rig, 2, A, B, batch=1).known
    deliver(rig, 0)
    bodies(rig, A, ack=True)
    rig.restart()
    assert propose(rig, 2, A, B, batch=1).known
    assert propose(rig, 2, B, batch=1).known


def test_a_full_queue_refuses_the_proposal(rig: Nodes) -> None:
    rig.update(B, max_messages=1)
    with pytest.raises(QueueFull):
        propose(rig, 1, B)
    assert not rig.engine.state.proposals


def test_the_clock_survives_the_last_ack_and_a_slow_wall_clock(rig: Nodes) -> None:
    state = rig.engine.state
    before = tick(state, 1)
    attempt(rig, 1, A, B)
    decided = state.clocks.values[0]
    deliver(rig, 0)
    for name in (A, B):
        bodies(rig, name, ack=True)
    rig.now -= 3_600_000_000
    rig.crash()
    state = rig.engine.state
    assert tick(state, 1) > before
    assert tick(state, 0) > decided
    assert tick(state, 0) <= decided + 2 * CLOCK_AHEAD_US


def test_timestamps_of_partitions_are_never_equal(rig: Nodes) -> None:
    state = rig.engine.state
    stamps = [tick(state, number % PARTITIONS) for number in range(40)]
    assert stamps == sorted(set(stamps))
    assert {stamp % PARTITIONS for stamp in stamps[::PARTITIONS]} == {0}


def test_a_purge_removes_a_pending_message(rig: Nodes) -> None:
    stamps = [propose(rig, 1, A, B).stamp, propose(rig, 1, B).stamp]
    rig.call(wire.PurgeQueue(B))
    rig.settle()
    decide(rig, 1, max(stamps))
    deliver(rig, 0)
    rig.settle()
    assert bodies(rig, A, ack=True) == BODIES
    assert bodies(rig, B) == []
    assert stored(rig, layout.BODY) == 0


def test_a_queue_deleted_before_the_proposal_refuses_it(rig: Nodes) -> None:
    old = rig.queue(B).id
    rig.call(wire.DeleteQueue(B))
    request = wire.ProposeMulticast(1, 0, 1, [old], [[(0, 2)]], 7, 1, 2, None)
    with pytest.raises(QueueNotFound, match="push again"):
        rig.call(request, payload_of(BODIES))


def test_a_backup_and_a_cancel_wait_for_the_decision(rig: Nodes) -> None:
    stamp = propose(rig, 1, A, B).stamp
    with pytest.raises(Unavailable, match="multicast"):
        rig.snapshot(0)
    with pytest.raises(Unavailable, match="multicast"):
        rig.call(wire.Cancel(A, 0, 7, 1, 0))
    decide(rig, 1, stamp)
    assert [each.batch for each in rig.snapshot(0)] == [1]


@pytest.mark.parametrize("cut", Cut)
def test_a_power_loss_while_deciding(cut: Cut) -> None:
    rig = Nodes(partitions=PARTITIONS)
    for name in (A, B):
        rig.create(name, ordered=True)
    stamps = [propose(rig, 1, A, B).stamp, propose(rig, 1, B).stamp]
    rig.cut_round(cut, random.Random(1), Asked(wire.DecideMulticast(0, 1, max(stamps))))
    deliver(rig, 0)
    found = [bodies(rig, name) for name in (A, B)]
    assert found in ([BODIES] * 2, [[]] * 2)
    assert not rig.engine.state.proposals


# --- a node that is its whole cluster ---------------------------------------------------------


def test_one_node_changes_all_partitions_in_one_write(alone: Nodes) -> None:
    done = alone.multicast([A, B, "plain", "grouped"], BODIES, conflict_key="k")
    assert [copy.queue for copy in done.copies] == [A, B, "plain", "grouped"]
    for name, copy in zip([A, B, "plain", "grouped"], done.copies, strict=True):
        taken = alone.pop(name, 10)
        assert [each.body for each in taken] == BODIES
        assert taken[0].id == (copy.partition, copy.producer, copy.batch, copy.first)
        alone.ack(name, *taken)
    assert (stored(alone, layout.HEAD), stored(alone, layout.BODY)) == (0, 0)


def test_one_node_recognises_a_resend(alone: Nodes) -> None:
    first = alone.multicast([A, B], BODIES, name=(7, 1))
    again = alone.multicast([B, A], BODIES, name=(7, 1))
    assert first.partition == again.partition
    assert not any(copy.duplicate for copy in first.copies)
    assert all(copy.duplicate for copy in again.copies)
    assert alone.queue(A).ready == 2


@pytest.mark.parametrize("cut", Cut)
def test_a_power_loss_on_one_node_leaves_all_or_none(cut: Cut) -> None:
    rig = Nodes(partitions=PARTITIONS)
    rig.engine.commits.set_alone(True)
    for name in (A, B, C):
        rig.create(name, ordered=True)
    request = wire.Multicast([A, B, C], 7, 1, len(BODIES))
    rig.cut_round(cut, random.Random(1), Asked(request, (payload_of(BODIES),)))
    found = [bodies(rig, name) for name in (A, B, C)]
    assert found in ([BODIES] * 3, [[]] * 3)


def test_a_topic_with_filters_reaches_ordered_queues_on_several_partitions(alone: Nodes) -> None:
    alone.call(wire.CreateTopic("t"))
    alone.call(wire.Bind("t", A))
    alone.call(wire.Bind("t", B, {"k": "v"}))
    headers: list[dict[str, str] | None] = [{"k": "v"}, None]
    alone.call(wire.PushTopic("t", 7, 1, 2), payload_of(BODIES, headers))
    alone.call(wire.PushTopic("t", 7, 2, 1), payload_of([b"three"]))
    assert bodies(alone, A) == [*BODIES, b"three"]
    assert bodies(alone, B) == [b"one"]


def test_what_is_refused(alone: Nodes) -> None:
    with pytest.raises(InvalidArgument, match="dedup keys on different partitions"):
        alone.multicast([A, B], BODIES, dedup_key="k")
    with pytest.raises(InvalidArgument, match="neither delays"):
        alone.multicast([A, B], BODIES, delay_ms=5)
    with pytest.raises(InvalidArgument, match="conflict_key"):
        alone.multicast([A, "grouped"], BODIES)
    alone.update(B, max_messages=1)
    with pytest.raises(QueueFull):
        alone.multicast([A, B], BODIES)
    assert stored(alone, layout.HEAD) == 0


def test_without_being_alone_the_engine_refuses(rig: Rig) -> None:
    with pytest.raises(Unavailable, match="nothing was stored"):
        rig.call(wire.Multicast([A, B], 7, 1, 2), payload_of(BODIES))


def test_the_convoy_is_measured(rig: Nodes) -> None:
    propose(rig, 1, A, B)
    attempt(rig, 2, A, B)
    rig.now += 7_000
    rig.call(wire.AbandonMulticast(0, 1, [1]))
    convoy = rig.engine.state.proposals.convoy
    assert convoy.count == 1
    assert 7_000 <= convoy.sum_us < 8_000


def test_the_convoy_is_exported_as_a_histogram() -> None:
    histogram = ConvoyHistogram()
    for waited_us in (0, 1_500, 90_000_000):
        histogram.add(waited_us)
    counts = dict(histogram.cumulative())
    assert (counts["0"], counts["0.001"], counts["0.002"], counts["+Inf"]) == (1, 1, 2, 3)
    assert histogram.sum_s == 90.0015
