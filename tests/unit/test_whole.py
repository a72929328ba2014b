"""Errands over all nodes: whom they ask."""

from __future__ import annotations

from typing import Any, cast

from weft.dht.view import Member, Place, View
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.loom import whole
from weft.server.loom.errand import Question


class Two:
    """Two nodes and a witness, as an errand sees them."""

    node = "a"
    now = 0
    view = View(
        1, ("a", "b", "w"), (),
        {"a": Member("1"), "b": Member("2"), "w": Member("3", witness=True)},
        (Place(1, ("a", "b")), Place(1, ("a", "b"))), 1,
    )  # fmt: skip

    def alive(self, node: str) -> bool:
        return True

    def random(self, below: int) -> int:
        return 0

    def is_ordered(self, queue: str) -> bool:
        return False


def asked(errand: Any, answers: list[Any]) -> list[list[str]]:
    """The nodes of each step, when all that are asked say the next of these answers."""
    steps: list[list[str]] = []
    said: Any = None
    try:
        while True:
            step = errand.send(said)
            steps.append([cast(Question, question).node for question in step])
            said = [(answers[len(steps) - 1], ())] * len(step)
    except StopIteration:
        return steps


def test_a_witness_is_not_asked_for_what_it_never_holds() -> None:
    """It does not follow the catalogue: who waits until it knows a queue waits for ever."""
    create = whole.catalogue(Two(), wire.CreateQueue("q", Settings()), ())
    answers = [wire.Done(1), wire.Done(7), wire.Done(0)]
    assert asked(create, answers) == [["a"], ["a"], ["a", "b"]]
    assert asked(whole.peek(Two(), wire.Peek("q", 1), ()), [wire.Peeked([])]) == [["a", "b"]]


def test_the_state_of_the_cluster_is_asked_of_a_witness_too() -> None:
    nothing = wire.Failure("UNAVAILABLE", "", True)
    status = whole.status(Two(), wire.ClusterStatus(), ())
    assert asked(status, [nothing]) == [["a", "b", "w"]]
