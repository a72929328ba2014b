"""The public behaviour: items of both kinds, full and empty answers, close and drain, limits."""

from __future__ import annotations

import random
import threading
import time

import pytest

from weft.errors import InvalidArgument, TooLarge, UsageError
from weft.mpsc import (
    ALGORITHMS,
    Dequeuer,
    Enqueuer,
    InProcessWindow,
    Segments,
    Shape,
    algorithm_named,
)
from weft.mpsc.tree import check_stamp

MANY = [name for name in ALGORITHMS if name != "spsc"]


def make(name: str, shape: Shape) -> tuple[list[Enqueuer], Dequeuer]:
    made = algorithm_named(name)
    segments = Segments([made.segment_bytes(shape, rank) for rank in range(shape.ranks)])
    windows = [InProcessWindow(segments, rank) for rank in range(shape.ranks)]
    dequeuer = made.dequeuer(windows[shape.dequeuer], shape)
    ranks = [rank for rank in range(shape.ranks) if rank != shape.dequeuer]
    return [made.enqueuer(windows[rank], shape) for rank in ranks], dequeuer


@pytest.mark.parametrize("name", ALGORITHMS)
def test_items_of_any_length_come_back_as_they_were(name: str) -> None:
    (enqueuer,), dequeuer = make(name, Shape(2, capacity=8, item_bytes=9, variable=True))
    items = [b"", b"a", b"\0\0", b"123456789", b"tail\0\0"]
    assert enqueuer.enqueue(items[0])
    assert enqueuer.enqueue_many(items[1:]) == 4
    assert dequeuer.dequeue() == items[0]
    assert [dequeuer.dequeue(), *dequeuer.dequeue_many(10)] == items[1:]
    with pytest.raises(TooLarge, match="item_bytes=9"):
        enqueuer.enqueue(bytes(10))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_fixed_items_have_one_size(name: str) -> None:
    (enqueuer,), dequeuer = make(name, Shape(2, capacity=4, item_bytes=3))
    assert enqueuer.enqueue(b"\0b\0")
    assert dequeuer.dequeue() == b"\0b\0"
    with pytest.raises(InvalidArgument, match="variable=True"):
        enqueuer.enqueue_many([b"abc", b"ab"])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_full_is_an_answer(name: str) -> None:
    (enqueuer,), dequeuer = make(name, Shape(2, capacity=3, item_bytes=1))
    assert enqueuer.enqueue(b"a")
    assert enqueuer.enqueue_many([b"b", b"c", b"d", b"e"]) == 2
    assert not enqueuer.enqueue(b"d")
    assert enqueuer.enqueue_many([b"d"]) == 0
    assert dequeuer.dequeue() == b"a"
    assert enqueuer.enqueue(b"d")
    assert dequeuer.dequeue_many(9) + dequeuer.dequeue_many(9) == [b"b", b"c", b"d"]
    assert dequeuer.dequeue() is None
    assert dequeuer.dequeue_many(9) == []


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rings_wrap_around(name: str) -> None:
    (enqueuer,), dequeuer = make(name, Shape(2, capacity=5, item_bytes=4))
    sent = [number.to_bytes(4, "big") for number in range(300)]
    got: list[bytes] = []
    dice = random.Random(name)
    at = 0
    while len(got) < len(sent):
        at += enqueuer.enqueue_many(sent[at : at + dice.randint(1, 6)])
        got += dequeuer.dequeue_many(dice.randint(1, 4))
    assert got == sent


@pytest.mark.parametrize("name", MANY)
def test_sequential_enqueues_come_out_in_their_order(name: str) -> None:
    enqueuers, dequeuer = make(name, Shape(5, dequeuer=2, capacity=256, item_bytes=2))
    dice = random.Random(1)
    sent = [number.to_bytes(2, "big") for number in range(120)]
    for item in sent:
        assert dice.choice(enqueuers).enqueue(item)
    assert dequeuer.backlog() == 120
    got = [dequeuer.dequeue() for _ in range(20)] + dequeuer.dequeue_many(30)
    assert dequeuer.backlog() == 70
    while items := dequeuer.dequeue_many(33):
        got += items
    assert got == sent


@pytest.mark.parametrize("name", MANY)
def test_drained_after_all_have_closed_and_all_was_taken(name: str) -> None:
    enqueuers, dequeuer = make(name, Shape(3, capacity=4, item_bytes=1))
    enqueuers[0].enqueue(b"x")
    enqueuers[0].close()
    enqueuers[0].close()
    assert dequeuer.waiting_for() == [2]
    assert dequeuer.dequeue() == b"x"
    assert not dequeuer.drained(), "one may still enqueue"
    dequeuer.abandon(2)
    assert dequeuer.drained()
    with pytest.raises(UsageError, match="closed"):
        enqueuers[0].enqueue(b"y")


@pytest.mark.parametrize("name", MANY)
def test_threads(name: str) -> None:
    """Three real threads enqueue, one dequeues: each enqueuer's items arrive once and in order."""
    enqueuers, dequeuer = make(name, Shape(4, capacity=16, item_bytes=3))

    def produce(number: int, enqueuer: Enqueuer) -> None:
        for serial in range(400):
            item = bytes((number,)) + serial.to_bytes(2, "big")
            while not enqueuer.enqueue(item):
                time.sleep(0)
        enqueuer.close()

    threads = [
        threading.Thread(target=produce, args=pair, daemon=True) for pair in enumerate(enqueuers)
    ]
    for thread in threads:
        thread.start()
    got: list[bytes] = []
    while not dequeuer.drained():
        got += dequeuer.dequeue_many(7)
    for number in range(3):
        serials = [int.from_bytes(item[1:], "big") for item in got if item[0] == number]
        assert serials == list(range(400))


def test_shapes_out_of_range_are_refused() -> None:
    for wrong in (
        {"ranks": 1},
        {"ranks": 2, "dequeuer": 2},
        {"ranks": 2, "capacity": 0},
        {"ranks": 2, "item_bytes": 0},
        {"ranks": 2, "capacity": 2**18, "item_bytes": 2**20},
    ):
        with pytest.raises(InvalidArgument):
            Shape(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="2 ranks"):
        ALGORITHMS["spsc"].segment_bytes(Shape(3), 0)
    with pytest.raises(InvalidArgument, match="slotqueue"):
        algorithm_named("slowqueue")


def test_a_stamp_that_does_not_fit_is_refused_before_it_breaks_the_order() -> None:
    assert check_stamp(6, stamp_max=7) == 6
    with pytest.raises(TooLarge, match="open a new queue"):
        check_stamp(7, stamp_max=7)


def test_the_tree_queues_refuse_to_enqueue_past_their_last_stamp() -> None:
    for name in ("dltqueue", "dltqueue2"):
        shape = Shape(2, capacity=4, item_bytes=1)
        made = ALGORITHMS[name]
        segments = Segments([made.segment_bytes(shape, rank) for rank in range(2)])
        dequeuer = made.dequeuer(InProcessWindow(segments, 0), shape)
        enqueuer = made.enqueuer(InProcessWindow(segments, 1), shape)
        segments.words[0][0] = 2**43 - 2
        assert enqueuer.enqueue(b"l")
        with pytest.raises(TooLarge, match="stamps"):
            enqueuer.enqueue(b"m")
        assert dequeuer.dequeue() == b"l"
