"""The operation that plans a multicast to several partitions, and asks its coordinator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.rig import payload_of
from tests.engine.test_ordered_multicast import PARTITIONS, A, B, Nodes
from weft.errors import QueueNotFound
from weft.proto import wire
from weft.server.core.multicast_operations import agree
from weft.server.core.operation import Operation, Pause, Question

GONE = wire.Failure("QUEUE_NOT_FOUND", "purged meanwhile", False)


@pytest.fixture
def rig() -> Nodes:
    rig = Nodes(partitions=PARTITIONS)
    for name in (A, B):
        rig.create(name, ordered=True)
    rig.call(wire.EnableOrderedMulticast())
    return rig


def begun(rig: Nodes) -> tuple[Operation, SimpleNamespace]:
    place = SimpleNamespace(primary="node")
    host: Any = SimpleNamespace(
        node="node", now=0, engine=rig.engine, destinations=rig.engine.destinations,
        view=SimpleNamespace(places=[place] * (PARTITIONS + 1)),
    )  # fmt: skip
    return agree(host, wire.Multicast([A, B], 7, 1, 1), (payload_of([b"x"]),)), host


def asked(step: object) -> wire.CoordinateMulticast:
    assert isinstance(step, list)
    (question,) = step
    assert isinstance(question, Question)
    assert isinstance(question.request, wire.CoordinateMulticast)
    return question.request


def test_a_purge_on_the_way_makes_another_plan(rig: Nodes) -> None:
    operation, _ = begun(rig)
    assert asked(next(operation)).queues == [rig.queue(A).id, rig.queue(B).id]
    rig.call(wire.PurgeQueue(B))
    assert operation.send([(GONE, ())]) == Pause()
    assert asked(operation.send([])).queues == [rig.queue(A).id, rig.queue(B).id]


def test_a_deleted_queue_ends_the_multicast(rig: Nodes) -> None:
    operation, _ = begun(rig)
    next(operation)
    rig.call(wire.DeleteQueue(B))
    operation.send([(GONE, ())])
    with pytest.raises(QueueNotFound, match=B):
        operation.send([])


def test_a_queue_that_no_other_node_finds_ends_it_in_time(rig: Nodes) -> None:
    operation, host = begun(rig)
    next(operation)
    host.now += 60_000_000
    with pytest.raises(StopIteration) as ended:
        operation.send([(GONE, ())])
    assert ended.value.value == (GONE, ())
