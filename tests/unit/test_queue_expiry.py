"""The catalogue's primary deletes a queue only when every node says that it is idle."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.test_fanout import Two
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.core.operation import SILENT, Pause, Question
from weft.server.core.queue_expiry import POLL_US, QueueExpiry

MS = 5_000


class Idle:
    any = True

    def __init__(self) -> None:
        self.samples = 0

    def sample(self) -> None:
        self.samples += 1

    def expired(self) -> list[str]:
        return ["q"]


class Host(Two):
    """Node "a", which leads the catalogue or does not."""

    def __init__(self, *, leads: bool = True) -> None:
        self.led = {self.view.catalogue} if leads else set()
        self.idle = Idle()
        known = SimpleNamespace(settings=Settings(expire_idle_ms=MS))
        self.engine = SimpleNamespace(idle_queues=self.idle, queues={"q": known})
        self.operations: list[Generator[Any, Any, Any]] = []

    def run_operation(self, operation: Generator[Any, Any, Any]) -> None:
        self.operations.append(operation)


def carried_out(host: Host, idle: dict[str, wire.AnyAnswer]) -> list[type]:
    """The kinds of requests of the operation, when the nodes give these answers."""
    (operation,) = host.operations
    kinds: list[type] = []
    said: Any = None
    try:
        while True:
            step = operation.send(said)
            if isinstance(step, Pause):
                said = []
                continue
            questions = [cast(Question, each) for each in step]
            kinds += {type(each.request): None for each in questions}
            said = [(_answer(each, idle), ()) for each in questions]
    except StopIteration:
        return kinds


def _answer(question: Question, idle: dict[str, wire.AnyAnswer]) -> wire.AnyAnswer:
    if isinstance(question.request, wire.IdleTimes):
        return idle[question.node]
    return wire.Done(1)


@pytest.mark.parametrize(
    ("answer", "deleted"),
    [
        (wire.IdleFor([MS]), True),
        (wire.IdleFor([MS - 1]), False),
        (wire.IdleFor([0]), False),
        (SILENT, False),
    ],
)
def test_every_node_must_say_that_the_queue_is_idle(answer: wire.AnyAnswer, deleted: bool) -> None:
    host = Host()
    expiry = QueueExpiry(cast(Any, host))
    expiry.work(0)
    kinds = carried_out(host, {"a": wire.IdleFor([2 * MS]), "b": answer})
    assert (wire.DeleteQueue in kinds) is deleted


def test_only_the_primary_of_the_catalogue_decides_and_once_at_a_time() -> None:
    follower = Host(leads=False)
    QueueExpiry(cast(Any, follower)).work(0)
    assert (follower.operations, follower.idle.samples) == ([], 1)
    host = Host()
    expiry = QueueExpiry(cast(Any, host))
    expiry.work(0)
    expiry.work(POLL_US - 1)
    expiry.work(POLL_US)
    assert (len(host.operations), host.idle.samples) == (1, 2)
    assert expiry.next_due() == 2 * POLL_US
    host.operations[0].close()
    expiry.work(2 * POLL_US)
    assert len(host.operations) == 1, "an operation that has not begun is still under way"


def test_a_node_without_such_queues_has_nothing_to_do() -> None:
    host = Host()
    host.idle.any = False
    expiry = QueueExpiry(cast(Any, host))
    expiry.work(0)
    assert (expiry.next_due(), host.operations) == (None, [])
