"""Messages that wait to fill a batch, by column."""

from __future__ import annotations

from typing import NamedTuple

from .batch import Columns, HeadersColumn, KeysColumn


class Options(NamedTuple):
    """What all messages of a batch have in common."""

    delay_ms: int = 0
    priority: int = 0


class Parcel(NamedTuple):
    """A buffer's content, taken out to be pushed."""

    columns: Columns
    size: int
    options: Options


class Buffer:
    """Not locked: its owner does that."""

    __slots__ = ("_headers", "_keys", "_options", "bodies", "born", "size")

    def __init__(self, options: Options) -> None:
        self._options = options
        self._clear()

    def _clear(self) -> None:
        self.bodies: list[bytes] = []
        self._headers: HeadersColumn | None = None
        self._keys: KeysColumn | None = None
        self.size = 0
        #: When the first message came; the owner sets it.
        self.born = 0.0

    def add(self, body: bytes, headers: dict[str, str] | None, key: str | None) -> None:
        # A column begins with its first entry: most messages have neither headers nor a key.
        before = len(self.bodies)
        if headers and self._headers is None:
            self._headers = [None] * before
        if key is not None and self._keys is None:
            self._keys = [None] * before
        self.bodies.append(body)
        if self._headers is not None:
            self._headers.append(headers)
        if self._keys is not None:
            self._keys.append(key)
        self.size += len(body)

    def extend(self, bodies: list[bytes]) -> None:
        self.bodies += bodies
        for column in (self._headers, self._keys):
            if column is not None:
                column += [None] * len(bodies)
        self.size += sum(map(len, bodies))

    def take(self) -> Parcel:
        parcel = Parcel(Columns(self.bodies, self._headers, self._keys), self.size, self._options)
        self._clear()
        return parcel
