"""Messages that wait to fill a batch, by column."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from .batch import Columns, Encoded, HeadersColumn, KeysColumn

T = TypeVar("T")


class PushOptions(NamedTuple):
    """Options common to all messages of a batch."""

    delay_ms: int = 0
    priority: int = 0
    group: str | None = None


class Parcel(NamedTuple):
    """Messages to push: the content of a buffer, or an encoded batch."""

    content: Columns | Encoded
    size: int
    options: PushOptions

    @property
    def messages(self) -> int:
        content = self.content
        return content.messages if isinstance(content, Encoded) else len(content.bodies)


class BatchBuffer:
    """Not thread-safe: the owner locks."""

    __slots__ = ("_dedup_keys", "_headers", "_keys", "_options", "bodies", "born", "size")

    def __init__(self, options: PushOptions) -> None:
        self._options = options
        self._clear()

    def _clear(self) -> None:
        self.bodies: list[bytes] = []
        self._headers: HeadersColumn | None = None
        self._keys: KeysColumn | None = None
        self._dedup_keys: KeysColumn | None = None
        self.size = 0
        #: Time of the first message; set by the owner.
        self.born = 0.0

    def add(
        self,
        body: bytes,
        headers: dict[str, str] | None,
        key: str | None,
        dedup_key: str | None = None,
    ) -> None:
        # Most messages have neither headers nor keys, and the owner also appends to the bodies
        # directly. So the other columns may be shorter than the bodies; `_filled` pads them on
        # demand.
        before = len(self.bodies)
        if headers:
            self._headers = _filled(self._headers, before)
            self._headers.append(headers)
        if key is not None:
            self._keys = _filled(self._keys, before)
            self._keys.append(key)
        if dedup_key is not None:
            self._dedup_keys = _filled(self._dedup_keys, before)
            self._dedup_keys.append(dedup_key)
        self.bodies.append(body)
        self.size += len(body)

    def extend(self, bodies: list[bytes], size: int) -> None:
        self.bodies += bodies
        self.size += size

    def take(self) -> Parcel:
        count = len(self.bodies)
        columns = Columns(
            self.bodies,
            _filled(self._headers, count) if self._headers is not None else None,
            _filled(self._keys, count) if self._keys is not None else None,
            _filled(self._dedup_keys, count) if self._dedup_keys is not None else None,
        )
        parcel = Parcel(columns, self.size, self._options)
        self._clear()
        return parcel


def _filled(column: list[T | None] | None, count: int) -> list[T | None]:
    column = [] if column is None else column
    column += [None] * (count - len(column))
    return column
