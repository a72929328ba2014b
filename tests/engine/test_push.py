"""push: one batch into one queue; refusals, and that a refusal changes nothing."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.engine.rig import Asked, Rig, payload_of
from weft import limits
from weft.errors import (
    InvalidArgument,
    QueueFull,
    QueueNotFound,
    StorageFull,
    StoreDamaged,
    TooLarge,
    WeftError,
)
from weft.ids import BATCH_BITS, PRODUCER_BITS, MessageId
from weft.persistence import layout
from weft.proto import wire
from weft.server.engine.push import SinglePush, check_batch
from weft.server.engine.state import LSNS_AHEAD

#: Large enough to be checked in place.
LARGE = bytes(20_000)


def refused(
    rig: Rig, error: type[WeftError], request: wire.Push, *payload: bytes, says: str = ""
) -> None:
    """The push fails with this error, and neither the queue nor the store has changed."""
    before = dict(rig.store._rows)
    with pytest.raises(error, match=says):
        rig.call(request, *payload)
    assert rig.store._rows == before
    assert rig.stats("q").pushed == 0


def test_a_push_says_where_the_batch_is(rig: Rig) -> None:
    pushed = rig.push("q", b"a", b"b", producer=9, batch=4)
    assert (pushed.producer, pushed.batch, pushed.count) == (9, 4, 2)
    assert (pushed.duplicate, pushed.durability) == (False, "disk")
    message = rig.pop("q")[0]
    assert message.id == (pushed.partition, 9, 4, 0)
    assert MessageId.of(*message.id).partition == pushed.partition


def test_messages_come_out_in_the_order_of_their_pushes(rig: Rig) -> None:
    for number in range(30):
        rig.push("q", b"%d.0" % number, b"%d.1" % number)
    assert rig.bodies("q", 100) == [b"%d.%d" % (n, i) for n in range(30) for i in (0, 1)]


def test_pushes_of_one_round_keep_their_order(rig: Rig) -> None:
    pushes = [
        Asked(wire.Push("q", 1, n, 1), [payload_of([b"%d" % n])], ("push", n)) for n in range(20)
    ]
    answers = rig.round(*pushes)
    assert [each.to for each in answers] == [("push", n) for n in range(20)]
    rig.restart()
    assert rig.bodies("q", 100) == [b"%d" % n for n in range(20)]


def test_headers_and_keys_come_back_with_their_message(rig: Rig) -> None:
    payload = payload_of([b"a", b"b", b"c"], [{"h": "1"}, None, {}], ["k", None, ""])
    rig.call(wire.Push("q", 1, 1, 3), payload)
    first = rig.pop("q")[0]
    assert (first.headers, first.key) == ({"h": "1"}, "k")
    second, third = rig.pop("q", 2)
    assert (second.headers, second.key) == (None, None)
    assert (third.headers, third.key) == ({}, "")


def test_higher_priorities_are_served_first(rig: Rig) -> None:
    for number, priority in enumerate([0, 9, 3, 9, 0, 3]):
        rig.push("q", b"%d" % number, priority=priority)
    assert [message.lent.priority for message in rig.peek("q")] == [9, 9, 3, 3, 0, 0]
    expected = [b"1", b"3", b"2", b"5", b"0", b"4"]
    assert rig.bodies("q", 2) == expected[:2]
    rig.restart()
    assert rig.bodies("q", 100) == expected


def test_a_body_and_its_empty_neighbour_survive_as_they_are(rig: Rig) -> None:
    rig.push("q", b"", bytes(range(256)))
    rig.restart()
    assert rig.bodies("q", 2) == [b"", bytes(range(256))]


def test_an_unknown_queue_is_named(rig: Rig) -> None:
    with pytest.raises(QueueNotFound, match=r"the queue 'nope' does not exist.*create"):
        rig.push("nope", b"a")


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (wire.Push("q", -1, 1, 1), "producer"),
        (wire.Push("q", 1 << PRODUCER_BITS, 1, 1), "producer"),
        (wire.Push("q", 1, -1, 1), "batch"),
        (wire.Push("q", 1, 1 << BATCH_BITS, 1), "batch"),
        (wire.Push("q", 1, 1, 1, -1), "delay_ms"),
        (wire.Push("q", 1, 1, 1, limits.DELAY_MS_MAX + 1), "delay_ms"),
        (wire.Push("q", 1, 1, 1, 0, -1), "priority"),
        (wire.Push("q", 1, 1, 1, 0, limits.PRIORITY_MAX + 1), "priority"),
        (wire.Push("q", 1, 1, 1, 0, 0, ""), "dedup_key"),
        (wire.Push("q", 1, 1, 1, 0, 0, "k" * (limits.DEDUP_KEY_BYTES_MAX + 1)), "dedup_key"),
        (wire.Push("q", 1, 1, 1, 0, 0, "é" * (limits.DEDUP_KEY_BYTES_MAX // 2 + 1)), "dedup_key"),
        (wire.Push("q", 1, 1, 2), "2 messages has 1 bodies"),
        (wire.Push("q", 1, 1, -1), "-1 messages"),
    ],
)
def test_a_value_out_of_range_is_refused(rig: Rig, request_: wire.Push, says: str) -> None:
    refused(rig, InvalidArgument, request_, payload_of([b"a"]), says=says)


def test_values_at_their_bounds_are_taken(rig: Rig) -> None:
    producer, batch = (1 << PRODUCER_BITS) - 1, (1 << BATCH_BITS) - 1
    key = "k" * limits.DEDUP_KEY_BYTES_MAX
    rig.push("q", b"a", producer=producer, batch=batch, priority=limits.PRIORITY_MAX)
    rig.push("q", b"b", producer=0, batch=0, dedup_key=key)
    rig.push("q", b"c", delay_ms=limits.DELAY_MS_MAX)
    assert rig.counts("q") == (2, 0, 1)
    rig.restart()
    assert [message.id[1:] for message in rig.pop("q", 5)] == [(producer, batch, 0), (0, 0, 0)]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        wire.encode(["not", "a", "payload"]),
        wire.encode([[b"a"], None, None, 1, 2])[:-3],
        payload_of([b"a"]) + b"\x00",
        wire.encode([["text"]]),
        wire.encode([[b"a"], [{"h": 1}]]),
        payload_of([LARGE]) + b"\x00",
        payload_of([LARGE])[:-1],
        wire.encode([["text" * 5000]]),
        wire.encode([[LARGE], [{"h": 1}]]),
    ],
)
def test_a_payload_of_another_shape_is_refused(rig: Rig, payload: bytes) -> None:
    refused(rig, InvalidArgument, wire.Push("q", 1, 1, 1), payload, says="payload")


def test_large_bodies_are_looked_at_where_they_stand() -> None:
    payload = payload_of([bytes(limits.MIB)] * 2, [{"h": "1"}, None])
    tracemalloc.start()
    try:
        check_batch(wire.Push("q", 1, 1, 2), payload)
        assert tracemalloc.get_traced_memory()[1] < limits.MIB // 2
    finally:
        tracemalloc.stop()


def test_columns_of_other_lengths_are_refused(rig: Rig) -> None:
    push = wire.Push("q", 1, 1, 2)
    large = [LARGE, LARGE]
    refused(rig, InvalidArgument, push, payload_of(large, [None]), says="headers has 1")
    refused(rig, InvalidArgument, push, payload_of([LARGE]), says="2 messages has 1 bodies")
    refused(rig, InvalidArgument, push, payload_of([b"a", b"b"], [None]), says="headers has 1")
    refused(rig, InvalidArgument, push, payload_of([b"a", b"b"], None, []), says="keys has 0")


def test_a_push_has_exactly_one_payload_frame(rig: Rig) -> None:
    frame = payload_of([b"a"])
    refused(rig, InvalidArgument, wire.Push("q", 1, 1, 1), says="0 payload frames")
    refused(rig, InvalidArgument, wire.Push("q", 1, 1, 1), frame, frame, says="2 payload frames")
    with pytest.raises(InvalidArgument, match="1 payload frames"):
        rig.call(wire.Pop("q", 1), frame)


def test_an_empty_batch_is_refused(rig: Rig) -> None:
    refused(rig, InvalidArgument, wire.Push("q", 1, 1, 0), payload_of([]), says="at least one")


def test_a_batch_has_a_largest_number_of_messages(rig: Rig) -> None:
    most = limits.BATCH_COUNT_MAX
    over = payload_of([b"x"] * (most + 1))
    refused(rig, TooLarge, wire.Push("q", 1, 1, most + 1), over, says="4096")
    rig.push("q", *[b"x"] * most)
    assert rig.counts("q") == (most, 0, 0)


def test_a_body_has_a_largest_size(rig: Rig) -> None:
    most = limits.BODY_BYTES_MAX
    over = payload_of([b"x" * (most + 1)])
    refused(rig, TooLarge, wire.Push("q", 1, 1, 1), over, says=str(most))
    rig.push("q", b"x" * most)
    assert len(rig.pop("q")[0].body) == most


def test_a_batch_has_a_largest_size(rig: Rig) -> None:
    third = limits.BATCH_BYTES_MAX // 3
    overhead = len(payload_of([b"x" * third] * 3)) - 3 * third
    rest = limits.BATCH_BYTES_MAX - 2 * third - overhead
    exact = payload_of([b"x" * third, b"x" * third, b"x" * rest])
    assert len(exact) == limits.BATCH_BYTES_MAX
    over = payload_of([b"x" * third, b"x" * third, b"x" * (rest + 1)])
    refused(rig, TooLarge, wire.Push("q", 1, 1, 3), over, says=str(limits.BATCH_BYTES_MAX))
    rig.call(wire.Push("q", 1, 1, 3), exact)
    assert len(rig.bodies("q", 3)) == 3


def test_headers_and_keys_have_largest_sizes(rig: Rig) -> None:
    most = limits.HEADERS_BYTES_MAX
    push = wire.Push("q", 1, 1, 1)
    refused(rig, TooLarge, push, payload_of([b""], [{"k": "v" * most}]), says="headers")
    refused(rig, TooLarge, push, payload_of([b""], [{"k": "é" * (most // 2)}]), says="headers")
    over = payload_of([b""], None, ["k" * (limits.KEY_BYTES_MAX + 1)])
    refused(rig, TooLarge, push, over, says="key")
    headers: list[dict[str, str] | None] = [{"k": "v" * (most - 1)}]
    rig.call(push, payload_of([b""], headers, ["k" * limits.KEY_BYTES_MAX]))
    assert rig.pop("q")[0].headers == headers[0]


def test_a_queue_that_is_full_refuses_and_takes_again(rig: Rig) -> None:
    rig.create("small", max_messages=3)
    rig.push("small", b"a", b"b", batch=1)
    with pytest.raises(QueueFull, match="has 2 messages of at most 3"):
        rig.push("small", b"c", b"d", batch=2)
    rig.push("small", b"c", batch=3)  # exactly full
    assert rig.push("small", b"a", b"b", batch=1).duplicate, "a retry is not a new push"
    taken = rig.pop("small", 3)
    with pytest.raises(QueueFull):  # leased messages count
        rig.push("small", b"d", batch=4)
    rig.ack("small", taken[0])
    assert not rig.push("small", b"d", batch=4).duplicate, "a refused push is not remembered"


def test_a_full_disk_refuses_pushes_and_takes_what_frees_space(rig: Rig) -> None:
    rig.push("q", b"a", b"b", b"c", batch=1)
    taken = rig.pop("q", 3)
    rig.engine.set_full(True)
    with pytest.raises(StorageFull, match="free-space reserve"):
        rig.push("q", b"d", batch=2)
    with pytest.raises(StorageFull):
        rig.create("other")
    assert rig.push("q", b"a", b"b", b"c", batch=1).duplicate
    assert rig.extend("q", 20_000, taken[0]).done == 1
    assert rig.ack("q", taken[0]).done == 1
    assert rig.nack("q", taken[1]).done == 1
    assert rig.bodies("q") == [b"b"]
    assert rig.purge("q") == 2
    rig.engine.set_full(False)
    assert not rig.push("q", b"d", batch=2).duplicate


def test_a_storage_error_is_not_answered_it_ends_the_node(rig: Rig) -> None:
    rig.push("q", b"a")
    rig.restart()
    body = next(key for key in rig.store._rows if key.startswith(b"b"))
    rig.store.write([(body, None)], sync=True)
    with pytest.raises(StoreDamaged, match=body.hex()):
        rig.engine.handle(wire.Pop("q", 1), (), "someone")
    assert not rig.engine.answers()


# --- a round that is one push -----------------------------------------------------------------


def single_push(rig: Rig, request: wire.Push, *bodies: bytes) -> SinglePush | None:
    return rig.engine.start_single_push(rig.now, request, payload_of(bodies))


def test_a_lone_push_is_listed_after_its_answer(rig: Rig) -> None:
    made = single_push(rig, wire.Push("q", 5, 1, 2), b"a", b"b")
    assert made is not None
    assert made.answer == wire.Pushed(made.answer.partition, 5, 1, 2, False, "disk")
    assert rig.engine.state.queue("q").ready == 0
    rig.store.write(made.changes, sync=True)
    rig.engine.enter(made)
    rig.check()
    assert rig.bodies("q", 10) == [b"a", b"b"]
    assert rig.push("q", b"a", b"b", producer=5, batch=1).duplicate


def test_a_lone_push_that_is_no_plain_one_changes_nothing(rig: Rig) -> None:
    rig.push("q", b"first", producer=5, batch=1)
    rig.pop("q")
    before = dict(rig.store._rows)
    assert single_push(rig, wire.Push("q", 5, 1, 1), b"first") is None, "a duplicate"
    assert single_push(rig, wire.Push("none", 5, 2, 1), b"a") is None, "no such queue"
    assert single_push(rig, wire.Push("q", 5, 2, 2), b"a") is None, "not as many as it says"
    waiting = rig.ask(wire.Pop("q", 1, 10_000))
    assert single_push(rig, wire.Push("q", 5, 2, 1), b"a") is None, "somebody waits for it"
    rig.round()
    assert rig.store._rows == before
    rig.push("q", b"a", producer=5, batch=2)
    assert rig.answer(waiting) is not None


def test_lsns_are_set_aside_and_never_given_out_twice(rig: Rig) -> None:
    def records() -> dict[bytes, bytes]:
        return {key: row for key, row in rig.store._rows.items() if key[:1] == layout.PARTITION}

    for number in range(40):
        rig.push("q", b"%d" % number)
    written = records()
    for number in range(40):
        rig.push("q", b"%d" % number)
    assert records() == written
    given = list(rig.engine.state.lsns)
    for message in rig.pop("q", 100):
        rig.ack("q", message)
    rig.crash()
    for number in range(40):
        rig.push("q", b"again %d" % number)
    lsns = {(m.lent.partition, m.lent.lsn) for m in rig.pop("q", 100)}
    assert all(lsn > given[partition] for partition, lsn in lsns)


def test_more_lsns_are_set_aside_when_they_are_used_up(rig: Rig) -> None:
    state = rig.engine.state
    rig.push("q", b"a")
    partition = rig.pop("q")[0].lent.partition
    state.lsns[partition] = last = state.lsns_aside[partition]
    while state.lsns[partition] == last:
        rig.push("q", b"b")
    assert state.lsns_aside[partition] == last + LSNS_AHEAD
    rig.crash()
    assert rig.engine.state.lsns[partition] == last + LSNS_AHEAD
