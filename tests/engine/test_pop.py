"""pop and peek: leases, split batches, limits of an answer, and waiting pops."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.engine.rig import Asked, Rig, messages_of, payload_of
from weft import limits
from weft.errors import InvalidArgument, Overloaded, QueueNotFound
from weft.proto import wire
from weft.server.engine import pop as pop_module
from weft.server.engine.backpressure import Backpressure, NoBackpressure
from weft.server.engine.pop import RANGES_MAX


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


# --- lending ----------------------------------------------------------------------------------


def test_a_pop_lends_and_nobody_else_gets_it(rig: Rig) -> None:
    rig.push("q", b"a")
    message = rig.pop("q")[0]
    assert (message.body, message.deliveries, message.lent.lease_ms) == (b"a", 1, 10_000)
    assert rig.pop("q") == []
    assert rig.counts("q") == (0, 1, 0)


def test_pushed_ms_is_when_it_was_pushed(rig: Rig) -> None:
    rig.push("q", b"a")
    pushed_ms = rig.now // 1000
    rig.advance(5000)
    assert rig.pop("q")[0].lent.pushed_ms == pushed_ms


def test_a_lease_lasts_as_long_as_the_pop_or_the_queue_says(rig: Rig) -> None:
    rig.push("q", b"short", b"long")
    assert rig.pop("q", lease_ms=1000)[0].lent.lease_ms == 1000
    rig.pop("q")
    rig.advance(1000)
    assert rig.bodies("q", 5, lease_ms=60_000) == [b"short"]
    rig.advance(9000)
    assert rig.bodies("q", 5) == [b"long"]


def test_a_lease_ends_at_its_time_and_not_before(rig: Rig) -> None:
    rig.push("q", b"a")
    message = rig.pop("q", lease_ms=1000)[0]
    lent_at = rig.now
    rig.now = lent_at + 1_000_000 - 2 * 50  # the next two rounds: just before, and just at the end
    rig.round()
    assert rig.counts("q")[1] == 1
    assert rig.now == lent_at + 1_000_000
    assert rig.ack("q", message).lost == [0]
    assert rig.stats("q").expired_leases == 1


def test_the_engine_says_when_it_next_has_something_to_do(rig: Rig) -> None:
    rig.advance(1)
    rig.push("q", b"a")
    rig.pop("q", lease_ms=300)
    assert rig.engine.next_due() == rig.now + 300_000
    wait(rig, wait_ms=200, queue="q")
    assert rig.engine.next_due() == rig.now + 200_000
    rig.push("q", b"later", delay_ms=100)
    assert rig.engine.next_due() == rig.now + 100_000


def test_a_pop_goes_over_many_batches(rig: Rig) -> None:
    for number in range(10):
        rig.push("q", b"%d.0" % number, b"%d.1" % number)
    assert rig.bodies("q", 5) == [b"0.0", b"0.1", b"1.0", b"1.1", b"2.0"]
    assert rig.bodies("q", 2) == [b"2.1", b"3.0"]


def test_one_of_a_thousand_again_and_again(rig: Rig) -> None:
    rig.checking = False
    rig.push("q", *(b"%d" % n for n in range(1000)))
    taken = [rig.pop("q")[0] for _ in range(1000)]
    assert [message.body for message in taken] == [b"%d" % n for n in range(1000)]
    assert [message.index for message in taken] == list(range(1000))
    rig.check()
    for message in taken[1::2]:
        assert rig.ack("q", message) == wire.Settled(1, 0, [])
    rig.check()
    assert rig.counts("q") == (0, 500, 0)
    rig.restart()
    assert rig.bodies("q", 1000) == [b"%d" % n for n in range(0, 1000, 2)]
    rig.check()


def test_a_pop_stops_at_its_bytes(rig: Rig) -> None:
    third = b"x" * (limits.POP_BYTES_MAX // 3)
    for _ in range(4):
        rig.push("q", third)
    assert len(rig.pop("q", 100)) == 2, "three of them with their frames are just over"
    assert len(rig.pop("q", 100)) == 2


def test_a_pop_stops_at_its_bytes_within_a_split_and_keeps_the_order(rig: Rig) -> None:
    big = b"x" * (limits.POP_BYTES_MAX // 2 - 1)
    rig.push("q", big)
    rig.push("q", big + b"1", b"2", b"3")
    assert [len(body) for body in rig.bodies("q", 3)] == [len(big)]
    assert [len(body) for body in rig.bodies("q", 3)] == [len(big) + 1, 1, 1]


def test_the_bytes_of_an_answer_are_those_that_are_sent(rig: Rig) -> None:
    """A batch's bytes may all be in one message: an average per message would be wrong."""
    big = b"x" * (limits.BODY_BYTES_MAX - 100)
    for _ in range(3):
        rig.push("q", big, *[b""] * 99)
    taken = rig.pop("q", 100) + rig.pop("q", 100) + rig.pop("q", 100)
    heavy = [message for message in taken if message.body]
    rig.ack("q", *(message for message in taken if not message.body))
    rig.nack("q", *heavy)
    assert len(rig.peek("q", 3)) == 2
    assert len(rig.pop("q", 3)) == 2
    assert len(rig.pop("q", 3)) == 1


