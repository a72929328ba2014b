"""From messages to batches: checked, split where a limit demands it, and encoded.

A batch travels and is stored by column (`wire.Payload`), so everything here works on whole columns
with functions that loop in C. What a message costs is measured in nanoseconds; a Python loop over
messages would cost more than the rest of the client.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, cast

import msgspec

from weft import limits
from weft.errors import InvalidArgument, TooLarge
from weft.proto import even, wire

#: What a body may be. Text is not: the caller decides how it is encoded.
Body = bytes | bytearray | memoryview
Headers = Mapping[str, str]
HeadersColumn = list[dict[str, str] | None]
KeysColumn = list[str | None]

_BODY_TYPES: Final = (bytes, bytearray, memoryview)
_ONLY_BYTES: Final = {bytes}
#: Room for the encoding itself: a length mark has at most 5 bytes, and so has the array's own.
_MARKS_BYTES: Final = 5 * (limits.BATCH_COUNT_MAX + 8)


class Columns(NamedTuple):
    """Messages that are checked, by column; `headers` and `keys` are None or as long as bodies."""

    bodies: list[bytes]
    headers: HeadersColumn | None = None
    keys: KeysColumn | None = None

    def part(self, start: int, stop: int) -> Columns:
        return Columns(
            self.bodies[start:stop],
            self.headers[start:stop] if self.headers is not None else None,
            self.keys[start:stop] if self.keys is not None else None,
        )


class Encoded(NamedTuple):
    """One batch's payload frame, and how many messages it holds."""

    messages: int
    frame: bytes


def check_body(body: Body) -> bytes:
    """One body as bytes."""
    if type(body) is not bytes:
        if not isinstance(body, _BODY_TYPES):
            raise _not_bytes(body)
        body = bytes(body)
    if len(body) > limits.BODY_BYTES_MAX:
        raise _too_large(len(body))
    return body


def check_bodies(bodies: Sequence[Body]) -> list[bytes]:
    """Many bodies as bytes; a list of bytes is not copied."""
    return measured(bodies)[0]


def measured(bodies: Sequence[Body]) -> tuple[list[bytes], int]:
    """As `check_bodies`, and how many bytes they have: to look at each once is enough."""
    if isinstance(bodies, (str, *_BODY_TYPES)):
        raise InvalidArgument("give a list of bodies; push takes a single one")
    column: list[bytes]
    if set(map(type, bodies)) <= _ONLY_BYTES:
        column = cast("list[bytes]", bodies if isinstance(bodies, list) else list(bodies))
    else:
        column = list(map(check_body, bodies))
    size = sum(map(len, column))
    if size > limits.BODY_BYTES_MAX:  # else each is small enough
        largest = max(map(len, column))
        if largest > limits.BODY_BYTES_MAX:
            raise _too_large(largest)
    return column, size


def check_headers(headers: Sequence[Headers | None] | None, count: int) -> HeadersColumn | None:
    if headers is None or not any(headers):
        return None
    if len(headers) != count:
        raise InvalidArgument(f"{len(headers)} headers do not go with {count} bodies")
    try:
        column = msgspec.convert(list(headers), HeadersColumn)
        total = len(wire.encode(column))
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"headers are texts by text: {error}") from None
    if total > limits.HEADERS_BYTES_MAX:  # else each is small enough
        largest = max(map(_headers_bytes, filter(None, column)), default=0)
        if largest > limits.HEADERS_BYTES_MAX:
            raise TooLarge(
                f"one message's headers have at most {limits.HEADERS_BYTES_MAX} bytes, "
                f"not {largest}: put large things into the body"
            )
    return column


def check_keys(keys: Sequence[str | None] | None, count: int) -> KeysColumn | None:
    if keys is None or not any(keys):
        return None
    if isinstance(keys, str):
        raise InvalidArgument("give a list of keys, one for each body")
    if len(keys) != count:
        raise InvalidArgument(f"{len(keys)} keys do not go with {count} bodies")
    try:
        column = msgspec.convert(list(keys), KeysColumn)
        largest = max(len(key.encode()) for key in column if key is not None)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"a key is a text: {error}") from None
    if largest > limits.KEY_BYTES_MAX:
        raise TooLarge(f"a key has at most {limits.KEY_BYTES_MAX} bytes, not {largest}")
    return column


def check_dedup_key(dedup_key: str) -> None:
    if not isinstance(dedup_key, str):
        raise InvalidArgument(f"a dedup key is a text, not {type(dedup_key).__name__}")
    limits.check_range("bytes of dedup_key", text_bytes(dedup_key), 1, limits.DEDUP_KEY_BYTES_MAX)


def text_bytes(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"a text that UTF-8 cannot carry: {error}") from None


def encode(columns: Columns) -> bytes:
    return wire.encode(wire.Payload(*columns))


def encode_even(bodies: list[Body]) -> Encoded | None:
    """A batch of bodies alone, if they are all of one length and fit into one; None if not.

    Nothing was checked before: what is written tells whether they were bytes (`even`), for far less
    than to look at each. What is not gets its error where each is looked at.
    """
    try:
        frame = wire.encode(wire.Payload(cast("list[bytes]", bodies)))
    except (TypeError, ValueError, OverflowError):
        return None
    count = even.count(frame)
    if not count or count != len(bodies) or len(frame) > limits.BATCH_BYTES_MAX:
        return None
    return Encoded(count, frame) if len(frame) // count <= limits.BODY_BYTES_MAX else None


def batches(columns: Columns, size: int | None = None) -> Iterator[Encoded]:
    """The batches of these messages, as few as the limits allow, in order.

    `size`: the bytes of all bodies, if that is known.
    """
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


def _not_bytes(body: object) -> InvalidArgument:
    hint = ": encode it, as in text.encode()" if isinstance(body, str) else ""
    return InvalidArgument(f"a body is bytes, not {type(body).__name__}{hint}")


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        f"a body has at most {limits.BODY_BYTES_MAX} bytes, not {size}: "
        "keep it elsewhere and send its address"
    )
