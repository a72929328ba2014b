"""Events that fall into one round, or between two steps of a publish, and share state."""

from __future__ import annotations

import pytest

from tests.engine.pipeline import Writer
from tests.engine.rig import Rig, payload_of
from weft.errors import MessageLeased
from weft.proto import pipelines, wire


def test_two_waits_end_in_the_round_in_which_a_push_arrives(rig: Rig) -> None:
    """The time-out of the first pop serves both, so the second has no waiter any more."""
    tokens = [rig.ask(wire.Pop("q", 1, 100)) for _ in range(2)]
    rig.now += 200_000
    rig.push("q", b"a", b"b")
    lent = []
    for token in tokens:
        answered = rig.answer(token)
        assert answered is not None
        assert isinstance(answered.answer, wire.Popped)
        lent += answered.answer.lent
    assert sum(each.count for each in lent) == 2


def test_a_refused_cancel_of_a_staged_message_leaves_nothing_behind(rig: Rig) -> None:
    """The publish rewrites the stored head; a restart must find no reference to the stage."""
    writer = Writer(rig)
    request = pipelines.StageBatch("q", "app", 1, 0, 0, 5, 9, 1, 2)
    staged = rig.call(request, payload_of([b"a", b"b"]))
    assert isinstance(staged, wire.Pushed)
    writer.close(1, 0, 0, 5, 2)
    with pytest.raises(MessageLeased):
        rig.cancel("q", staged)
    assert not rig.engine.state.touched
    writer.publish(1, (0, 0, 5))
    rig.ack("q", *rig.pop("q", 1))
    rig.restart()
    assert rig.bodies("q", 10) == [b"b"]
