"""Operations over all nodes: which nodes they ask."""

from __future__ import annotations

from typing import Any, cast

import pytest

from weft.dht import placement
from weft.dht.view import Member, ReplicaSet, View
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.core import catalogue_operations, fanout, primary_operations
from weft.server.core.operation import Pause, Question
from weft.server.core.remote_pop import RemotePop


class Two:
    """Two nodes and a witness, as seen by an operation."""

    node = "a"
    now = 0
    view = View(
        1, ("a", "b", "w"), (),
        {"a": Member("1"), "b": Member("2"), "w": Member("3", witness=True)},
        (ReplicaSet(1, ("a", "b")), ReplicaSet(1, ("a", "b"))), 1,
    )  # fmt: skip

    def alive(self, node: str) -> bool:
        return True

    def random(self, below: int) -> int:
        return 0

    def is_ordered(self, queue: str) -> bool | None:
        return {"line": True, "q": False}.get(queue)

    def outage(self, number: int | None = None) -> str:
        return ""


def asked(operation: Any, answers: list[Any]) -> list[list[str]]:
    """The nodes of each step, when every asked node gives the next of these answers."""
    steps: list[list[str]] = []
    said: Any = None
    try:
        while True:
            step = operation.send(said)
            if isinstance(step, Pause):
                said = []
                continue
            steps.append([cast(Question, question).node for question in step])
            said = [(answers[len(steps) - 1], ())] * len(step)
    except StopIteration:
        return steps


def test_a_witness_is_not_asked_for_what_it_never_holds() -> None:
    """A witness does not follow the catalogue: waiting until it knows a queue would never end."""
    create = catalogue_operations.catalogue(Two(), wire.CreateQueue("q", Settings()), ())
    answers = [wire.Done(1), wire.Done(7), wire.Done(0)]
    assert asked(create, answers) == [["a"], ["a"], ["a", "b"]]
    assert asked(fanout.peek(Two(), wire.Peek("q", 1), ()), [wire.Peeked([])]) == [["a", "b"]]


@pytest.mark.parametrize("code", ["UNAVAILABLE", "CONNECTION_LOST", "NOT_PRIMARY"])
def test_a_cancel_is_repeated_until_the_primary_answers(code: str) -> None:
    failure = wire.Failure(code, "it may or may not have been done", True)
    cancel = primary_operations.cancel(Two(), wire.Cancel("q", 0, 1, 1, 0), ())
    assert asked(cancel, [failure, failure, wire.Done(0)]) == [["a"], ["a"], ["a"]]


@pytest.mark.parametrize(
    ("first", "told"),
    [("UNAVAILABLE", "UNAVAILABLE"), ("CONNECTION_LOST", "UNAVAILABLE"),
     ("NOT_PRIMARY", "MESSAGE_LEASED"), ("SHUTTING_DOWN", "MESSAGE_LEASED")],
)  # fmt: skip
def test_a_refused_cancel_is_final_only_without_an_attempt_in_doubt(first: str, told: str) -> None:
    """The attempt in doubt may still arrive, and remove the message."""
    cancel = primary_operations.cancel(Two(), wire.Cancel("q", 0, 1, 1, 0), ())
    next(cancel)
    assert isinstance(cancel.send([(wire.Failure(first, "", True), ())]), Pause)
    cancel.send([])
    with pytest.raises(StopIteration) as end:
        cancel.send([(wire.Failure("MESSAGE_LEASED", "leased", False), ())])
    answer, _ = end.value.value
    assert isinstance(answer, wire.Failure)
    assert answer.code == told


def test_a_cancel_outside_the_cluster_s_partitions_asks_nobody() -> None:
    assert asked(primary_operations.cancel(Two(), wire.Cancel("q", 1, 1, 1, 0), ()), []) == []


def test_the_state_of_the_cluster_is_asked_of_a_witness_too() -> None:
    nothing = wire.Failure("UNAVAILABLE", "", True)
    status = fanout.status(Two(), wire.ClusterStatus(), ())
    assert asked(status, [nothing]) == [["a", "b", "w"]]


def test_a_push_to_a_queue_that_is_not_known_here_finds_its_partition() -> None:
    """A witness cannot tell whether a queue is ordered: a wrong node refuses."""

    class Many(Two):
        view = View(
            1, ("a", "b"), (), {"a": Member("1"), "b": Member("2")},
            (ReplicaSet(1, ("a", "b")), ReplicaSet(1, ("b", "a")), ReplicaSet(1, ("a", "b"))), 1,
        )  # fmt: skip

    wrong = wire.Failure("NOT_PRIMARY", "", True)
    done = wire.Pushed(0, 1, 1, 1, False, "disk")
    nodes = "ab"
    for name in ("unknown", "line", "q"):
        for batch in range(8):
            request = wire.Push(name, 1, batch, 1)
            hashed = nodes[placement.of_batch(1, batch, 2)]
            named = nodes[placement.of_text(name, 2)]
            expected = {"unknown": [hashed, named, hashed], "line": [named] * 3, "q": [hashed] * 3}
            steps = asked(primary_operations.push(Many(), request, [b""]), [wrong, wrong, done])
            assert [node for (node,) in steps] == expected[name]


def test_of_a_queue_that_is_not_known_here_nothing_is_stolen() -> None:
    """The queue may be ordered: then the whole lot is for one consumer."""
    limits = {}
    for name in ("q", "line", "unknown"):
        popping = RemotePop(Two())
        popping.prefetched.consumed(name, 0, 100, Two.now)
        operation: Any = popping.pop(wire.Pop(name, 3), ())
        step = operation.send(None)
        while not (isinstance(step, list) and step[0].node == "b"):
            asks_where = isinstance(step[0].request, wire.Where)
            step = operation.send([(wire.Nodes(["b"]) if asks_where else wire.Popped([]), ())])
        limits[name] = step[0].request.limit
    assert limits == {"q": 3 + 50, "line": 3, "unknown": 3}


def test_a_node_that_does_not_know_yet_does_not_say_that_there_is_no_queue() -> None:
    late = wire.Failure("UNAVAILABLE", "a node did not answer in time", True)
    operation = catalogue_operations.refreshed(Two(), wire.Pop("q", 1), ())
    operation.send(cast(Any, None))
    operation.send([(wire.Done(7), ())])
    with pytest.raises(StopIteration) as ended:
        operation.send([(late, ())])
    assert ended.value.value == (late, ())
