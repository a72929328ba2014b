"""The verbs of the hash table for one key: read the row, apply ``dht.table_verbs``, write it."""

from __future__ import annotations

from typing import Any, Final

from weft import limits
from weft.dht import placement, table_verbs
from weft.errors import InvalidArgument, VersionMismatch
from weft.proto import wire

from . import table_names, table_rows
from .handlers import handles
from .state import EngineState
from .table_state import NamedRecord, TableRow

#: The largest value kept in the record of a swap that was not done.
_FOUND_BYTES_MAX: Final = 4 * limits.KIB


@handles(*table_verbs.transforms.by_request)
def table(state: EngineState, request: Any, to: object) -> None:
    """A verb of version 0.1.0. A key without a version stays without one: see ``table_rows``."""
    key: str = request.key
    partition = table_verbs.place(key, state.partitions)
    row = table_rows.find(state, partition, key)
    transform = table_verbs.transforms.by_request[type(request)]
    outcome = transform(request, None if row is None else row.value)
    changes = outcome.writes and not (outcome.value is None and row is None)
    if changes and outcome.value is None:
        assert row is not None, "there is a key to remove"
        table_rows.remove(state, partition, key, row)
    elif outcome.value is not None:
        state.check_space()
        if row is None or not row.version:
            table_rows.put_bare(state, partition, key, outcome.value)
        else:
            expires = row.expires if isinstance(request, wire.Append) else 0
            table_rows.put(state, partition, key, outcome.value, expires)
    # A read is valid only while this node still leads the partition; the members confirm that
    # without a write.
    state.answer(to, outcome.answer, (), {partition}, sure=not changes)


@handles(*table_verbs.writes.by_request)
def write(state: EngineState, request: Any, to: object) -> None:
    """A named write: executed once, whatever the number of its attempts."""
    key: str = request.key
    partition = table_verbs.place(key, state.partitions)
    check_not_own(key)
    table_names.check(request.producer, request.number)
    known = table_names.find(state, partition, request.producer, request.number)
    if known is not None:  # the first attempt may be uncommitted: the answer waits for the commit
        state.answer(to, _repeated(state, request, known), (), {partition})
        return
    row = table_rows.find(state, partition, key)
    current, version = (None, 0) if row is None else (row.value, row.version)
    decide = table_verbs.writes.by_request[type(request)]
    done, value = decide(request, current, version)
    if not done or (value is None and row is None):
        state.barriers.add(partition)
        kept = current if current is not None and len(current) <= _FOUND_BYTES_MAX else None
        record = NamedRecord(version, 0, b"", done, kept)
        answer = _answer(request, record, current)
    else:
        if value is not None:
            state.check_space()
        version = change(state, partition, request, row, value)
        record = NamedRecord(version, len(value or b""))
        answer = _answer(request, record, current)
    table_names.add(state, request.producer, request.number, {partition: record})
    state.answer(to, answer, (), {partition})


def change(
    state: EngineState, partition: int, request: Any, row: TableRow | None, value: bytes | None
) -> int:
    """Carries out a decided write; returns the version."""
    if value is not None:
        expires = _expires(state, partition, request, row)
        return table_rows.put(state, partition, request.key, value, expires)
    assert row is not None, "there is a key to remove"
    return table_rows.remove(state, partition, request.key, row)


def check_not_own(key: str) -> None:
    if key.startswith(table_rows.OWN):
        raise InvalidArgument(f"keys that begin with {key[:9]!r} are the cluster's own")


def _expires(state: EngineState, partition: int, request: Any, row: TableRow | None) -> int:
    if isinstance(request, wire.Put):
        ttl_us = request.ttl_ms * 1000
        return table_rows.clock(state, partition) + ttl_us if ttl_us else 0
    return row.expires if row is not None and isinstance(request, wire.AppendKey) else 0


def _answer(request: Any, record: NamedRecord, found: bytes | None) -> wire.AnyAnswer:
    """The answer of a write that found this value."""
    if not isinstance(request, wire.SwapKey):
        return wire.KeyWritten(record.done, record.version, record.size)
    gone = record.done and request.new is None
    return wire.Swapped(record.done, found, 0 if gone else record.version)


def _repeated(state: EngineState, request: Any, record: NamedRecord) -> wire.AnyAnswer:
    """The first answer again. A swap that was done had found the old value; if it was not done, the
    record has the value found, or the row still has it, unless it was large and has changed."""
    found = request.old if record.done and isinstance(request, wire.SwapKey) else record.current
    if found is None and record.version and not record.done and isinstance(request, wire.SwapKey):
        partition = placement.of_text(request.key, state.partitions)
        row = table_rows.find(state, partition, request.key)
        if row is None or row.version != record.version:
            raise VersionMismatch(
                f"the swap of {request.key[:100]!r} was not done; the value that it found was too "
                "large to keep, and has changed: look it up"
            )
        found = row.value
    return _answer(request, record, found)