def test_a_pop_stops_at_its_ranges(rig: Rig) -> None:
    rig.checking = False
    for number in range(RANGES_MAX + 5):
        rig.push("q", b"%d" % number)
    assert len(rig.pop("q", 10_000)) == RANGES_MAX
    assert len(rig.pop("q", 10_000)) == 5
    rig.check()


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (wire.Pop("q", 0), "limit"),
        (wire.Pop("q", -1), "limit"),
        (wire.Pop("q", limits.POP_COUNT_MAX + 1), "limit"),
        (wire.Pop("q", 1, -1), "wait_ms"),
        (wire.Pop("q", 1, limits.WAIT_MS_MAX + 1), "wait_ms"),
        (wire.Pop("q", 1, 0, limits.LEASE_MS_MIN - 1), "lease_ms"),
        (wire.Pop("q", 1, 0, limits.LEASE_MS_MAX + 1), "lease_ms"),
        (wire.Pop("q", 1, 0, -1), "lease_ms"),
        (wire.Peek("q", 0), "limit"),
        (wire.Peek("q", limits.POP_COUNT_MAX + 1), "limit"),
    ],
)
def test_a_value_out_of_range_is_refused(rig: Rig, request_: wire.Pop, says: str) -> None:
    rig.push("q", b"a")
    with pytest.raises(InvalidArgument, match=says):
        rig.call(request_)
    assert rig.counts("q") == (1, 0, 0)


def test_values_at_their_bounds_are_taken(rig: Rig) -> None:
    rig.push("q", b"a", b"b")
    pop = wire.Pop("q", 1, limits.WAIT_MS_MAX, limits.LEASE_MS_MAX)
    assert isinstance(rig.call(pop), wire.Popped)
    assert isinstance(rig.call(wire.Pop("q", 1, 0, limits.LEASE_MS_MIN)), wire.Popped)
    assert rig.counts("q") == (0, 2, 0)


def test_an_unknown_queue_is_named(rig: Rig) -> None:
    for request in (wire.Pop("nope", 1), wire.Peek("nope", 1)):
        with pytest.raises(QueueNotFound, match="nope"):
            rig.call(request)


def test_leases_have_a_limit(rig: Rig) -> None:
    rig.engine.state.leases.most = 2
    rig.push("q", b"a", b"b", b"c")
    taken = [rig.pop("q")[0], rig.pop("q")[0]]
    with pytest.raises(Overloaded, match="2 leases"):
        rig.pop("q")
    rig.ack("q", taken[0])
    assert rig.bodies("q") == [b"c"]


# --- peek -------------------------------------------------------------------------------------


def test_a_peek_shows_and_lends_nothing(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c")
    rig.push("q", b"d")
    for _ in range(3):
        shown = rig.peek("q", 2)
        assert [message.body for message in shown] == [b"a", b"b"]
        assert {(m.lent.nonce, m.deliveries, m.lent.lease_ms) for m in shown} == {(0, 0, 0)}
    assert rig.counts("q") == (4, 0, 0)
    assert rig.stats("q").delivered == 0
    assert rig.bodies("q", 4) == [b"a", b"b", b"c", b"d"]
    assert rig.peek("q") == [], "what is lent is not shown"


def test_a_peeked_receipt_settles_nothing(rig: Rig) -> None:
    rig.push("q", b"a")
    assert rig.ack("q", rig.peek("q")[0]) == wire.Settled(0, 0, [0])
    assert rig.counts("q") == (1, 0, 0)


def test_a_peek_shows_what_a_pop_would_give(rig: Rig) -> None:
    for number in range(12):
        rig.push("q", b"%d.0" % number, b"%d.1" % number, priority=number % 3)
    taken = rig.pop("q", 9)
    rig.nack("q", *taken[::2])
    shown = [message.body for message in rig.peek("q", 100)]
    assert shown == rig.bodies("q", 100)


def test_a_peek_stops_at_its_bytes(rig: Rig) -> None:
    for _ in range(3):
        rig.push("q", b"x" * (limits.POP_BYTES_MAX // 2 - 100))
    assert len(rig.peek("q", 10)) == 2


# --- waiting ----------------------------------------------------------------------------------


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
