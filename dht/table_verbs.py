"""ZHT's verbs: insert, lookup, remove, append, compare-and-swap (paper 4, section 4.2.1).

Pure: a verb gets the current value and returns the value to write. ZHT keeps the table in memory
and in a log; here values stay in the store, so memory does not bound the table.

`transforms` has the verbs of version 0.1.0. `writes` has the named writes of one key, which know
versions and are executed once however often they are sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from weft import limits
from weft.errors import TooLarge
from weft.proto import wire
from weft.proto.handlers import Handlers

from . import placement


class TableResult(NamedTuple):
    """The answer, and the value to write. With `writes` set, the value None removes the key."""

    answer: wire.AnyAnswer
    writes: bool = False
    value: bytes | None = None


#: The verbs, by request: each gets the request and the current value.
transforms: Final = Handlers[Callable[..., TableResult]]()


def place(key: str, partitions: int) -> int:
    """The partition of a table key. Raises InvalidArgument if the key is empty or too long."""
    raw = key.encode()
    if not 0 < len(raw) <= limits.TABLE_KEY_BYTES_MAX:
        limits.check_range("key bytes", len(raw), 1, limits.TABLE_KEY_BYTES_MAX)
    return placement.of_raw(raw, partitions)


@transforms(wire.Insert)
def insert(request: wire.Insert, current: bytes | None) -> TableResult:
    _check_value(request.value)
    return TableResult(wire.Done(), True, request.value)


@transforms(wire.Lookup)
def lookup(request: wire.Lookup, current: bytes | None) -> TableResult:
    return TableResult(wire.Value(current))


@transforms(wire.Remove)
def remove(request: wire.Remove, current: bytes | None) -> TableResult:
    return TableResult(wire.Done(int(current is not None)), current is not None)


@transforms(wire.Append)
def append(request: wire.Append, current: bytes | None) -> TableResult:
    """ZHT's own addition to the usual verbs: many writers extend a value without reading first."""
    value = (current or b"") + request.value
    _check_value(value)
    return TableResult(wire.Done(len(value)), True, value)


@transforms(wire.CompareAndSwap)
def compare_and_swap(request: wire.CompareAndSwap, current: bytes | None) -> TableResult:
    if current != request.old:
        return TableResult(wire.Swapped(False, current))
    if request.new is not None:
        _check_value(request.new)
    return TableResult(wire.Swapped(True, current), True, request.new)


class WriteDecision(NamedTuple):
    """The result of a named write. If `done`, the value None removes the key."""

    done: bool
    value: bytes | None = None


#: The named writes: each gets the request, the current value and its version.
writes: Final = Handlers[Callable[..., WriteDecision]]()


@writes(wire.Put)
def put(request: wire.Put, current: bytes | None, version: int) -> WriteDecision:
    _check_value(request.value)
    if request.ttl_ms:
        limits.check_range("ttl_ms", request.ttl_ms, 0, limits.TABLE_TTL_MS_MAX)
    if request.if_version == -1:
        return WriteDecision(True, request.value)
    _check_condition(request.if_version)
    return WriteDecision(_holds(request.if_version, current, version), request.value)


@writes(wire.RemoveKey)
def remove_key(request: wire.RemoveKey, current: bytes | None, version: int) -> WriteDecision:
    _check_condition(request.if_version)
    return WriteDecision(current is not None and _holds(request.if_version, current, version))


@writes(wire.AppendKey)
def append_key(request: wire.AppendKey, current: bytes | None, version: int) -> WriteDecision:
    value = (current or b"") + request.value
    _check_value(value)
    return WriteDecision(True, value)


@writes(wire.SwapKey)
def swap_key(request: wire.SwapKey, current: bytes | None, version: int) -> WriteDecision:
    if request.new is not None:
        _check_value(request.new)
    return WriteDecision(current == request.old, request.new)


def _check_condition(if_version: int) -> None:
    limits.check_range("if_version", if_version, -1, limits.NUMBER_MAX)


def _holds(if_version: int, current: bytes | None, version: int) -> bool:
    """True if a condition holds; a value without a version meets no condition."""
    if if_version <= 0:
        return if_version < 0 or current is None
    return current is not None and version == if_version


def _check_value(value: bytes) -> None:
    if len(value) > limits.TABLE_VALUE_BYTES_MAX:
        raise TooLarge(
            f"a table value has at most {limits.TABLE_VALUE_BYTES_MAX} bytes, this has {len(value)}"
        )
