"""The checkers are right: against each other, and on histories with a known verdict."""

from __future__ import annotations

import random

from tests.mpsc.history import Dequeue, Enqueue, Rules, linearizable, violation

A, B, C = b"\0a", b"\1b", b"\2c"
WIDE = Rules(capacity=100)


def enq(actor: int, value: bytes, began: float, ended: float, taken: int | None = 1) -> Enqueue:
    return Enqueue(actor, (value,), began, ended, taken)


def deq(began: float, ended: float, *values: bytes) -> Dequeue:
    return Dequeue(9, values, began, ended)


def test_known_verdicts() -> None:
    apart = [enq(0, A, 1, 2), enq(1, B, 3, 4)]
    together = [enq(0, A, 1, 4), enq(1, B, 2, 3)]
    assert linearizable(apart, [deq(5, 6, A), deq(7, 8, B)], WIDE)
    assert not linearizable(apart, [deq(5, 6, B), deq(7, 8, A)], WIDE), "order"
    assert linearizable(together, [deq(5, 6, B), deq(7, 8, A)], WIDE)
    assert not linearizable(apart, [deq(5, 6, A), deq(7, 8, A)], WIDE), "repeat"
    assert not linearizable(apart, [deq(5, 6, C)], WIDE), "fresh"
    assert not linearizable(apart, [deq(0, 0.5, A)], WIDE), "before it was enqueued"
    assert not linearizable(apart, [deq(5, 6)], WIDE), "witness: not empty"
    assert linearizable(apart, [deq(2.5, 6, A), deq(7, 8, B)], WIDE)
    assert not linearizable(apart, [deq(2.5, 3.5), deq(7, 8, A)], WIDE)
    assert linearizable(apart, [deq(1.5, 3.5), deq(7, 8, A)], WIDE), "empty before A took effect"


def test_the_dead_may_or_may_not_have_enqueued() -> None:
    dead = [Enqueue(0, (A,), 1.0)]
    assert linearizable(dead, [deq(5, 6)], WIDE)
    assert linearizable(dead, [deq(5, 6), deq(7, 8, A)], WIDE)


def test_full_needs_a_reason() -> None:
    rules = Rules(capacity=1)
    first = enq(0, A, 1, 2)
    refused = enq(0, b"\0b", 3, 4, taken=0)
    assert linearizable([first, refused], [deq(5, 6, A)], rules)
    assert not linearizable([first, refused], [deq(2.1, 2.2, A)], rules), "it was empty again"
    assert not linearizable([first, enq(0, b"\0b", 3, 4)], [deq(5, 6, A)], rules), "no room"


def test_both_judges_agree_on_random_histories() -> None:
    verdicts = {True: 0, False: 0}
    for seed in range(6000):
        enqueues, dequeues = _random_history(random.Random(seed))
        exact = linearizable(enqueues, dequeues, WIDE)
        assert exact == (violation(enqueues, dequeues) is None), (enqueues, dequeues)
        verdicts[exact] += 1
    assert min(verdicts.values()) > 500, "both verdicts must be common"


def _random_history(dice: random.Random) -> tuple[list[Enqueue], list[Dequeue]]:
    """Random times; the order of the dequeued values sometimes matches the times."""
    enqueues: list[Enqueue] = []
    for actor in range(dice.randint(1, 3)):
        at = dice.uniform(0, 4)
        for serial in range(dice.randint(1, 2)):
            ended = at + dice.uniform(0, 4)
            values = tuple(bytes((actor, 2 * serial + n)) for n in range(dice.randint(1, 2)))
            enqueues.append(Enqueue(actor, values, at, ended, len(values)))
            at = ended + dice.uniform(0.01, 2)
    values_in_order = [
        value
        for call in sorted(enqueues, key=lambda call: dice.uniform(call.began, call.ended))
        for value in call.values
    ]
    if dice.random() < 0.3:
        dice.shuffle(values_in_order)
    dequeues: list[Dequeue] = []
    at = dice.uniform(0, 6)
    while values_in_order and dice.random() < 0.9:
        ended = at + dice.uniform(0, 3)
        count = 0 if dice.random() < 0.15 else dice.randint(1, 2)
        dequeues.append(Dequeue(9, tuple(values_in_order[:count]), at, ended))
        values_in_order = values_in_order[count:]
        at = ended + dice.uniform(0.01, 2)
    return enqueues, dequeues
