"""Commit wait: an answer is held until every partition confirms, and dropped if one is lost."""

from __future__ import annotations

import pytest

from weft.proto import wire
from weft.server.core.commit_wait import CommitWait
from weft.server.engine.state import Answered


def _commit_wait() -> tuple[CommitWait, Answered]:
    held, answered = CommitWait(1_000), Answered("client", wire.Popped([]), (), {1, 2})
    held.add(answered, {1: 5, 2: 3, ~2: 9}, 70_000)
    return held, answered


def test_it_goes_out_when_the_last_of_its_partitions_is_there() -> None:
    held, answered = _commit_wait()
    assert held.committed(1, 5) == []
    assert held.committed(~2, 9) == []
    assert held.committed(2, 2) == []
    assert held.committed(2, 3) == [answered]
    assert not held


def test_a_partition_that_was_confirmed_and_is_lost_later_takes_it_along() -> None:
    held, answered = _commit_wait()
    assert held.committed(2, 3) == []
    assert held.committed(~2, 9) == []
    assert held.lost(2) == [answered], "the other one is not confirmed yet"
    assert held.lost(1) == []
    assert not held


def test_it_is_lost_once_and_never_goes_out_afterwards() -> None:
    held, answered = _commit_wait()
    assert held.lost(1) == [answered]
    assert held.committed(2, 3) == []
    assert held.committed(~2, 9) == []
    assert held.lost(2) == []


def test_a_confirmation_is_good_for_so_long_and_then_asked_for_again_as_a_whole() -> None:
    held, answered = _commit_wait()
    assert held.committed(1, 5) == []
    assert held.committed(~2, 9) == []
    assert held.ask_at == 71_000
    assert held.old(70_999) == []
    assert held.old(71_000) == [(answered, 2_000)]
    assert held.committed(2, 3) == [], "it is asked for again, whatever was said of it"
    assert held.old(99_000) == []
    held.add(answered, {~1: 6, ~2: 10}, 71_000, 2_000)
    assert held.ask_at == 73_000
    assert held.committed(~1, 6) == []
    assert held.committed(~2, 10) == [answered]


def test_what_was_let_go_is_not_asked_for_again() -> None:
    held, _ = _commit_wait()
    for place, lsn in ((1, 5), (2, 3), (~2, 9)):
        held.committed(place, lsn)
    assert held.old(71_000) == []
    assert held.ask_at > 1 << 60


@pytest.mark.parametrize("now", [71_000, 99_000])
def test_a_change_needs_nobody_to_confirm_it(now: int) -> None:
    held, answered = CommitWait(1_000), Answered("client", wire.Done(), (), {1})
    held.add(answered, {1: 5}, 70_000)
    assert held.old(now) == []
    assert held.committed(1, 5) == [answered]
