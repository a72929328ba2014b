"""Answers that are held back: until every partition has said so, and as long as none is lost."""

from __future__ import annotations

from weft.proto import wire
from weft.server.engine.state import Answered
from weft.server.loom.held import Held


def _held() -> tuple[Held, Answered]:
    held, answered = Held(), Answered("client", wire.Popped([]), (), {1, 2})
    held.add(answered, {1: 5, 2: 3, ~2: 9})
    return held, answered


def test_it_goes_out_when_the_last_of_its_partitions_is_there() -> None:
    held, answered = _held()
    assert held.committed(1, 5) == []
    assert held.committed(~2, 9) == []
    assert held.committed(2, 2) == []
    assert held.committed(2, 3) == [answered]
    assert not held


def test_a_partition_that_was_confirmed_and_is_lost_later_takes_it_along() -> None:
    held, answered = _held()
    assert held.committed(2, 3) == []
    assert held.committed(~2, 9) == []
    assert held.lost(2) == [answered], "the other one is not confirmed yet"
    assert held.lost(1) == []
    assert not held


def test_it_is_lost_once_and_never_goes_out_afterwards() -> None:
    held, answered = _held()
    assert held.lost(1) == [answered]
    assert held.committed(2, 3) == []
    assert held.committed(~2, 9) == []
    assert held.lost(2) == []
