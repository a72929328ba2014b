"""The input of a bulk push: an iterable of bodies with headers and keys, cut into chunks.

A collection (list, tuple, set, view of a dict) is one chunk: all of it is checked before the first
message is sent. Any other iterable may be endless or larger than memory, so it is read while it is
pushed: at most CHUNK_COUNT messages or CHUNK_BYTES are in memory at a time. Bodies are copied when
read, because a generator may reuse its buffer.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from weft import limits
from weft.client import arguments
from weft.errors import InvalidArgument, WeftError

from .batch import (
    Body,
    Columns,
    Headers,
    check_bodies,
    check_body,
    check_dedup_keys,
    check_groups,
    check_headers,
    check_keys,
    check_tenants,
)

#: Limits of one chunk of an iterable: a few full batches.
CHUNK_COUNT: Final = 4 * limits.BATCH_COUNT_MAX
CHUNK_BYTES: Final = 2 * limits.BATCH_BYTES_MAX

T = TypeVar("T")


class BodySource:
    """Reads messages chunk by chunk; the last chunk may be empty."""

    def __init__(
        self,
        bodies: Iterable[Body] | AsyncIterable[Body],
        headers: Iterable[Headers | None] | None = None,
        keys: Iterable[str | None] | None = None,
        dedup_keys: Iterable[str | None] | None = None,
        groups: Iterable[str] | None = None,
        tenants: Iterable[str] | None = None,
    ) -> None:
        if tenants is not None and not (groups is None and dedup_keys is None):
            raise InvalidArgument(
                "push_many has tenants, groups or dedup_keys: give one of the three"
            )
        if groups is not None and dedup_keys is not None:
            raise InvalidArgument("a message with a group has no dedup key: give one of the two")
        #: Number of messages, if known in advance.
        self.total: int | None = None
        #: True after the last chunk.
        self.ended = False
        self._whole: Columns | None = None
        self._iterator: Iterator[Body] | None = None
        self._async_iterator: AsyncIterator[Body] | None = None
        if type(bodies) is list or isinstance(bodies, Collection):
            column = check_bodies(bodies)
            self.total = len(column)
            self._whole = _columns(column, headers, keys, dedup_keys, groups, tenants)
            return
        arguments.check_iterable("bodies", bodies, "bytes", also_async=True)
        if isinstance(bodies, Iterable):
            self._iterator = iter(bodies)
        else:
            self._async_iterator = aiter(bodies)
        self._headers = _Companion[Headers | None]("headers", headers)
        self._keys = _Companion[str | None]("keys", keys)
        self._dedup_keys = _Companion[str | None]("dedup_keys", dedup_keys)
        self._groups = _Companion[str]("groups", groups)
        self._tenants = _Companion[str]("tenants", tenants)

    async def next_chunk(self) -> Columns:
        """Returns the next messages, checked. Exceptions of the iterable are raised unchanged."""
        if self._whole is not None:
            self.ended = True
            return self._whole
        if self._iterator is not None:
            column = read_bodies(self._iterator, CHUNK_COUNT, CHUNK_BYTES)
        else:
            column = await self._read_async()
        if not column:
            self.ended = True
            self._headers.check_end()
            self._keys.check_end()
            self._dedup_keys.check_end()
            self._groups.check_end()
            self._tenants.check_end()
            return Columns([])
        count = len(column)
        headers, keys = self._headers.take(count), self._keys.take(count)
        dedup_keys, groups = self._dedup_keys.take(count), self._groups.take(count)
        tenants = self._tenants.take(count)
        return _columns(column, headers, keys, dedup_keys, groups, tenants)

    async def _read_async(self) -> list[bytes]:
        assert self._async_iterator is not None
        column: list[bytes] = []
        size = 0
        while len(column) < CHUNK_COUNT and size < CHUNK_BYTES:
            try:
                body = await anext(self._async_iterator)
            except StopAsyncIteration:
                break
            column.append(check_body(body, "each of bodies"))
            size += len(column[-1])
        return column


def read_bodies(bodies: Iterator[Body], count_max: int, bytes_max: int) -> list[bytes]:
    """Reads and checks up to `count_max` bodies, until they reach `bytes_max` bytes."""
    column: list[bytes] = []
    size = 0
    for body in bodies:
        column.append(check_body(body, "each of bodies"))
        size += len(column[-1])
        if len(column) >= count_max or size >= bytes_max:
            break
    return column


class _Companion(Generic[T]):
    """An iterable with one value per body, for a source that is read in chunks."""

    def __init__(self, name: str, values: Iterable[T] | None) -> None:
        if values is not None:
            arguments.check_iterable(name, values, "values, one for each body")
        self._name = name
        self._values = None if values is None else iter(values)

    def take(self, count: int) -> list[T] | None:
        return None if self._values is None else list(islice(self._values, count))

    def check_end(self) -> None:
        if self._values is not None and next(self._values, self) is not self:
            raise InvalidArgument(f"{self._name} has more entries than there are bodies")


def _columns(
    bodies: list[bytes],
    headers: Iterable[Headers | None] | None,
    keys: Iterable[str | None] | None,
    dedup_keys: Iterable[str | None] | None,
    groups: Iterable[str] | None,
    tenants: Iterable[str] | None,
) -> Columns:
    given = headers, keys, dedup_keys, groups, tenants
    if all(each is None for each in given):
        return Columns(bodies)
    count = len(bodies)
    return Columns(
        bodies,
        check_headers(headers, count),
        check_keys(keys, count),
        check_dedup_keys(dedup_keys, count),
        check_groups(groups, count),
        check_tenants(tenants, count),
    )


def with_progress(error: Exception, stored: int, total: int | None) -> Exception:
    """Adds the number of messages stored before the error.

    The message of a WeftError states the number. An exception of the caller's iterable keeps its
    type and its arguments, and gets a note.
    """
    if not isinstance(error, WeftError):
        error.add_note(f"push_many: {stored} messages were stored before this")
        return error
    if not stored:
        return error
    of = f" of {total}" if total is not None else ""
    return type(error)(f"{stored}{of} messages were stored, then: {error.message}")
