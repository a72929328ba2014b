"""The checker of table histories accepts what can happen, and nothing else."""

from __future__ import annotations

import random
from collections import Counter

from weft.proto import wire

from .linearizability import BATCHED, KeyCall, KeyState, Single, _after, linearizable


def call(request: Single, began: float, ended: float, answer: wire.AnyAnswer | None) -> KeyCall:
    if answer is None:
        return KeyCall(request, began)
    return KeyCall(request, began, ended, answer)


def put(
    value: bytes, began: float, ended: float, version: int = 0, ttl_ms: int = 0
) -> KeyCall:  # fmt: skip
    """Version 0: no answer."""
    answer = wire.KeyWritten(True, version) if version else None
    return call(wire.Put("k", value, 1, 1, ttl_ms), began, ended, answer)


def found(value: bytes | None, began: float, ended: float, version: int = 0) -> KeyCall:
    return call(wire.LookupMany([], ["k"]), began, ended, wire.FoundRows([value], [version]))


def test_reads_follow_writes() -> None:
    assert linearizable([put(b"1", 0, 1, 7), found(b"1", 2, 3, 7)])
    assert not linearizable([put(b"1", 0, 1, 7), found(None, 2, 3)])
    assert not linearizable([put(b"1", 0, 1, 7), found(b"2", 2, 3, 7)])
    assert not linearizable([found(b"1", 0, 1, 7), put(b"1", 2, 3, 7)])


def test_concurrent_calls_have_some_order() -> None:
    both = [put(b"1", 0, 9, 7), put(b"2", 0, 9, 8)]
    assert linearizable([*both, found(b"1", 1, 2, 7), found(b"2", 3, 4, 8)])
    assert not linearizable([*both, found(b"2", 1, 2, 8), found(b"1", 3, 4, 7)])


def test_a_call_without_an_answer_has_one_effect_or_none() -> None:
    assert linearizable([put(b"1", 0, 0), found(None, 1, 2)])
    assert linearizable([put(b"1", 0, 0), found(None, 1, 2), found(b"1", 3, 4, 9)])
    assert not linearizable([put(b"1", 0, 0), found(b"1", 1, 2, 9), found(None, 3, 4)])


def test_versions_only_rise() -> None:
    assert not linearizable([put(b"1", 0, 1, 8), put(b"2", 2, 3, 7)])
    assert not linearizable([put(b"1", 0, 1, 8), found(b"1", 2, 3, 9)])


def test_a_row_expires_at_its_time_or_later() -> None:
    insert = put(b"1", 0, 1_000, 7, ttl_ms=10)
    assert linearizable([insert, found(b"1", 50_000, 50_001, 7)])
    assert linearizable([insert, found(None, 10_000, 10_001)])
    assert not linearizable([insert, found(None, 2_000, 9_999)])
    assert not linearizable([insert, found(None, 10_000, 10_001), found(b"1", 10_002, 10_003, 7)])


def test_an_append_twice_is_not_an_append() -> None:
    append = wire.AppendKey("k", b"1", 1, 1)
    once = call(append, 0, 1, wire.KeyWritten(True, 7, 1))
    assert linearizable([once, found(b"1", 2, 3, 7)])
    assert not linearizable([once, found(b"11", 2, 3, 8)])
    assert not linearizable([call(append, 0, 1, wire.KeyWritten(True, 7, 2))])


def test_a_swap_and_a_condition_compare() -> None:
    insert = put(b"1", 0, 1, 7)
    swap = wire.SwapKey("k", b"1", b"2", 1, 2)
    assert linearizable([insert, call(swap, 2, 3, wire.Swapped(True, b"1", 8))])
    assert not linearizable([insert, call(swap, 2, 3, wire.Swapped(False, b"1", 7))])
    removal = wire.RemoveKey("k", 1, 2, if_version=6)
    assert linearizable([insert, call(removal, 2, 3, wire.KeyWritten(False, 7))])
    assert not linearizable([insert, call(removal, 2, 3, wire.KeyWritten(True, 8))])


def test_many_calls_without_an_answer_do_not_multiply() -> None:
    """Each of twelve appends may or may not have happened: 2^12 sets, in any order."""
    untold = [KeyCall(wire.AppendKey("k", b"%d;" % each, 1, each), 0) for each in range(12)]
    told = [put(b"%d" % each, each, each + 1, each + 1) for each in range(12)]
    reads = [found(b"%d" % each, each + 0.9, each + 1.5, each + 1) for each in range(11)]
    assert linearizable([*told, *reads, *untold])
    assert not linearizable([*told, *reads, *untold[:4], found(b"9", 20, 21, 10)])


def test_a_row_without_a_time_to_live_never_expires() -> None:
    """Not even at the unknown end of a call without an answer."""
    calls = [put(b"1", 0, 1, 7), KeyCall(wire.AppendKey("k", b"2", 1, 1), 2)]
    assert linearizable([*calls, found(b"12", 3, 4, 8)])
    assert not linearizable([*calls, found(b"2", 3, 4, 8)])


def test_the_search_agrees_with_all_orders() -> None:
    """The rules that keep the search small lose no order and add none."""
    rng = random.Random(1)
    verdicts = Counter[bool]()
    for _ in range(3000):
        calls = [_any_call(rng) for _ in range(rng.randrange(2, 6))]
        expected = _some_order(calls, KeyState())
        assert linearizable(calls) == expected, calls
        verdicts[expected] += 1
    assert min(verdicts.values()) > 300, verdicts


def _any_call(rng: random.Random) -> KeyCall:
    began = rng.randrange(6)
    ended = began + rng.randrange(1, 5)
    old, new = rng.choices([None, b"1", b"2"], k=2)
    version = rng.choice([BATCHED, 1, 2, 3])
    told = rng.random() < 0.7
    match rng.randrange(5):
        case 0:
            ttl_ms = rng.choice([0, 0, 1])
            request: Single = wire.Put("k", new or b"1", 1, 1, ttl_ms, rng.choice([-1, -1, 0, 1]))
            answer: wire.AnyAnswer = wire.KeyWritten(rng.random() < 0.8, version)
        case 1:
            request = wire.RemoveKey("k", 1, 1)
            answer = wire.KeyWritten(rng.random() < 0.6, max(version, 0))
        case 2:
            request, answer = wire.AppendKey("k", b"1", 1, 1), wire.KeyWritten(True, version, 1)
        case 3:
            request = wire.SwapKey("k", old, new, 1, 1)
            answer = wire.Swapped(rng.random() < 0.6, old, max(version, 0))
        case _:
            request = wire.LookupMany([], ["k"])
            answer = wire.FoundRows([new], [max(version, 0) if new else 0])
    return KeyCall(request, began, ended, answer) if told else KeyCall(request, began)


def _some_order(calls: list[KeyCall], state: KeyState) -> bool:
    """Every order of the calls, without a memo."""
    if all(call.answer is None for call in calls):
        return True
    end = min(call.ended for call in calls)
    return any(
        _some_order(calls[:at] + calls[at + 1 :], after)
        for at, call in enumerate(calls)
        if call.began <= end
        for after in _after(call, state, end)
    )
