"""Outbox delivery: a destination that cannot take its deliveries does not block the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.engine.commits import commit, key_of, new_rig, put, value
from tests.engine.rig import Rig
from weft.proto import wire
from weft.server.core.operation import SILENT, Operation, Pause, Question
from weft.server.core.outbox_delivery import RETRY_US, OutboxDelivery, OutboxHost
from weft.server.engine import outbox

HOME, OFFLINE, ONLINE = 1, 2, 3


class Host:
    """One node, "a", leads the partitions of a rig; another one, "b", leads `OFFLINE`."""

    node = "a"

    def __init__(self, rig: Rig) -> None:
        self.rig, self.engine = rig, rig.engine
        self.now = 0
        primaries = ["b" if number == OFFLINE else "a" for number in range(4)]
        self.view = SimpleNamespace(places=[SimpleNamespace(primary=each) for each in primaries])
        self.b_lives = False
        self.operations: list[Operation] = []
        #: The partitions of each request of a delivery.
        self.asked: list[list[int]] = []

    def alive(self, node: str) -> bool:
        return node == "a" or self.b_lives

    def run_operation(self, operation: Operation) -> None:
        self.operations.append(operation)

    def step(self, operation: Operation, said: list[Any] | None) -> Any:
        """The next step of an operation, and the time that it takes."""
        step = operation.send(said)  # type: ignore[arg-type]
        if isinstance(step, Pause):
            self.now += step.us
        return step

    def answer(self, question: Question) -> tuple[wire.AnyAnswer, tuple[()]]:
        request = question.request
        if isinstance(request, wire.Deliver):
            self.asked.append(request.partitions)
        return (SILENT if question.node == "b" else self.rig.call(request)), ()


def _steps(host: Host, operation: Operation, count: int) -> None:
    said: list[Any] | None = None
    for _ in range(count):
        step = host.step(operation, said)
        said = [] if isinstance(step, Pause) else [host.answer(each) for each in step]


def _started(host: Host) -> Operation:
    delivery = OutboxDelivery(cast(OutboxHost, host))
    delivery.work()
    (operation,) = host.operations
    return operation


def test_deliveries_for_an_offline_partition_do_not_fill_the_pages() -> None:
    rig = new_rig()
    for _ in range(outbox.PAGE_DELIVERIES_MAX + 1):
        commit(rig, HOME, writes=[put(OFFLINE)])
    commit(rig, HOME, writes=[put(ONLINE)])
    for b_lives in (False, True):  # known to be dead, or silent
        host = Host(rig)
        host.b_lives = b_lives
        _steps(host, _started(host), 6)
        assert [ONLINE] in host.asked or value(rig, key_of(ONLINE)) == b"v"
    assert value(rig, key_of(ONLINE)) == b"v"
    assert rig.engine.commits.undelivered == outbox.PAGE_DELIVERIES_MAX + 1


def test_a_destination_that_refused_is_asked_again_after_a_pause() -> None:
    rig = new_rig()
    commit(rig, HOME, writes=[put(OFFLINE)])
    host = Host(rig)
    host.b_lives = True
    operation = _started(host)
    _steps(host, operation, 4)
    assert host.asked == [[OFFLINE]]
    assert host.now >= RETRY_US
