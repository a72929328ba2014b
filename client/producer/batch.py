"""Converts messages to batches: checks, splits at the limits, encodes.

A batch travels and is stored by column (`wire.Payload`), so all functions here work on whole
columns with functions that loop in C. The cost of a message is measured in nanoseconds; a Python
loop over messages would cost more than the rest of the client.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, NamedTuple, TypeVar, cast

import msgspec

from weft import limits
from weft.client import arguments
from weft.errors import InvalidArgument, TooLarge
from weft.proto import uniform_batch, wire

#: Types of a body. Text is not accepted: the caller decides on the encoding.
Body = bytes | bytearray | memoryview
Headers = Mapping[str, str]
HeadersColumn = list[dict[str, str] | None]
KeysColumn = list[str | None]

T = TypeVar("T")

_ONLY_BYTES: Final = {bytes}
#: Room for the encoding itself: a length mark has at most 5 bytes, and so has the array header.
_MARKS_BYTES: Final = 5 * (limits.BATCH_COUNT_MAX + 8)


class Columns(NamedTuple):
    """Checked messages by column; every column but `bodies` is None or as long as `bodies`."""

    bodies: list[bytes]
    headers: HeadersColumn | None = None
    keys: KeysColumn | None = None
    #: Not part of the payload: a message with a dedup key is a batch of its own (`batches`).
    dedup_keys: KeysColumn | None = None
    #: Not part of the payload: a batch has one group (`group_push`).
    groups: list[str] | None = None
    #: Not part of the payload: a batch has one tenant, or none (`group_push`).
    tenants: list[str] | None = None

    def choose(self, places: list[int]) -> Columns:
        """Returns the messages at these places, without dedup keys, groups and tenants."""
        return Columns(
            [self.bodies[n] for n in places],
            [self.headers[n] for n in places] if self.headers is not None else None,
            [self.keys[n] for n in places] if self.keys is not None else None,
        )

    def part(self, start: int, stop: int) -> Columns:
        """Returns a range of the messages, without their dedup keys and groups."""
        return Columns(
            self.bodies[start:stop],
            self.headers[start:stop] if self.headers is not None else None,
            self.keys[start:stop] if self.keys is not None else None,
        )


class Encoded(NamedTuple):
    """The payload frame of one batch and the number of its messages."""

    messages: int
    frame: bytes
    dedup_key: str | None = None


def check_body(body: Body, name: str = "body") -> bytes:
    """Checks one body and returns it as bytes."""
    return arguments.as_bytes(
        name, body, limits.BODY_BYTES_MAX, "keep it elsewhere and send its address"
    )


def check_bodies(bodies: Collection[Body]) -> list[bytes]:
    """Checks bodies and returns them as bytes; a list of bytes is not copied."""
    return measured(bodies)[0]


def measured(bodies: Collection[Body]) -> tuple[list[bytes], int]:
    """Like `check_bodies`, and returns the total length as well."""
    arguments.check_iterable("bodies", bodies, "bytes")
    column: list[bytes]
    if set(map(type, bodies)) <= _ONLY_BYTES:
        column = cast("list[bytes]", bodies if isinstance(bodies, list) else list(bodies))
    else:
        column = [check_body(body, "each of bodies") for body in bodies]
    size = sum(map(len, column))
    if size > limits.BODY_BYTES_MAX:  # otherwise every body is small enough
        check_body(max(column, key=len), "each of bodies")
    return column, size


def check_headers(headers: Iterable[Headers | None] | None, count: int) -> HeadersColumn | None:
    """Checks a column of headers for `count` bodies; None if no message has headers."""
    given = _column("headers", headers, count, "mappings of text to text")
    if given is None:
        return None
    try:
        column = msgspec.convert(given, HeadersColumn)
        total = len(wire.encode(column))
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"headers must map text to text: {error}") from None
    if not any(column):
        return None
    if total > limits.HEADERS_BYTES_MAX:  # otherwise every message's headers are small enough
        largest = max(map(_headers_bytes, filter(None, column)), default=0)
        if largest > limits.HEADERS_BYTES_MAX:
            raise TooLarge(
                f"one message's headers have at most {limits.HEADERS_BYTES_MAX} bytes, "
                f"not {largest}: put large things into the body"
            )
    return column


def check_keys(keys: Iterable[str | None] | None, count: int) -> KeysColumn | None:
    """Checks a column of keys for `count` bodies; None if no message has a key."""
    column = _texts("keys", keys, count)
    if column is None:
        return None
    largest = max(len(key.encode()) for key in column if key is not None)
    if largest > limits.KEY_BYTES_MAX:
        raise TooLarge(f"each of keys has at most {limits.KEY_BYTES_MAX} bytes, not {largest}")
    return column


def check_dedup_keys(dedup_keys: Iterable[str | None] | None, count: int) -> KeysColumn | None:
    """Checks a column of dedup keys for `count` bodies; None if no message has one."""
    column = _texts("dedup_keys", dedup_keys, count)
    for dedup_key in column or ():
        if dedup_key is not None:
            check_dedup_key(dedup_key, "each of dedup_keys")
    return column


def check_dedup_key(dedup_key: str, name: str = "dedup_key") -> None:
    arguments.check_text(name, dedup_key, 1, limits.DEDUP_KEY_BYTES_MAX)


def check_group(group: str, name: str = "group") -> None:
    arguments.check_text(name, group, 1, limits.GROUP_BYTES_MAX)


def check_tenant(tenant: str, name: str = "tenant") -> None:
    arguments.check_text(name, tenant, 1, limits.TENANT_BYTES_MAX)


def check_labels(group: str | None, tenant: str | None) -> None:
    """Checks the group and the tenant of one message; None for none."""
    if group is not None:
        check_group(group)
    if tenant is not None:
        check_tenant(tenant)
    if group is not None and tenant is not None:
        raise InvalidArgument("a message has a group or a tenant, not both")


def check_groups(groups: Iterable[str] | None, count: int) -> list[str] | None:
    """Checks a column of groups for `count` bodies: each message has one."""
    return _labels("groups", groups, count, check_group)


def check_tenants(tenants: Iterable[str] | None, count: int) -> list[str] | None:
    """Checks a column of tenants for `count` bodies: each message has one."""
    return _labels("tenants", tenants, count, check_tenant)


def _labels(
    name: str, given: Iterable[str] | None, count: int, check: Callable[[str, str], None]
) -> list[str] | None:
    if given is None:
        return None
    arguments.check_iterable(name, given, "texts, one for each body")
    if isinstance(given, Mapping):
        raise InvalidArgument(f"{name} must be texts, one for each body, not a mapping")
    column = list(given)
    if len(column) != count:
        raise InvalidArgument(f"{name} has {len(column)} entries for {count} bodies")
    for label in set(column) if all(type(each) is str for each in column) else column:
        check(label, f"each of {name}")
    return column


def check_one(
    headers: Headers | None, key: str | None
) -> tuple[HeadersColumn | None, KeysColumn | None]:
    """Returns the headers and the key of a single message as columns."""
    if key is not None:
        arguments.check_text("key", key, 0, limits.KEY_BYTES_MAX)
    column = None
    if headers is not None:
        if not isinstance(headers, Mapping):
            raise arguments.wrong_type("headers", "a mapping of text to text", headers)
        column = check_headers([headers], 1)
    return column, [key] if key is not None else None


def _column(name: str, given: Iterable[T] | None, count: int, of: str) -> list[T] | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        raise arguments.wrong_type(name, f"an iterable of {of}, one for each body", given)
    arguments.check_iterable(name, given, f"{of}, one for each body")
    column = list(given)
    if len(column) != count:
        raise InvalidArgument(f"{name} has {len(column)} entries for {count} bodies")
    return column if column.count(None) < count else None  # type: ignore[arg-type]


def _texts(name: str, given: Iterable[str | None] | None, count: int) -> KeysColumn | None:
    column = _column(name, given, count, "texts")
    if column is None:
        return None
    try:
        checked = msgspec.convert(column, KeysColumn)
        wire.encode(checked)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"{name} must be texts or None: {error}") from None
    return checked


def encode(columns: Columns) -> bytes:
    return wire.encode(wire.Payload(columns.bodies, columns.headers, columns.keys))


def encode_even(bodies: list[Body]) -> Encoded | None:
    """Encodes bodies without headers as one batch if all have one length; None if not possible.

    The input is unchecked: the encoded frame shows whether all bodies are bytes (`uniform_batch`),
    which costs far less than a check of each body. For other input the caller's check of each body
    raises the error.
    """
    try:
        frame = wire.encode(wire.Payload(cast("list[bytes]", bodies)))
    except (TypeError, ValueError, OverflowError):
        return None
    count = uniform_batch.count(frame)
    if not count or count != len(bodies) or len(frame) > limits.BATCH_BYTES_MAX:
        return None
    return Encoded(count, frame) if len(frame) // count <= limits.BODY_BYTES_MAX else None


def batches(columns: Columns, size: int | None = None) -> Iterator[Encoded]:
    """Yields the batches of these messages in order, as few as the limits allow.

    `size`: the bytes of all bodies, if known. A message with a dedup key is a batch of its own: the
    key decides its partition, and a repeat of the key repeats the whole batch.
    """
    if columns.dedup_keys is not None:
        yield from _batches_by_dedup_key(columns, columns.dedup_keys)
        return
    bodies = columns.bodies
    count = len(bodies)
    if size is None:
        size = sum(map(len, bodies))
    if 0 < count <= limits.BATCH_COUNT_MAX and size <= limits.BATCH_BYTES_MAX:
        yield from _encoded(columns)
        return
    ends = list(accumulate(map(len, bodies)))
    start = done = 0
    while start < count:
        stop = bisect_right(ends, done + limits.BATCH_BYTES_MAX - _MARKS_BYTES)
        stop = min(max(stop, start + 1), start + limits.BATCH_COUNT_MAX)
        yield from _encoded(columns.part(start, stop))
        start, done = stop, ends[stop - 1]


def _batches_by_dedup_key(columns: Columns, dedup_keys: KeysColumn) -> Iterator[Encoded]:
    start = 0
    for index, dedup_key in enumerate(dedup_keys):
        if dedup_key is not None:
            if start < index:
                yield from batches(columns.part(start, index))
            yield Encoded(1, encode(columns.part(index, index + 1)), dedup_key)
            start = index + 1
    if start < len(dedup_keys):
        yield from batches(columns.part(start, len(dedup_keys)))


def _encoded(columns: Columns) -> Iterator[Encoded]:
    frame = encode(columns)
    count = len(columns.bodies)
    if len(frame) <= limits.BATCH_BYTES_MAX:
        yield Encoded(count, frame)
        return
    # Headers, keys and length marks were not counted before: the halves have room for them.
    yield from _encoded(columns.part(0, count // 2))
    yield from _encoded(columns.part(count // 2, count))


def _headers_bytes(headers: dict[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
