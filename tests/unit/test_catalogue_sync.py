"""Catalogue sync: a queue that is not in the catalogue yet is not taken for deleted."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

from weft.proto import wire
from weft.server.core.catalogue_sync import CatalogueSync
from weft.server.core.operation import Pause

from .test_fanout import Two

CATALOGUE = 1


class Reader:
    """A node that follows the catalogue, with an engine that records its calls."""

    def __init__(self) -> None:
        self.replica = SimpleNamespace(applied=7)
        self.core = SimpleNamespace(
            catalogue=CATALOGUE, replicas={CATALOGUE: self.replica}, states_replaced=[],
            queues_changed=[],
        )  # fmt: skip
        self.told: list[str] = []
        self.engine = SimpleNamespace(
            unknown_queues=set(),
            answer=lambda to, *_: self.told.append(f"answer {to}"),
            load_queues=lambda: self.told.append("load"),
            learn_queue=lambda key, record: self.told.append(f"learn {key.decode()}"),
        )
        self.led: set[int] = set()
        self.operations: list[Generator[Any, Any, Any]] = []

    def run_operation(self, operation: Generator[Any, Any, Any]) -> None:
        self.operations.append(operation)

    def refusal(self, number: int) -> wire.Failure:
        return wire.Failure("NOT_PRIMARY", "", True)


def made() -> tuple[Reader, CatalogueSync]:
    reader = Reader()
    return reader, CatalogueSync(
        cast(Any, reader.core), cast(Any, reader.engine), cast(Any, reader), Two(),
        reader.run_operation, reader.refusal,
    )  # fmt: skip


def ask(operation: Generator[Any, Any, Any], count: int) -> None:
    """The catalogue's primary reports the length of its log."""
    (question,) = next(operation)
    assert question.request == wire.CatchUp()
    assert isinstance(operation.send([(wire.Done(count), ())]), Pause)


def go_on(operation: Generator[Any, Any, Any]) -> bool:
    """True if the operation is over."""
    try:
        assert isinstance(next(operation), Pause)
    except StopIteration:
        return True
    return False


def test_a_state_that_is_older_than_what_was_known_drops_no_queue() -> None:
    reader, catalogue_sync = made()
    reader.core.states_replaced.append(CATALOGUE)
    reader.replica.applied = 4  # the entries up to 7 follow
    catalogue_sync.reload()
    (operation,) = reader.operations
    ask(operation, 7)
    reader.core.queues_changed.append((b"qold", b""))  # entry 5, learned long ago
    reader.replica.applied = 5
    catalogue_sync.learn()
    catalogue_sync.catch_up(wire.CatchUp(5), "caller")
    assert not go_on(operation)
    assert reader.told == []
    reader.replica.applied = 7
    assert not go_on(operation), "what is applied in a round is in the store in the next"
    assert go_on(operation)
    assert reader.told == ["load"]
    catalogue_sync.learn()
    assert reader.told == ["load", "answer caller"]


def test_another_state_meanwhile_begins_anew() -> None:
    reader, catalogue_sync = made()
    reader.core.states_replaced.append(CATALOGUE)
    reader.replica.applied = 4
    catalogue_sync.reload()
    ask(reader.operations[0], 7)
    reader.core.states_replaced.append(CATALOGUE)
    catalogue_sync.reload()
    assert go_on(reader.operations[0])
    assert reader.told == []
    assert catalogue_sync.due
    catalogue_sync.reload()
    assert len(reader.operations) == 2


def test_an_errand_that_is_given_up_is_started_again() -> None:
    reader, catalogue_sync = made()
    catalogue_sync.distrust()
    catalogue_sync.reload()
    ask(reader.operations[0], 7)
    reader.operations[0].close()
    assert catalogue_sync.due
    assert catalogue_sync.doubtful


def test_who_leads_it_again_has_read_it() -> None:
    reader, catalogue_sync = made()
    catalogue_sync.distrust()
    reader.led.add(CATALOGUE)
    catalogue_sync.reload()
    assert reader.operations == []
    assert not catalogue_sync.due
    assert not catalogue_sync.doubtful


def test_a_state_that_is_wiped_meanwhile_is_not_read() -> None:
    reader, catalogue_sync = made()
    catalogue_sync.distrust()
    catalogue_sync.reload()
    (operation,) = reader.operations
    ask(operation, 7)
    assert not go_on(operation)
    reader.replica.applied = 0  # another snapshot is being sent
    assert not go_on(operation)
    reader.replica.applied = 7
    assert not go_on(operation)
    assert go_on(operation)
    assert reader.told == ["load"]
