"""News of the catalogue: what is not in it yet is not taken for deleted."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

from tests.unit.test_whole import Two
from weft.proto import wire
from weft.server.loom.errand import Pause
from weft.server.loom.news import News

CATALOGUE = 1


class Reader:
    """A node that follows the catalogue, with an engine that writes down what it is told."""

    def __init__(self) -> None:
        self.replica = SimpleNamespace(applied=7)
        self.core = SimpleNamespace(
            catalogue=CATALOGUE, replicas={CATALOGUE: self.replica}, states_replaced=[],
            queues_changed=[],
        )  # fmt: skip
        self.told: list[str] = []
        state = SimpleNamespace(
            strays={}, ownerless={}, answer=lambda to, *_: self.told.append(f"answer {to}")
        )
        self.engine = SimpleNamespace(
            state=state,
            load_queues=lambda: self.told.append("load"),
            learn_queue=lambda key, record: self.told.append(f"learn {key.decode()}"),
        )
        self.led: set[int] = set()
        self.errands: list[Generator[Any, Any, Any]] = []

    def run_errand(self, errand: Generator[Any, Any, Any]) -> None:
        self.errands.append(errand)

    def not_here(self, number: int) -> wire.Failure:
        return wire.Failure("NOT_PRIMARY", "", True)


def made() -> tuple[Reader, News]:
    reader = Reader()
    return reader, News(cast(Any, reader), Two())


def ask(errand: Generator[Any, Any, Any], count: int) -> None:
    """The catalogue's primary says how long its log is."""
    (question,) = next(errand)
    assert question.request == wire.CatchUp()
    assert isinstance(errand.send([(wire.Done(count), ())]), Pause)


def go_on(errand: Generator[Any, Any, Any]) -> bool:
    """Whether it is over."""
    try:
        assert isinstance(next(errand), Pause)
    except StopIteration:
        return True
    return False


def test_a_state_that_is_older_than_what_was_known_drops_no_queue() -> None:
    reader, news = made()
    reader.core.states_replaced.append(CATALOGUE)
    reader.replica.applied = 4  # the entries up to 7 follow
    news.reload()
    (errand,) = reader.errands
    ask(errand, 7)
    reader.core.queues_changed.append((b"qold", b""))  # entry 5, which was learned long ago
    reader.replica.applied = 5
    news.learn()
    news.catch_up(wire.CatchUp(5), "caller")
    assert not go_on(errand)
    assert reader.told == []
    reader.replica.applied = 7
    assert not go_on(errand), "what is applied in a round is in the store in the next"
    assert go_on(errand)
    assert reader.told == ["load"]
    news.learn()
    assert reader.told == ["load", "answer caller"]


def test_another_state_meanwhile_begins_anew() -> None:
    reader, news = made()
    reader.core.states_replaced.append(CATALOGUE)
    reader.replica.applied = 4
    news.reload()
    ask(reader.errands[0], 7)
    reader.core.states_replaced.append(CATALOGUE)
    news.reload()
    assert go_on(reader.errands[0])
    assert reader.told == []
    assert news.due
    news.reload()
    assert len(reader.errands) == 2


def test_an_errand_that_is_given_up_is_started_again() -> None:
    reader, news = made()
    news.distrust()
    news.reload()
    ask(reader.errands[0], 7)
    reader.errands[0].close()
    assert news.due
    assert news.doubtful


def test_who_leads_it_again_has_read_it() -> None:
    reader, news = made()
    news.distrust()
    reader.led.add(CATALOGUE)
    news.reload()
    assert reader.errands == []
    assert not news.due
    assert not news.doubtful


def test_a_state_that_is_wiped_meanwhile_is_not_read() -> None:
    reader, news = made()
    news.distrust()
    news.reload()
    (errand,) = reader.errands
    ask(errand, 7)
    assert not go_on(errand)
    reader.replica.applied = 0  # another one is being sent
    assert not go_on(errand)
    reader.replica.applied = 7
    assert not go_on(errand)
    assert go_on(errand)
    assert reader.told == ["load"]
