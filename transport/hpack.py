"""HPACK (RFC 7541): the compression of HTTP/2 header fields, for one connection.

Responsible for the two directions' tables and for the bounds on what a peer can make the node
decode. Decoding a block field by field costs more than everything else in a small call, so the
decoder remembers blocks: until the table changes, the same bytes have the same meaning. Fields with
another value in every call (a deadline, a request id) would make every decoded list unique, so they
are separated from the others (`HeaderBlock.varying`), and the layer above caches the meaning of the
rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Final, NamedTuple

from weft.errors import ProtocolError

from . import huffman
from .hpack_table import (
    ENTRY_BYTES,
    FIRST_DYNAMIC,
    STATIC_FIELDS,
    TABLE_BYTES_MAX,
    DynamicTable,
    HeaderField,
    field_size,
)

#: The fields of one block, each with 32 bytes of overhead: a block of a few bytes can name a large
#: table entry many times (an "HPACK bomb"), and metadata of gRPC calls is some hundred bytes.
LIST_BYTES_MAX: Final = 16_384
#: The fields of one block: a field costs the node time even if it is small.
FIELDS_MAX: Final = 128
#: Seven bits each: a longer number is out of every range here, and must not grow without end.
_NUMBER_BYTES_MAX: Final = 4
#: Blocks, and Huffman strings, that a connection remembers, and the longest remembered ones: a
#: client has a few kinds of calls, and a hostile one must not fill the memory.
_CACHED_MAX: Final = 256
_CACHED_BYTES_MAX: Final = 1024

#: First bits of a representation (section 6).
_INDEXED: Final = 0x80
_INSERTED: Final = 0x40
_TABLE_SIZE: Final = 0x20

#: The longest run of indexes that is decoded at one time, and that is remembered.
_RUN_MAX: Final = FIELDS_MAX
_RUN_CACHED_MAX: Final = 32
#: A run of indexes of one byte each: 1 to 126.
_run_at: Final = re.compile(rb"[\x81-\xfe]{1,%d}" % _RUN_MAX).match
#: A byte has room for 128 numbers of dynamic fields beside the static indexes. The fields that the
#: indexes of one byte can name have 65 numbers in succession, one more after each insertion: during
#: 64 insertions no two of them are the same modulo 128.
_NUMBERS: Final = 128
_STATIC: Final = 1 << 62
_ERA: Final = 64


def _by_number(inserted: int) -> bytes:
    """A table for `bytes.translate`: static indexes as they are, dynamic ones as numbers."""
    table = bytearray(range(256))
    for index in range(1, 0x7F):
        number = (inserted - (index - FIRST_DYNAMIC)) % _NUMBERS
        table[_INDEXED | index] = index if index < FIRST_DYNAMIC else _INDEXED | number
    return bytes(table)


_BY_NUMBER: Final = tuple(map(_by_number, range(_NUMBERS)))
#: Makes a named tuple without the call of its own constructor.
_new: Final = tuple.__new__


class HeaderBlock(NamedTuple):
    """A decoded block. In `fields`, a varying field has an empty value: its place counts, too."""

    fields: tuple[HeaderField, ...]
    varying: tuple[HeaderField, ...] = ()


class IndexedRun(NamedTuple):
    """Successive fields of a block that are indexes of one byte each."""

    fields: tuple[HeaderField, ...]
    varying: tuple[HeaderField, ...]
    size: int
    #: The number (`DynamicTable.inserted`) of the oldest dynamic field, or `_STATIC` without one.
    #: If the table has lost that field, an index of the run names no field.
    oldest: int


class HpackDecoder:
    """Decodes the blocks of one direction, in the order in which they arrive.

    A client that inserts the deadline of each call into the table (grpc-go, grpc-java) changes the
    index of every other field with each call, and no two of its blocks are equal. Therefore runs of
    indexes are remembered, too, by the numbers of the fields and not by their indexes.
    """

    __slots__ = ("_era", "_runs", "_strings", "_table", "_varying", "known")

    def __init__(self, varying: frozenset[bytes] = frozenset()) -> None:
        """`varying`: names of fields that mostly have another value in each block."""
        self._varying = varying
        self._table = DynamicTable()
        self._strings: dict[bytes, bytes] = {}
        #: Blocks that change no table, as long as the table is the same.
        self.known: dict[bytes, HeaderBlock] = {}
        #: Runs of indexes by `_BY_NUMBER`, in the current era: the span of insertions in which
        #: these keys are unique.
        self._runs: dict[bytes, IndexedRun] = {}
        self._era = 0

    def decode(self, block: bytes) -> HeaderBlock:
        """Decodes the next block of the connection.

        Raises ProtocolError; the table is then unknown, and the connection must end.
        """
        known = self.known.get(block)
        if known is not None:
            return known
        version = self._table.version
        try:
            decoded = self._decode(block)
        except IndexError:
            raise ProtocolError("a header block is cut off") from None
        if version != self._table.version:
            self.known.clear()
        elif len(block) <= _CACHED_BYTES_MAX:
            if len(self.known) >= _CACHED_MAX:
                self.known.clear()
            self.known[block] = decoded
        return decoded

    def _decode(self, block: bytes) -> HeaderBlock:
        fields: list[HeaderField] = []
        varying: list[HeaderField] = []
        place = size = 0
        end, names = len(block), self._varying
        while place < end:
            first = block[place]
            if first >= _INDEXED:
                if (found := _run_at(block, place)) is not None:
                    run = self._run(found[0])
                    place = found.end()
                    fields += run.fields
                    varying += run.varying
                    size += run.size
                    if len(fields) > FIELDS_MAX:
                        raise _too_long()
                    continue
                index, place = _number(block, place, 0x7F)
                field = self._table.get(index)
            elif first >= _INSERTED:
                field, place = self._literal(block, place, 0x3F)
                self._table.insert(field)
            elif first >= _TABLE_SIZE:
                place = self._resize(block, place, first_field=not fields)
                continue
            else:
                field, place = self._literal(block, place, 0x0F)
            name, value = field
            size += len(name) + len(value) + ENTRY_BYTES
            if name in names:
                varying.append(field)
                field = name, b""
            fields.append(field)
            if len(fields) > FIELDS_MAX:
                raise _too_long()
        # The fields are references into tables and pieces of the block: until here a long list
        # costs no more than its number of fields.
        if size > LIST_BYTES_MAX:
            raise _too_long()
        return _new(HeaderBlock, (tuple(fields), tuple(varying)))

    def _run(self, indexes: bytes) -> IndexedRun:
        """The fields of indexes of one byte each."""
        inserted = self._table.inserted
        if inserted // _ERA != self._era:
            self._era = inserted // _ERA
            self._runs.clear()
        key = indexes.translate(_BY_NUMBER[inserted % _NUMBERS])
        run = self._runs.get(key)
        if run is None or run.oldest < self._table.oldest:
            run = self._new_run(indexes)
            if len(indexes) <= _RUN_CACHED_MAX:
                if len(self._runs) >= _CACHED_MAX:
                    self._runs.clear()
                self._runs[key] = run
        return run

    def _new_run(self, indexes: bytes) -> IndexedRun:
        found = [self._table.get(first - _INDEXED) for first in indexes]
        size = sum(map(len, chain.from_iterable(found))) + ENTRY_BYTES * len(found)
        names = self._varying
        varying = [field for field in found if field[0] in names]
        if varying:
            found = [(field[0], b"") if field[0] in names else field for field in found]
        age = max(indexes) - _INDEXED - FIRST_DYNAMIC
        oldest = self._table.inserted - age if age >= 0 else _STATIC
        return IndexedRun(tuple(found), tuple(varying), size, oldest)

    def _resize(self, block: bytes, place: int, *, first_field: bool) -> int:
        limit, place = _number(block, place, 0x1F)
        if not first_field:
            raise ProtocolError("a table size is not at the beginning of its header block")
        if limit > TABLE_BYTES_MAX:
            raise ProtocolError(f"a header table of {limit} bytes; {TABLE_BYTES_MAX} are allowed")
        self._table.resize(limit)
        return place

    def _literal(self, block: bytes, place: int, mask: int) -> tuple[HeaderField, int]:
        index = block[place] & mask
        place += 1
        if index == mask:
            index, place = _number(block, place - 1, mask)
        if index:
            name = self._table.get(index)[0]
        else:
            name, place = self._string(block, place, repeats=True)
        # A value that is another one in each block is not worth a place in the cache.
        value, place = self._string(block, place, repeats=name not in self._varying)
        return (name, value), place

    def _string(self, block: bytes, place: int, *, repeats: bool) -> tuple[bytes, int]:
        first = block[place]
        size = first & 0x7F
        place += 1
        if size == 0x7F:
            size, place = _number(block, place - 1, 0x7F)
        end = place + size
        if end > len(block):
            raise ProtocolError("a header string is cut off")
        raw = block[place:end]
        if first < 0x80:
            return raw, end
        if not repeats:
            return huffman.decode(raw), end
        decoded = self._strings.get(raw)
        if decoded is None:
            decoded = huffman.decode(raw)
            if size <= _CACHED_BYTES_MAX:
                if len(self._strings) >= _CACHED_MAX:
                    self._strings.clear()
                self._strings[raw] = decoded
        return decoded, end


class HpackEncoder:
    """Encodes the blocks of one direction, in the order in which they are sent.

    Fields of `repeated`, and the first field with a name of `repeated_names`, go into the table;
    all others are literals. So the table has a handful of entries, and soon never changes.
    """

    __slots__ = ("_known", "_names", "_repeated", "_repeated_names", "_smallest", "_table")

    def __init__(
        self,
        repeated: Iterable[HeaderField] = (),
        repeated_names: Iterable[bytes] = (),
    ) -> None:
        self._repeated = frozenset(repeated)
        self._repeated_names = frozenset(repeated_names)
        self._table = DynamicTable()
        #: Blocks without literals, and prefixes of literals by name, for the table as it is.
        self._known: dict[tuple[HeaderField, ...], bytes] = {}
        self._names: dict[bytes, bytes] = {}
        #: The smallest limit since the last block, if the limit changed (section 4.2).
        self._smallest: int | None = None

    def limit(self, table_bytes: int) -> None:
        """Applies the peer's SETTINGS_HEADER_TABLE_SIZE. A larger table is not used."""
        wanted = min(table_bytes, TABLE_BYTES_MAX)
        if wanted != self._table.limit:
            self._table.resize(wanted)
            self._forget()
            smallest = self._smallest
            self._smallest = wanted if smallest is None else min(smallest, wanted)

    def encode(self, fields: tuple[HeaderField, ...]) -> bytes:
        known = self._known.get(fields)
        if known is not None:
            return known
        pieces = []
        if (smallest := self._smallest) is not None:
            self._smallest = None
            if smallest < self._table.limit:
                pieces.append(_prefixed(smallest, 0x1F, _TABLE_SIZE))
            pieces.append(_prefixed(self._table.limit, 0x1F, _TABLE_SIZE))
            pieces += map(self._field, fields)
            return b"".join(pieces)
        version = self._table.version
        literals = False
        for field in fields:
            piece = self._field(field)
            literals |= piece[0] < _INDEXED
            pieces.append(piece)
        block = b"".join(pieces)
        if not literals and version == self._table.version and len(self._known) < _CACHED_MAX:
            self._known[fields] = block
        return block

    def last_field(self, field: HeaderField) -> bytes:
        """One more field for the end of the block that `encode` has just made."""
        name, value = field
        prefix = self._names.get(name)
        if prefix is not None and len(value) < 0x7F:  # inlines `_literal`
            return prefix + bytes((len(value),)) + value
        return self._field(field)

    def _literal(self, name: bytes, value: bytes) -> bytes:
        prefix = self._names.get(name)
        if prefix is None:
            index = _STATIC_NAMES.get(name) or self._table.find_name(name)
            prefix = _prefixed(index, 0x0F, 0) + (b"" if index else _plain(name))
            if len(self._names) < _CACHED_MAX:
                self._names[name] = prefix
        return prefix + _plain(value)

    def _field(self, field: HeaderField) -> bytes:
        index = _STATIC_INDEXES.get(field) or self._table.find(field)
        if index:
            return _prefixed(index, 0x7F, _INDEXED)
        name, value = field
        first_of_name = name in self._repeated_names and not self._table.find_name(name)
        if (field in self._repeated or first_of_name) and field_size(field) <= self._table.limit:
            index = _STATIC_NAMES.get(name) or self._table.find_name(name)
            self._table.insert(field)
            self._forget()
            named = b"" if index else _plain(name)
            return _prefixed(index, 0x3F, _INSERTED) + named + _plain(value)
        return self._literal(name, value)

    def _forget(self) -> None:
        self._known.clear()
        self._names.clear()


def _too_long() -> ProtocolError:
    return ProtocolError(f"a header list is above {LIST_BYTES_MAX} bytes or {FIELDS_MAX} fields")


#: Static fields by field and by name; of several with one name, the first.
_STATIC_INDEXES: Final = {
    field: index for index, field in enumerate(STATIC_FIELDS) if index and field[1]
}
_STATIC_NAMES: Final = {STATIC_FIELDS[index][0]: index for index in range(FIRST_DYNAMIC - 1, 0, -1)}


def _number(block: bytes, place: int, mask: int) -> tuple[int, int]:
    """A number with a prefix (section 5.1), and the place after the number."""
    number = block[place] & mask
    place += 1
    if number < mask:
        return number, place
    for shift in range(0, 7 * _NUMBER_BYTES_MAX, 7):
        byte = block[place]
        place += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise ProtocolError("a number in a header block is too long")


def _prefixed(number: int, mask: int, first: int) -> bytes:
    if number < mask:
        return bytes((first | number,))
    written = bytearray((first | mask,))
    number -= mask
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _plain(text: bytes) -> bytes:
    return _prefixed(len(text), 0x7F, 0) + text
