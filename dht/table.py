"""ZHT's verbs: insert, lookup, remove, append, compare-and-swap (paper 4, section 4.2.1).

Pure: a table reads through one function and says what is to be written. ZHT keeps the table in
memory and logs it; here values stay in the store, so the table is not bounded by memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from weft import limits
from weft.errors import TooLarge
from weft.persistence import layout
from weft.proto import wire

from . import placement


class Outcome(NamedTuple):
    """The answer, and the value to write: None with `writes` set removes the key."""

    answer: wire.AnyAnswer
    writes: bool = False
    value: bytes | None = None


def place(key: str, partitions: int) -> bytes:
    """Where a key's value is in the store."""
    limits.check_range("key bytes", len(key.encode()), 1, limits.TABLE_KEY_BYTES_MAX)
    return layout.table(placement.of_text(key, partitions), key)


def insert(request: wire.Insert, current: bytes | None) -> Outcome:
    _check_value(request.value)
    return Outcome(wire.Done(), True, request.value)


def lookup(request: wire.Lookup, current: bytes | None) -> Outcome:
    return Outcome(wire.Value(current))


def remove(request: wire.Remove, current: bytes | None) -> Outcome:
    return Outcome(wire.Done(int(current is not None)), current is not None)


def append(request: wire.Append, current: bytes | None) -> Outcome:
    """ZHT's own addition to the usual verbs: many writers extend a value without reading it."""
    value = (current or b"") + request.value
    _check_value(value)
    return Outcome(wire.Done(len(value)), True, value)


def compare_and_swap(request: wire.CompareAndSwap, current: bytes | None) -> Outcome:
    if current != request.old:
        return Outcome(wire.Swapped(False, current))
    if request.new is not None:
        _check_value(request.new)
    return Outcome(wire.Swapped(True, current), True, request.new)


Verb = Callable[..., Outcome]

VERBS: dict[type, Verb] = {
    wire.Insert: insert,
    wire.Lookup: lookup,
    wire.Remove: remove,
    wire.Append: append,
    wire.CompareAndSwap: compare_and_swap,
}


def _check_value(value: bytes) -> None:
    if len(value) > limits.TABLE_VALUE_BYTES_MAX:
        raise TooLarge(
            f"a table value has at most {limits.TABLE_VALUE_BYTES_MAX} bytes, this has {len(value)}"
        )
