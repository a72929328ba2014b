"""Pops that wait: what wakes them, in which order, and backpressure of their connections."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.engine.rig import Asked, Rig, messages_of, payload_of
from weft.errors import Overloaded
from weft.proto import wire
from weft.server.engine import pop as pop_module
from weft.server.engine.backpressure import Backpressure, NoBackpressure


def got(rig: Rig, token: object) -> list[bytes] | None:
    """The bodies that answered a waiting pop; None while the pop waits."""
    answered = rig.answer(token)
    if answered is None:
        return None
    return [message.body for message in messages_of(answered.answer, answered.payload)]


def wait(rig: Rig, limit: int = 1, wait_ms: int = 5000, queue: str = "q") -> object:
    return rig.ask(wire.Pop(queue, limit, wait_ms))


class Ear:
    """Callers on one connection with room for `room` bytes."""

    def __init__(self, tokens: Iterable[object]) -> None:
        self._tokens = list(tokens)
        self.room = 0

    def blocked_peer(self, to: object) -> int | None:
        return 1 if to in self._tokens and self.room <= 0 else None

    def tell(self, to: object, size: int) -> None:
        self.room -= size

    def got(self, rig: Rig) -> list[bytes]:
        return [body for token in self._tokens for body in got(rig, token) or ()]


def test_the_engine_says_when_it_next_has_something_to_do(rig: Rig) -> None:
    rig.advance(1)
    rig.push("q", b"a")
    rig.pop("q", lease_ms=300)
    assert rig.engine.next_due() == rig.now + 300_000
    wait(rig, wait_ms=200, queue="q")
    assert rig.engine.next_due() == rig.now + 200_000
    rig.push("q", b"later", delay_ms=100)
    assert rig.engine.next_due() == rig.now + 100_000


def test_a_pop_that_waits_is_woken_by_a_push(rig: Rig) -> None:
    token = wait(rig, 10)
    assert got(rig, token) is None
    assert rig.stats("q").waiting_pops == 1
    rig.push("q", b"a", b"b")
    assert got(rig, token) == [b"a", b"b"]
    assert rig.stats("q").waiting_pops == 0


def test_it_is_woken_by_a_nack(rig: Rig) -> None:
    rig.push("q", b"a")
    message = rig.pop("q")[0]
    token = wait(rig)
    rig.nack("q", message)
    assert got(rig, token) == [b"a"]


def test_it_is_woken_by_a_delay_that_ends(rig: Rig) -> None:
    rig.push("q", b"a", delay_ms=1000)
    token = wait(rig)
    rig.advance(999)
    assert got(rig, token) is None
    rig.advance(1)
    assert got(rig, token) == [b"a"]


def test_it_is_woken_by_a_lease_that_ends(rig: Rig) -> None:
    rig.push("q", b"a")
    rig.pop("q", lease_ms=1000)
    token = wait(rig)
    rig.advance(1000)
    assert got(rig, token) == [b"a"]


def test_it_is_woken_by_what_could_not_be_sent(rig: Rig) -> None:
    rig.push("q", b"a")
    lost = rig.pop("q")[0]
    token = wait(rig)
    rig.engine.give_back([lost.lent])
    rig._deliver(rig.round())
    answered = rig.answer(token)
    assert answered is not None
    message = messages_of(answered.answer, answered.payload)[0]
    assert (message.body, message.deliveries) == (b"a", 1), "nobody had seen it: not counted"


def test_it_is_woken_by_a_dead_letter_and_by_a_redrive(rig: Rig) -> None:
    rig.create("jobs", max_deliveries=1, dead_letter="jobs.dead")
    rig.push("jobs", b"a")
    dead = wait(rig, queue="jobs.dead")
    rig.nack("jobs", rig.pop("jobs")[0])
    answered = rig.answer(dead)
    assert answered is not None
    message = messages_of(answered.answer, answered.payload)[0]
    token = wait(rig, queue="jobs")
    rig.nack("jobs.dead", message)
    assert rig.redrive("jobs.dead") == 1
    assert got(rig, token) == [b"a"]


def test_who_waits_longest_is_served_first(rig: Rig) -> None:
    tokens = [wait(rig, 2), wait(rig, 1), wait(rig, 5)]
    rig.push("q", b"a")
    rig.push("q", b"b", b"c")
    assert [got(rig, token) for token in tokens] == [[b"a"], [b"b"], [b"c"]]


def test_a_later_pop_does_not_overtake_in_the_same_round(rig: Rig) -> None:
    token = wait(rig)
    answers = rig.round(
        Asked(wire.Push("q", 1, 1, 1), [payload_of([b"a"])], "push"),
        Asked(wire.Pop("q", 1), (), "late"),
    )
    bodies = {
        each.to: [message.body for message in messages_of(each.answer, each.payload)]
        for each in answers
        if isinstance(each.answer, wire.Popped)
    }
    assert bodies == {"late": [], token: [b"a"]}


def test_a_wait_ends_empty_handed(rig: Rig) -> None:
    token = wait(rig, wait_ms=1000)
    rig.advance(999)
    assert got(rig, token) is None
    rig.advance(1)
    assert got(rig, token) == []
    rig.push("q", b"a")
    assert rig.counts("q") == (1, 0, 0)


def test_a_caller_that_has_gone_takes_nothing(rig: Rig) -> None:
    first, second = wait(rig), wait(rig)
    rig.engine.cancel(first)
    rig._deliver(rig.round())
    assert got(rig, first) == []
    rig.push("q", b"a")
    assert got(rig, second) == [b"a"]
    rig.engine.cancel(second)  # already answered: no effect
    assert rig.counts("q") == (0, 1, 0)


def test_the_same_wait_sent_again_is_one_wait(rig: Rig) -> None:
    token = wait(rig)
    rig._deliver(rig.round(Asked(wire.Pop("q", 1, 5000), (), token)))
    assert rig.stats("q").waiting_pops == 1
    rig.push("q", b"a", b"b")
    assert got(rig, token) == [b"a"]


def test_a_node_that_stops_answers_who_waits(rig: Rig) -> None:
    tokens = [wait(rig) for _ in range(3)]
    rig.engine.drain()
    rig._deliver(rig.round())
    assert [got(rig, token) for token in tokens] == [[], [], []]


def listen(rig: Rig, backpressure: Backpressure) -> None:
    rig.engine.state.backpressure = backpressure
    for ear in list(rig.engine.state.deferred):
        rig.engine.serve_peer(ear)
    rig._deliver(rig.round())


def test_who_is_deaf_is_passed_over_and_keeps_its_place(rig: Rig) -> None:
    first, second = wait(rig), wait(rig)
    rig.engine.state.backpressure = Ear([first])
    rig.push("q", b"a")
    assert (got(rig, first), got(rig, second)) == (None, [b"a"])
    rig.push("q", b"b")
    assert rig.counts("q") == (1, 1, 0)
    third = wait(rig)
    assert got(rig, third) == [b"b"], "nobody waits for who is deaf"
    fourth = wait(rig)
    listen(rig, NoBackpressure())
    assert not rig.engine.state.deferred
    rig.push("q", b"c")
    assert (got(rig, first), got(rig, fourth)) == ([b"c"], None)


def test_a_pop_of_who_is_deaf_waits_though_there_is_something(rig: Rig) -> None:
    rig.push("q", b"a")
    token = ("wait", rig._tokens + 1)
    rig.engine.state.backpressure = Ear([token])
    assert wait(rig, wait_ms=0) == token
    rig.advance(5000)
    assert got(rig, token) is None
    assert rig.counts("q") == (1, 0, 0)
    listen(rig, NoBackpressure())
    assert got(rig, token) == [b"a"]


def test_who_listens_again_is_told_as_much_as_it_takes(rig: Rig) -> None:
    for name in "abc":
        rig.create(name)
    same = Ear([wait(rig, queue=name) for name in "abc"])
    rig.engine.state.backpressure = same
    for name in "abc":
        rig.push(name, name.encode() * 100)
    assert same.got(rig) == []
    for heard in ([b"a"], [b"b"], [b"c"]):
        same.room = 1
        listen(rig, same)
        assert [each[:1] for each in same.got(rig)] == heard
    assert not rig.engine.state.deferred


def test_a_wait_of_who_is_deaf_does_not_end_empty_handed(rig: Rig) -> None:
    token = wait(rig, wait_ms=1000)
    backpressure = rig.engine.state.backpressure = Ear([token])
    rig.push("q", b"a")
    rig.advance(5000)
    assert got(rig, token) is None
    backpressure.room = 1
    rig.advance(200)  # retried even if the connection does not report room
    assert got(rig, token) == [b"a"]
    late = wait(rig, wait_ms=1000)
    rig.engine.state.backpressure = Ear([late])
    rig.push("q", b"b")
    assert rig.bodies("q") == [b"b"], "somebody else is quicker"
    rig.advance(1000)
    assert got(rig, late) == [], "there is nothing, and that may be said"


def test_a_queue_that_goes_forgets_who_was_passed_over(rig: Rig) -> None:
    rig.create("gone")
    token = wait(rig, queue="gone")
    rig.engine.state.backpressure = Ear([token])
    rig.push("gone", b"a")
    rig.delete("gone")
    answered = rig.answer(token)
    assert answered is not None
    assert isinstance(answered.answer, wire.Failure)
    listen(rig, NoBackpressure())


def test_waiting_pops_have_a_limit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_module, "WAITERS_MAX", 2)
    tokens = [wait(rig), wait(rig)]
    with pytest.raises(Overloaded, match="2 pops wait"):
        rig.call(wire.Pop("q", 1, 1000))
    rig.push("q", b"a", b"b")
    assert [got(rig, token) for token in tokens] == [[b"a"], [b"b"]]
