"""The checker itself: every violation is planted once and found, and correct histories pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.total_queue import EXAMPLES_MAX, History, check


class Clock:
    """Advances one second at every call, so that no two events have the same time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def history() -> History:
    return History(Clock())


def pushed(history: History, *names: str) -> None:
    history.attempted(*names)
    history.acknowledged(*names)


def consumed(history: History, name: str, id: str = "") -> None:
    history.delivered(name, id=id)
    history.ack_attempted(name)
    history.ack_confirmed(name)


def test_a_clean_history_is_ok(history: History) -> None:
    pushed(history, "a", "b")
    consumed(history, "a", "1")
    consumed(history, "b", "2")
    verdict = check(history)
    assert verdict.ok, verdict.report()
    assert verdict.counts["messages"] == 2
    assert verdict.counts["delivered"] == 2
    assert verdict.report().startswith("total queue: ok")


def test_an_acknowledged_push_that_never_comes_is_lost(history: History) -> None:
    pushed(history, "a", "b")
    consumed(history, "a")
    verdict = check(history)
    assert [line.split(":")[0] for line in verdict.lost] == ["b"]
    assert not verdict.ok
    assert "LOST" in verdict.report()
    assert "b: acknowledged, never delivered" in verdict.report()


def test_an_indeterminate_push_may_come_or_not(history: History) -> None:
    history.attempted("came", "went")
    consumed(history, "came")
    verdict = check(history)
    assert verdict.ok, verdict.report()
    assert verdict.counts["recovered"] == 1


def test_a_message_that_nobody_pushed_is_unexpected(history: History) -> None:
    consumed(history, "ghost")
    assert [line.split(":")[0] for line in check(history).unexpected] == ["ghost"]


def test_a_delivery_after_a_confirmed_ack_is_found(history: History) -> None:
    pushed(history, "a")
    consumed(history, "a")
    history.restarted()  # no excuse: an acked message never returns
    consumed(history, "a")
    verdict = check(history)
    assert len(verdict.redelivered) == 1
    assert not verdict.duplicated


def test_a_delivery_lent_before_the_ack_and_seen_after_it_is_honest(history: History) -> None:
    pushed(history, "a")
    history.delivered("a", began=2.0)
    history.restarted()
    history.ack_attempted("a")
    history.ack_confirmed("a")
    history.delivered("a", began=3.5)
    verdict = check(history)
    assert verdict.ok, verdict.report()
    history.delivered("a", began=100.0)
    assert len(check(history).redelivered) == 1


def test_an_unconfirmed_ack_may_or_may_not_have_worked(history: History) -> None:
    pushed(history, "gone", "back")
    for name in ("gone", "back"):
        history.delivered(name)
        history.ack_attempted(name)
    history.restarted()
    consumed(history, "back")
    verdict = check(history)
    assert verdict.ok, verdict.report()


def test_a_second_delivery_without_a_reason_is_a_duplicate(history: History) -> None:
    pushed(history, "a")
    history.delivered("a")
    consumed(history, "a")
    assert [line.split(":")[0] for line in check(history).duplicated] == ["a"]


def test_every_delivery_needs_its_own_reason(history: History) -> None:
    pushed(history, "a")
    history.delivered("a")
    history.nacked("a")
    history.delivered("a")
    consumed(history, "a")
    assert len(check(history).duplicated) == 1


Reason = Callable[[History], None]


@pytest.mark.parametrize(
    "reason",
    [
        pytest.param(lambda history: history.nacked("a"), id="nack"),
        pytest.param(lambda history: history.restarted(), id="restart"),
        pytest.param(lambda history: history.extended("a", 0.5), id="extension ended"),
    ],
)
def test_a_reason_allows_a_second_delivery(history: History, reason: Reason) -> None:
    pushed(history, "a")
    history.delivered("a")
    reason(history)
    consumed(history, "a")
    verdict = check(history)
    assert verdict.ok, verdict.report()


@pytest.mark.parametrize(("lease_s", "duplicates"), [(2.0, 0), (2.5, 1)])
def test_a_lease_that_ended_allows_a_second_delivery(
    history: History, lease_s: float, duplicates: int
) -> None:
    pushed(history, "a")
    history.delivered("a", lease_s=lease_s)
    history.attempted("b")
    consumed(history, "a")
    assert len(check(history).duplicated) == duplicates


def test_an_extension_moves_the_end_of_the_lease(history: History) -> None:
    pushed(history, "a")
    history.delivered("a", lease_s=2.0)
    history.extended("a", 10.0)
    consumed(history, "a")
    assert len(check(history).duplicated) == 1


def test_a_delivery_seen_late_is_measured_from_when_it_was_asked_for(history: History) -> None:
    pushed(history, "a")
    history.restarted()  # at 3
    history.delivered("a", began=2.5)  # lent before the restart, seen after it
    consumed(history, "a")
    verdict = check(history)
    assert verdict.ok, verdict.report()


def test_a_restart_before_the_first_delivery_is_no_reason(history: History) -> None:
    history.restarted()
    pushed(history, "a")
    history.delivered("a")
    consumed(history, "a")
    assert len(check(history).duplicated) == 1


def test_two_ids_are_a_doubled_push_even_over_a_restart(history: History) -> None:
    pushed(history, "a")
    history.delivered("a", id="1")
    history.restarted()
    consumed(history, "a", "2")
    verdict = check(history)
    assert [line.split(":")[0] for line in verdict.doubled] == ["a"]
    assert not verdict.duplicated


def test_a_message_that_was_lent_and_never_came_back_has_vanished(history: History) -> None:
    pushed(history, "a")
    history.delivered("a")
    history.restarted()
    assert [line.split(":")[0] for line in check(history).vanished] == ["a"]


def test_a_refused_ack_does_not_explain_an_absence(history: History) -> None:
    pushed(history, "a")
    history.delivered("a")
    history.ack_attempted("a")
    history.ack_refused("a")
    assert len(check(history).vanished) == 1


def test_the_report_counts_all_and_shows_the_first(history: History) -> None:
    pushed(history, *(f"m{number}" for number in range(EXAMPLES_MAX + 3)))
    report = check(history).report()
    assert f"LOST{EXAMPLES_MAX + 3:>19}  first:" in report
    assert f"m{EXAMPLES_MAX - 1}:" in report
    assert f"m{EXAMPLES_MAX}:" not in report


def test_histories_of_processes_are_joined_by_time(tmp_path: Path) -> None:
    clock = Clock()
    producer, consumer = History(clock), History(clock)
    pushed(producer, "a")
    consumer.delivered("a", id="1", began=2.5, lease_s=30.0)
    consumer.ack_attempted("a")
    pushed(producer, "b")
    consumer.ack_confirmed("a")
    producer.save(tmp_path / "producer")
    consumer.save(tmp_path / "consumer")
    joined = History.load(tmp_path / "consumer", tmp_path / "producer")
    assert [event.at for event in joined.events] == [1, 2, 3, 4, 5, 6, 7]
    assert joined.events[2] == consumer.events[0]
    assert [line.split(":")[0] for line in check(joined).lost] == ["b"]
