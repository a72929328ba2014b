"""Batches: checked by column, split at the limits, nothing lost on the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import errors, limits
from weft.client.producer import batch
from weft.client.producer.batch import Columns
from weft.proto import wire

columns = st.lists(
    st.tuples(
        st.binary(max_size=50),
        st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        st.none() | st.text(max_size=5),
    ),
    max_size=60,
)


@given(columns, st.integers(2, 20), st.integers(120, 400))
def test_batches_hold_everything_in_order_within_the_limits(
    rows: list[tuple[bytes, dict[str, str] | None, str | None]], count_max: int, bytes_max: int
) -> None:
    bodies = [row[0] for row in rows]
    given_columns = Columns(
        bodies,
        batch.check_headers([row[1] for row in rows], len(rows)),
        batch.check_keys([row[2] for row in rows], len(rows)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "BATCH_COUNT_MAX", count_max)
        patch.setattr(limits, "BATCH_BYTES_MAX", bytes_max)
        patch.setattr(batch, "_MARKS_BYTES", 5)
        encoded = list(batch.batches(given_columns))
    payloads = [wire.decode_payload(each.frame) for each in encoded]
    assert [body for payload in payloads for body in payload.bodies] == bodies
    assert [each.messages for each in encoded] == [len(payload.bodies) for payload in payloads]
    assert all(each.messages <= count_max for each in encoded)
    assert all(len(each.frame) <= bytes_max or each.messages == 1 for each in encoded)
    headers = [h or None for p in payloads for h in p.headers or [None] * len(p.bodies)]
    keys = [k for p in payloads for k in p.keys or [None] * len(p.bodies)]
    assert headers == [row[1] or None for row in rows]
    assert [key or None for key in keys] == [row[2] or None for row in rows]


def test_few_batches_are_made_of_many_messages() -> None:
    encoded = list(batch.batches(Columns([b"x" * 128] * 10_000)))
    assert [each.messages for each in encoded] == [4096, 4096, 1808]


def test_bodies_of_all_kinds_become_bytes() -> None:
    assert batch.check_bodies([b"a", bytearray(b"b"), memoryview(b"c")]) == [b"a", b"b", b"c"]
    same = [b"a", b"b"]
    assert batch.check_bodies(same) is same
    assert batch.check_bodies((b"a",)) == [b"a"]


@pytest.mark.parametrize("bodies", [["text"], [b"ok", 5], [None]])
def test_other_bodies_are_refused(bodies: list[object]) -> None:
    with pytest.raises(errors.InvalidArgument, match="each of bodies must be bytes"):
        batch.check_bodies(bodies)  # type: ignore[arg-type]


def test_one_body_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="bodies must be an iterable of bytes"):
        batch.check_bodies(b"abc")  # type: ignore[arg-type]


def test_limits_of_a_message() -> None:
    with pytest.raises(errors.TooLarge, match="bodies"):
        batch.check_bodies([b"", bytes(limits.BODY_BYTES_MAX + 1)])
    with pytest.raises(errors.TooLarge, match="headers"):
        batch.check_headers([{"k": "v" * limits.HEADERS_BYTES_MAX}], 1)
    small = {"k": "v" * (limits.HEADERS_BYTES_MAX // 2)}
    assert batch.check_headers([small] * 4, 4) == [small] * 4
    with pytest.raises(errors.TooLarge, match="key"):
        batch.check_keys(["k" * (limits.KEY_BYTES_MAX + 1)], 1)
    with pytest.raises(errors.InvalidArgument, match="dedup_key"):
        batch.check_dedup_key("")


@pytest.mark.parametrize("headers", [[{"k": 1}], [{1: "v"}], ["text"], [{"k": "\ud800"}]])
def test_headers_of_other_shapes_are_refused(headers: list[object]) -> None:
    with pytest.raises(errors.InvalidArgument, match="headers"):
        batch.check_headers(headers, 1)  # type: ignore[arg-type]


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="2 bodies"):
        batch.check_headers([{"k": "v"}], 2)
    with pytest.raises(errors.InvalidArgument, match="2 bodies"):
        batch.check_keys(["k"], 2)
    with pytest.raises(errors.InvalidArgument, match="keys must be an iterable"):
        batch.check_keys("ab", 2)


@given(
    st.lists(st.one_of(st.binary(max_size=3), st.binary(min_size=300, max_size=301)), max_size=40)
    | st.integers(16, 60).flatmap(
        lambda count: st.lists(st.binary(min_size=4, max_size=4), min_size=count, max_size=count)
    )
)
def test_an_even_batch_is_what_it_would_be_otherwise(bodies: list[bytes]) -> None:
    found = batch.encode_even(list(bodies))
    if len(bodies) >= 16 and len(set(map(len, bodies))) == 1:
        assert found is not None
    if found is not None:
        assert [found] == list(batch.batches(Columns(bodies)))


@pytest.mark.parametrize("odd", ["text", 7, None, [b"x"], {"a": 1}, 1.5])
def test_what_is_not_bytes_is_not_an_even_batch(odd: object) -> None:
    for bodies in ([odd] * 20, [b"four"] * 19 + [odd], [odd] + [b"four"] * 19):
        assert batch.encode_even(bodies) is None  # type: ignore[arg-type]


def test_bytes_that_may_change_are_copied_into_an_even_batch() -> None:
    changing = bytearray(b"abcd")
    found = batch.encode_even([changing, memoryview(b"efgh")] * 10)
    changing[:] = b"wxyz"
    assert found is not None
    assert wire.decode_payload(found.frame).bodies == [b"abcd", b"efgh"] * 10
