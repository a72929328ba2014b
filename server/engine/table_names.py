"""Named writes of the hash table: a resent write is executed once and gets the first result.

A write is named by (producer, number), chosen by its caller before sending. The partition stores
the result of the write under this name, in the same log entry as the change, so a resend is
recognised across a failover too. A write that changed nothing is remembered as well: otherwise an
attempt that arrives late, after the answer of another attempt, could still have an effect.

Memory has the names; the results stay in the store.

Names are kept for `TABLE_NAME_MS`, in slices of time as pushes are (``dedup``), and at most
`TABLE_NAMES_MAX` per partition.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from itertools import repeat
from typing import Final

import msgspec

from weft import limits
from weft.errors import InvalidArgument
from weft.ids import BATCH_BITS, PRODUCER_BITS
from weft.persistence import table_layout

from .dedup import expiry_slice
from .state import EngineState
from .table_state import NamedRecord

#: Records removed per round.
_STEP: Final = 500
_PRODUCER_MAX: Final = (1 << PRODUCER_BITS) - 1
_NUMBER_MAX: Final = (1 << BATCH_BITS) - 1


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(NamedRecord).decode


def check(producer: int, number: int) -> None:
    """Number 0 stands for a write without a name: a caller that never resends it."""
    if not (0 <= producer <= _PRODUCER_MAX and 0 <= number <= _NUMBER_MAX):
        limits.check_range("producer", producer, 0, _PRODUCER_MAX)
        limits.check_range("number", number, 0, _NUMBER_MAX)


def has(state: EngineState, partition: int, producer: int, number: int) -> bool:
    """True if the partition has executed the write."""
    known = state.table.names.get(partition)
    return bool(number) and known is not None and producer << BATCH_BITS | number in known


def find(
    state: EngineState, partition: int, producer: int, number: int, *, commit: bool = False
) -> NamedRecord | None:
    """The result of an executed write, or commit. Raises InvalidArgument if the name was used for
    the other one: the caller would take it for its own."""
    if not has(state, partition, producer, number):
        return None
    expires = state.table.names[partition][producer << BATCH_BITS | number]
    end = table_layout.name_end(expires, producer, number)
    data = state.overlay.read(state.table.name_starts[partition] + end)
    assert data is not None, "a name in memory has its record in the store"
    known = _decode(data)
    if known.commit is not commit:
        first, second = ("commit", "table write") if known.commit else ("table write", "commit")
        raise InvalidArgument(
            f"the name ({producer}, {number}) is that of an earlier {first}, so this {second} was "
            "not executed: give each commit and each table write of a producer its own number"
        )
    return known


def add(state: EngineState, producer: int, number: int, results: Mapping[int, NamedRecord]) -> None:
    """Remembers a write by its results, one per partition."""
    if not number:
        return
    names = state.table.names
    expires = expiry_slice(state.now, limits.TABLE_NAME_MS)
    name = producer << BATCH_BITS | number
    for partition in results:
        known = names.get(partition)
        if known is None:
            known = names[partition] = {}
        elif len(known) >= limits.TABLE_NAMES_MAX:
            _drop(state, partition, next(iter(known)))
        known[name] = expires
    end = table_layout.name_end(expires, producer, number)
    if len(results) == 1:  # the usual single write
        ((partition, record),) = results.items()
        state.overlay.put(state.table.name_starts[partition] + end, _encode(record))
        return
    state.overlay.put_records(
        table_layout.records(
            state.table.name_starts, results, repeat(end), map(_encode, results.values())
        )
    )


def load(state: EngineState, partition: int) -> None:
    known: dict[int, int] = {}
    for key, _ in state.overlay.scan(*table_layout.names(partition)):
        expires, producer, number = table_layout.unpack_name(key)
        known[producer << BATCH_BITS | number] = expires
    if known:
        state.table.names[partition] = known


def expire(state: EngineState) -> Generator[None]:
    """Drops the names of ended time slices."""
    current, count = expiry_slice(state.now, 0), 0
    for partition in list(state.table.names):
        while known := state.table.names.get(partition):
            name = next(iter(known))
            if known[name] >= current:
                break
            _drop(state, partition, name)
            count += 1
            if count % _STEP == 0:
                yield


def _drop(state: EngineState, partition: int, name: int) -> None:
    expires = state.table.names[partition].pop(name)
    producer, number = name >> BATCH_BITS, name & ((1 << BATCH_BITS) - 1)
    end = table_layout.name_end(expires, producer, number)
    state.overlay.delete(state.table.name_starts[partition] + end)
