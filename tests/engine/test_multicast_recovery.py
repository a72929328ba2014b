"""Multicasts to several partitions whose primary, queues or operation change on the way."""

from __future__ import annotations

import pytest

from tests.engine.commits import deliver
from tests.engine.rig import payload_of
from tests.engine.test_multicast import bodies, stored
from tests.engine.test_ordered_multicast import (
    BODIES,
    PARTITIONS,
    A,
    B,
    Nodes,
    attempt,
    decide,
    propose,
)
from weft import limits
from weft.errors import Unavailable
from weft.persistence import layout
from weft.proto import wire


@pytest.fixture
def rig() -> Nodes:
    """A node that is one of several: the primary of all partitions, which agree by messages."""
    rig = Nodes(partitions=PARTITIONS)
    for name in (A, B):
        rig.create(name, ordered=True)
    rig.create("plain")
    return rig


@pytest.mark.parametrize("listed", [True, False])
def test_a_purge_that_the_next_primary_learns_of_later_removes_nothing_newer(
    rig: Nodes, listed: bool
) -> None:
    """The multicast came after the purge, and the next primary has the record from before."""
    key = layout.of_catalogue(B)
    before = rig.store.get(key)
    rig.call(wire.PurgeQueue(B))
    rig.settle()
    attempt(rig, 1, A, B)
    if listed:
        deliver(rig, 0)
    engine, state = rig.engine, rig.engine.state
    rig.checking = False  # messages of an unknown queue
    partitions = set(range(PARTITIONS))
    engine.abandon(partitions | {state.catalogue})
    engine.learn_queue(key, before)
    engine.adopt(partitions)
    deliver(rig, 0)
    engine.learn_queue(key, rig.store.get(key))
    rig.settle()
    rig.checking = True
    assert [bodies(rig, name) for name in (A, B)] == [BODIES, BODIES]


def test_a_resend_to_fewer_queues_does_not_overtake_the_decision(rig: Nodes) -> None:
    """A queue was unbound between a push to a topic and its resend."""
    attempt(rig, 1, A, B)
    with pytest.raises(Unavailable, match="earlier attempt"):
        rig.multicast([B, "plain"], BODIES, name=(7, 1))
    deliver(rig, 0)
    assert rig.multicast([B, "plain"], BODIES, name=(7, 1)).copies[0].duplicate
    assert bodies(rig, B) == BODIES


def test_a_judge_spares_an_attempt_whose_own_proposal_is_still_to_come(rig: Nodes) -> None:
    """A node may stop for long between a round that sends proposals and its next one."""
    rig.engine.unfinished.start_attempt(0, 1)
    stamp = propose(rig, 1, B).stamp
    assert rig.call(wire.JudgeMulticasts(0, 1, [1])) == wire.JudgedMulticasts([])
    stamp = max(stamp, propose(rig, 1, A, B).stamp)
    decide(rig, 1, stamp)
    deliver(rig, 0)
    assert [bodies(rig, name) for name in (A, B)] == [BODIES, BODIES]


def test_the_own_proposal_of_an_ended_operation_is_refused(rig: Nodes) -> None:
    """Nothing could decide it, or give it up."""
    request = wire.ProposeMulticast(0, 0, 1, [rig.queue(A).id], [[(0, 2)]], 7, 1, 2, None, [1])
    unfinished = rig.engine.unfinished
    for stop in (unfinished.stop_attempt, unfinished.stop_driving):
        unfinished.start_attempt(0, 1)
        stop(0, 7, 1, 1)
        with pytest.raises(Unavailable, match="has ended"):
            rig.call(request, payload_of(BODIES))
    assert stored(rig, layout.HEAD) == 0


def test_what_is_given_up_does_not_fill_the_outbox(
    rig: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher that retries while a partition is down gives up an attempt each time."""
    propose(rig, 1, A, B)
    propose(rig, 1, B)
    rig.call(wire.AbandonMulticast(0, 2, [1]))
    monkeypatch.setattr(limits, "OUTBOX_ENTRIES_MAX", 1)
    rig.call(wire.AbandonMulticast(0, 1, [1]))
    rig.call(wire.AbandonMulticast(0, 3, [1]))
    assert rig.engine.state.channels.outboxes[0].count == 1
    rig.engine.unfinished.stop_attempt(0, 7, 1, 1)
    assert rig.call(wire.JudgeMulticasts(0, 1, [1])) == wire.JudgedMulticasts([1])
    rig.call(wire.DropMulticasts(1, [1]))
    assert not rig.engine.state.proposals
