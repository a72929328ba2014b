"""Batches of the hash table: insert_many, lookup_many, remove_many.

No step of a batch costs a Python call per key, beyond a few of built-in functions: hash, seal,
concatenate. A batch is atomic in each partition: its changes of a partition are one log entry,
together with the batch's name (``table_names``), so a resend skips the partitions that have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import add, itemgetter
from typing import Final, cast

from weft import limits
from weft.dht import placement
from weft.errors import InvalidArgument, TooLarge
from weft.persistence import table_layout
from weft.proto import wire

from . import table_names, table_rows
from .handlers import handles
from .state import EngineState
from .table import check_not_own
from .table_state import CachedRow, NamedRecord, TableRow, head_of

_partition_of: Final = itemgetter(0)
_expires_of: Final = itemgetter(2)


@handles(wire.InsertMany)
def insert_many(state: EngineState, request: wire.InsertMany, to: object) -> None:
    keys, values = request.keys, request.values
    if len(keys) != len(values):
        raise InvalidArgument(f"{len(keys)} keys have {len(values)} values")
    raws, size = _checked(keys)
    size += _check_values(values)
    limits.check_range("ttl_ms", request.ttl_ms, 0, limits.TABLE_TTL_MS_MAX)
    numbers, done = _placed(state, request, raws)
    state.check_space()
    places = set(numbers)
    if done:  # resent: some partitions have executed the batch already
        kept = [number not in done for number in numbers]
        numbers, keys = list(compress(numbers, kept)), list(compress(keys, kept))
        raws, values = list(compress(raws, kept)), list(compress(values, kept))
    _insert(state, request, numbers, keys, raws, values, size)
    state.answer(to, wire.KeysWritten([True] * len(request.keys)), (), places)


def _insert(
    state: EngineState, request: wire.InsertMany, numbers: Sequence[int], keys: Sequence[str],
    raws: Sequence[bytes], values: Sequence[bytes], size: int,
) -> None:  # fmt: skip
    table, ttl_us = state.table, request.ttl_ms * 1000
    versions = {number: state.next_lsn(number) for number in dict.fromkeys(numbers)}
    expiries = dict.fromkeys(versions, 0)
    if ttl_us:
        expiries = {number: table_rows.clock(state, number) + ttl_us for number in versions}
        table_rows.will_expire(state, expiries, numbers, raws)
    heads = {number: head_of(version, expiries[number]) for number, version in versions.items()}
    data = map(add, map(heads.__getitem__, numbers), values)
    state.overlay.put_records(table_layout.records(table.starts, numbers, raws, data))
    if not table.with_old_rows.isdisjoint(versions):
        for number, key in zip(numbers, keys, strict=True):
            if number in table.with_old_rows:
                state.overlay.delete(table_layout.key(number, key))
    columns = map(versions.__getitem__, numbers), map(expiries.__getitem__, numbers)
    table.cache_many(keys, zip(numbers, *columns, values, strict=True), size)
    if not table.histories.keys().isdisjoint(versions):
        for number, key, value in zip(numbers, keys, values, strict=True):
            table.note(number, versions[number], key, value)
    records = {number: NamedRecord(version) for number, version in versions.items()}
    table_names.add(state, request.producer, request.number, records)


@handles(wire.LookupMany)
def lookup_many(state: EngineState, request: wire.LookupMany, to: object) -> None:
    _check_count(request.keys)
    rows = _cached(state, request)
    if rows is None:
        places, found = _found(state, request)
        numbers = set(places)
        values = [None if row is None else row.value for row in found]
        versions = [0 if row is None else row.version for row in found]
    else:
        columns = list(zip(*rows, strict=True))
        numbers, versions, values = set(columns[0]), list(columns[1]), list(columns[3])
    size = sum(map(len, filter(None, values)))
    if size > limits.TABLE_BATCH_BYTES_MAX:
        raise TooLarge(
            f"the values have {size} bytes, an answer has at most {limits.TABLE_BATCH_BYTES_MAX}: "
            "look up fewer keys at once"
        )
    state.answer(to, wire.FoundRows(values, versions), (), numbers, sure=True)


def _cached(state: EngineState, request: wire.LookupMany) -> list[CachedRow] | None:
    """The rows, if all are in the cache, on the partitions that the request names, and none can
    have expired."""
    rows = state.table.cached_many(request.keys)
    if None in rows:
        return None
    found = cast(list[CachedRow], rows)
    if state.table.expiring and any(map(_expires_of, found)):
        return None
    named = _numbers(state, request)
    return found if not named or {*map(_partition_of, found)}.issubset(named) else None


def _found(
    state: EngineState, request: wire.LookupMany
) -> tuple[list[int], list[TableRow | None]]:  # fmt: skip
    """The partition and the row of each key."""
    keys = request.keys
    numbers, _ = _placed(state, request, _checked(keys)[0])
    find = table_rows.find
    return numbers, [find(state, number, key) for number, key in zip(numbers, keys, strict=True)]


@handles(wire.RemoveMany)
def remove_many(state: EngineState, request: wire.RemoveMany, to: object) -> None:
    keys = request.keys
    raws, _ = _checked(keys)
    numbers, done = _placed(state, request, raws)
    removed: dict[int, bytearray] = {number: bytearray() for number in numbers}
    versions: dict[int, int] = {}
    for number, key in zip(numbers, keys, strict=True):
        if number in done:
            continue
        row = table_rows.find(state, number, key)
        removed[number].append(row is not None)
        if row is not None:
            versions[number] = table_rows.remove(state, number, key, row)
    records = {
        number: NamedRecord(versions.get(number, 0), 0, bytes(bits))
        for number, bits in removed.items()
        if number not in done
    }
    table_names.add(state, request.producer, request.number, records)
    state.barriers |= removed.keys() - versions.keys()
    flags = {number: iter(bits) for number, bits in removed.items()}
    for number in done:
        known = table_names.find(state, number, request.producer, request.number)
        flags[number] = iter(known.removed if known is not None else b"")
    answer = wire.KeysWritten([bool(next(flags[number], 0)) for number in numbers])
    state.answer(to, answer, (), set(numbers))


def _check_count(keys: Sequence[str]) -> None:
    limits.check_range("the number of keys", len(keys), 1, limits.TABLE_BATCH_KEYS_MAX)


def _checked(keys: Sequence[str]) -> tuple[list[bytes], int]:
    """The encoded keys and their bytes. Raises InvalidArgument for a key that is not allowed."""
    _check_count(keys)
    raws = [key.encode() for key in keys]
    if b"" in raws or max(map(len, raws)) > limits.TABLE_KEY_BYTES_MAX:
        for key, raw in zip(keys, raws, strict=True):
            limits.check_range(f"the bytes of key {key[:100]!r}", len(raw), 1,
                               limits.TABLE_KEY_BYTES_MAX)  # fmt: skip
    if len(set(raws)) != len(raws):
        raise InvalidArgument("a batch names each key once")
    joined = b"".join(raws)
    if 0 in joined:
        for key in keys:
            check_not_own(key)
    return raws, len(joined)


def _check_values(values: Sequence[bytes]) -> int:
    sizes = list(map(len, values))
    if max(sizes) > limits.TABLE_VALUE_BYTES_MAX:
        raise TooLarge(
            f"a table value has at most {limits.TABLE_VALUE_BYTES_MAX} bytes, one of these has "
            f"{max(sizes)}"
        )
    return sum(sizes)


def _numbers(
    state: EngineState, request: wire.InsertMany | wire.LookupMany | wire.RemoveMany
) -> list[int]:
    """The partitions that a request names."""
    for number in request.partitions:
        limits.check_range("partition", number, 0, state.partitions - 1)
    return request.partitions


def _placed(
    state: EngineState,
    request: wire.InsertMany | wire.LookupMany | wire.RemoveMany,
    raws: Sequence[bytes],
) -> tuple[list[int], set[int]]:
    """The partition of each key, and the partitions that have executed the batch before."""
    numbers = placement.of_keys(raws, state.partitions)
    distinct = set(numbers)
    named = _numbers(state, request)
    if named and not distinct.issubset(named):
        raise InvalidArgument("a key is in none of the partitions that the request names")
    if isinstance(request, wire.LookupMany):
        return numbers, set()
    producer, number = request.producer, request.number
    table_names.check(producer, number)
    done = {each for each in distinct if table_names.has(state, each, producer, number)}
    for each in done:
        table_names.find(state, each, producer, number)
    return numbers, done
