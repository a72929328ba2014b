"""Errands over all nodes: whom they ask."""

from __future__ import annotations

from typing import Any, cast

from weft.dht import placement
from weft.dht.view import Member, Place, View
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.loom import whole
from weft.server.loom.errand import Pause, Question
from weft.server.loom.loot import LOT
from weft.server.loom.popping import Popping


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

    def is_ordered(self, queue: str) -> bool | None:
        return {"line": True, "q": False}.get(queue)


def asked(errand: Any, answers: list[Any]) -> list[list[str]]:
    """The nodes of each step, when all that are asked say the next of these answers."""
    steps: list[list[str]] = []
    said: Any = None
    try:
        while True:
            step = errand.send(said)
            if isinstance(step, Pause):
                said = []
                continue
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


def test_a_push_to_a_queue_that_is_not_known_here_finds_its_partition() -> None:
    """A witness cannot tell whether a queue is ordered: whoever is asked wrongly says so."""

    class Many(Two):
        view = View(
            1, ("a", "b"), (), {"a": Member("1"), "b": Member("2")},
            (Place(1, ("a", "b")), Place(1, ("b", "a")), Place(1, ("a", "b"))), 1,
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
            steps = asked(whole.push(Many(), request, [b""]), [wrong, wrong, done])
            assert [node for (node,) in steps] == expected[name]


def test_of_a_queue_that_is_not_known_here_nothing_is_stolen() -> None:
    """It may be ordered: then the whole lot is for one consumer."""
    limits = {}
    for name in ("q", "line", "unknown"):
        errand: Any = Popping(Two()).pop(wire.Pop(name, 3), ())
        step = errand.send(None)
        while not (isinstance(step, list) and step[0].node == "b"):
            asks_where = isinstance(step[0].request, wire.Where)
            step = errand.send([(wire.Nodes(["b"]) if asks_where else wire.Popped([]), ())])
        limits[name] = step[0].request.limit
    assert limits == {"q": LOT, "line": 3, "unknown": 3}
