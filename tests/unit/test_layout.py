"""Keys and records: round trips, order by number, and detection of damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import StoreDamaged
from weft.persistence import layout, table_layout

PARTITIONS = st.integers(0, 2**16 - 1)
LSNS = st.integers(0, 2**64 - 1)
SLICES = st.integers(0, 2**32 - 1)
QUEUES = st.integers(0, 2**64 - 1)
PRODUCERS = st.integers(0, 2**56 - 1)
BATCHES = st.integers(0, 2**40 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
DEDUPS = st.tuples(PARTITIONS, SLICES, QUEUES, PRODUCERS, BATCHES)
ALL_KINDS = [
    layout.HEAD,
    layout.BODY,
    layout.DEDUP,
    layout.DEDUP_KEY,
    layout.PARTITION,
    layout.QUEUE,
    layout.TABLE,
]


def test_every_kind_is_listed() -> None:
    letters = [
        value for value in vars(layout).values() if isinstance(value, bytes) and len(value) == 1
    ]
    assert len(letters) > 20
    assert sorted(layout.KINDS) == sorted(letters), "`weft doctor --data` verifies these"


@given(PARTITIONS, LSNS)
def test_batch_keys_round_trip(partition: int, lsn: int) -> None:
    assert layout.unpack_batch(layout.head(partition, lsn)) == (partition, lsn)
    assert layout.unpack_batch(layout.body(partition, lsn)) == (partition, lsn)
    assert layout.head(partition, lsn)[1:] == layout.body(partition, lsn)[1:]


@given(DEDUPS)
def test_dedup_keys_round_trip(fields: tuple[int, int, int, int, int]) -> None:
    assert layout.unpack_dedup(layout.dedup(*fields)) == fields


@given(PARTITIONS, SLICES, QUEUES, TEXTS)
def test_dedup_key_keys_round_trip(partition: int, time_slice: int, queue: int, key: str) -> None:
    packed = layout.dedup_key(partition, time_slice, queue, key)
    assert layout.unpack_dedup_key(packed) == (partition, time_slice, queue, key)


@given(st.tuples(PARTITIONS, LSNS), st.tuples(PARTITIONS, LSNS))
def test_batch_keys_sort_as_their_numbers(one: tuple[int, int], two: tuple[int, int]) -> None:
    assert (layout.head(*one) < layout.head(*two)) == (one < two)
    assert (layout.body(*one) < layout.body(*two)) == (one < two)


@given(DEDUPS, DEDUPS)
def test_dedup_keys_sort_as_their_numbers(
    one: tuple[int, int, int, int, int], two: tuple[int, int, int, int, int]
) -> None:
    assert (layout.dedup(*one) < layout.dedup(*two)) == (one < two)


@given(DEDUPS, st.integers(0, 2**32 - 2))
def test_a_slice_range_holds_exactly_the_slices_up_to_it(
    fields: tuple[int, int, int, int, int], time_slice: int
) -> None:
    partition, *rest = fields
    start, stop = layout.slice_range(layout.DEDUP, partition, time_slice)
    assert (start <= layout.dedup(partition, *rest) < stop) == (rest[0] <= time_slice)
    other = (partition + 1) % 2**16
    assert not start <= layout.dedup(other, *rest) < stop


def test_a_kind_range_holds_its_kind_and_no_other() -> None:
    keys = [
        layout.head(2**16 - 1, 2**64 - 1),
        layout.body(0, 0),
        layout.dedup(2**16 - 1, 2**32 - 1, 2**64 - 1, 2**56 - 1, 2**40 - 1),
        layout.dedup_key(0, 0, 0, ""),
        layout.partition(2**16 - 1),
        layout.of_catalogue("orders"),
        table_layout.key(2**16 - 1, "\N{SNOWMAN}"),
    ]
    for kind, own in zip(ALL_KINDS, keys, strict=True):
        start, stop = layout.kind_range(kind)
        assert [key for key in keys if start <= key < stop] == [own]


@given(st.binary(max_size=50), st.binary(max_size=5000))
def test_records_round_trip(key: bytes, data: bytes) -> None:
    assert layout.unseal(key, layout.seal(key, data), "here") == data


@pytest.mark.parametrize("size", [0, 1, 16, 17, 128, 129, 240, 241, 600])
def test_every_single_flipped_bit_is_found(size: int) -> None:
    # The sizes are on both sides of the lengths at which xxh3 changes its method.
    key = layout.body(3, 7)
    record = layout.seal(key, bytes(range(256)) * 3)[: 8 + size]
    record = layout.seal(key, record[8:])
    for bit in range(8 * len(record)):
        flipped = bytearray(record)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreDamaged):
            layout.unseal(key, bytes(flipped), "here")


def test_every_shortened_record_is_found() -> None:
    key = layout.body(3, 7)
    record = layout.seal(key, b"some data")
    for size in range(len(record)):
        with pytest.raises(StoreDamaged):
            layout.unseal(key, record[:size], "here")


@given(PARTITIONS, LSNS, st.integers(0, 2**64 - 1), st.binary(max_size=100))
def test_a_record_under_another_key_is_found(
    partition: int, lsn: int, other: int, data: bytes
) -> None:
    if other == lsn:
        other ^= 1
    record = layout.seal(layout.body(partition, lsn), data)
    with pytest.raises(StoreDamaged):
        layout.unseal(layout.body(partition, other), record, "here")


def test_the_error_says_where_and_what_to_do() -> None:
    key = layout.of_catalogue("orders")
    with pytest.raises(StoreDamaged, match=rf"/data/store at key {key.hex()}.* Restore"):
        layout.unseal(key, layout.seal(key, b"x")[:-1] + b"y", "/data/store")


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(0))
def test_a_record_read_in_two_is_checked(key: bytes, data: bytes, bit: int) -> None:
    record = layout.seal(key, data)
    seal, rest = record[: layout.SEAL_BYTES], record[layout.SEAL_BYTES :]
    assert layout.unseal_parted(key, seal, rest, "here") == data
    flipped = bytearray(record)
    flipped[bit // 8 % len(record)] ^= 1 << bit % 8
    with pytest.raises(StoreDamaged):
        layout.unseal_parted(key, bytes(flipped[:8]), bytes(flipped[8:]), "here")
    with pytest.raises(StoreDamaged):
        layout.unseal_parted(key, record[:3], b"", "here")
