"""ZHT's verbs: insert, lookup, remove, append, compare-and-swap."""

from __future__ import annotations

import pytest

from tests.engine.rig import Asked, Rig
from weft import limits
from weft.errors import InvalidArgument, StorageFull, TooLarge
from weft.proto import wire


def lookup(rig: Rig, key: str) -> bytes | None:
    answer = rig.call(wire.Lookup(key))
    assert isinstance(answer, wire.Value)
    return answer.value


def swap(rig: Rig, key: str, old: bytes | None, new: bytes | None) -> wire.Swapped:
    answer = rig.call(wire.CompareAndSwap(key, old, new))
    assert isinstance(answer, wire.Swapped)
    return answer


def test_what_was_inserted_is_found(rig: Rig) -> None:
    assert lookup(rig, "k") is None
    assert rig.call(wire.Insert("k", b"v")) == wire.Done()
    rig.call(wire.Insert("other", b"w"))
    assert lookup(rig, "k") == b"v"
    rig.call(wire.Insert("k", b"v2"))
    rig.crash()
    assert (lookup(rig, "k"), lookup(rig, "other")) == (b"v2", b"w")


def test_an_empty_value_is_a_value(rig: Rig) -> None:
    rig.call(wire.Insert("k", b""))
    assert lookup(rig, "k") == b""
    assert rig.call(wire.Remove("k")) == wire.Done(1)


def test_remove_says_whether_it_was_there(rig: Rig) -> None:
    assert rig.call(wire.Remove("k")) == wire.Done(0)
    rig.call(wire.Insert("k", b"v"))
    assert rig.call(wire.Remove("k")) == wire.Done(1)
    rig.crash()
    assert lookup(rig, "k") is None


def test_append_makes_and_extends_and_says_the_length(rig: Rig) -> None:
    assert rig.call(wire.Append("k", b"one")) == wire.Done(3)
    assert rig.call(wire.Append("k", b"")) == wire.Done(3)
    assert rig.call(wire.Append("k", b",two")) == wire.Done(7)
    assert lookup(rig, "k") == b"one,two"


def test_compare_and_swap(rig: Rig) -> None:
    assert swap(rig, "k", b"x", b"y") == wire.Swapped(False, None)
    assert swap(rig, "k", None, b"a") == wire.Swapped(True, None)
    assert swap(rig, "k", None, b"b") == wire.Swapped(False, b"a")
    assert swap(rig, "k", b"a", b"b") == wire.Swapped(True, b"a")
    assert swap(rig, "k", b"a", None) == wire.Swapped(False, b"b")
    assert swap(rig, "k", b"b", None) == wire.Swapped(True, b"b")
    assert swap(rig, "k", None, None) == wire.Swapped(True, None)
    assert lookup(rig, "k") is None


def test_an_empty_value_is_not_an_absent_one(rig: Rig) -> None:
    rig.call(wire.Insert("k", b""))
    assert swap(rig, "k", None, b"x") == wire.Swapped(False, b"")
    assert swap(rig, "k", b"", b"x").swapped


def test_one_round_sees_its_own_writes(rig: Rig) -> None:
    answers = rig.round(
        Asked(wire.CompareAndSwap("k", None, b"1"), (), 1),
        Asked(wire.CompareAndSwap("k", None, b"2"), (), 2),
        Asked(wire.Append("k", b"+"), (), 3),
        Asked(wire.Lookup("k"), (), 4),
        Asked(wire.Remove("k"), (), 5),
        Asked(wire.Lookup("k"), (), 6),
    )
    assert [each.answer for each in answers] == [
        wire.Swapped(True, None),
        wire.Swapped(False, b"1"),
        wire.Done(2),
        wire.Value(b"1+"),
        wire.Done(1),
        wire.Value(None),
    ]


def test_keys_have_bounds(rig: Rig) -> None:
    most = limits.TABLE_KEY_BYTES_MAX
    for key in ("", "k" * (most + 1), "é" * (most // 2 + 1)):
        for request in (wire.Insert(key, b"v"), wire.Lookup(key), wire.Remove(key),
                        wire.Append(key, b"v"), wire.CompareAndSwap(key, None, b"v")):  # fmt: skip
            with pytest.raises(InvalidArgument, match="key bytes"):
                rig.call(request)
    rig.call(wire.Insert("é" * (most // 2), b"v"))
    assert lookup(rig, "é" * (most // 2)) == b"v"


def test_values_have_a_largest_size(rig: Rig) -> None:
    most = limits.TABLE_VALUE_BYTES_MAX
    rig.call(wire.Insert("k", b"v" * most))
    for request in (wire.Insert("k", b"v" * (most + 1)), wire.Append("k", b"v"),
                    wire.CompareAndSwap("k", b"v" * most, b"v" * (most + 1))):  # fmt: skip
        with pytest.raises(TooLarge, match=str(most)):
            rig.call(request)
    assert lookup(rig, "k") == b"v" * most


def test_a_full_disk_refuses_what_takes_space(rig: Rig) -> None:
    rig.call(wire.Insert("k", b"v"))
    rig.engine.set_full(True)
    for request in (wire.Insert("n", b"v"), wire.Append("k", b"v"),
                    wire.CompareAndSwap("k", b"v", b"w")):  # fmt: skip
        with pytest.raises(StorageFull):
            rig.call(request)
    assert lookup(rig, "k") == b"v"
    assert swap(rig, "k", b"x", b"y") == wire.Swapped(False, b"v"), "it would not have written"
    assert swap(rig, "k", b"v", None).swapped
    assert rig.call(wire.Remove("k")) == wire.Done(0)


@pytest.mark.parametrize(
    ("request_", "sure"),
    [
        (wire.Lookup("absent"), True),
        (wire.Lookup("key"), True),
        (wire.Remove("absent"), True),
        (wire.CompareAndSwap("key", b"other", b"new"), True),
        (wire.CompareAndSwap("absent", None, None), True),
        (wire.Insert("key", b"new"), False),
        (wire.Remove("key"), False),
    ],
)
def test_an_answer_without_a_change_is_confirmed_and_writes_nothing(
    rig: Rig, request_: wire.AnyRequest, sure: bool
) -> None:
    """On several nodes a read costs a confirmation of the lead, not an entry of the log."""
    rig.call(wire.Insert("key", b"value"))
    engine = rig.engine
    engine.begin(rig.now + 1)
    engine.handle(request_, (), "test")
    assert bool(engine.end()) is not sure
    assert not engine.has_barriers
    (answered,) = engine.answers()
    assert (answered.sure, len(answered.rests_on)) == (sure, 1)
