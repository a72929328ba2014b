"""HPACK (RFC 7541): the compression of HTTP/2 header fields, for one connection.

Responsible for the two directions' tables and for the bounds on what a peer can make the node
decode. Decoding a block field by field costs more than everything else in a small call, so the
decoder remembers blocks: until the table changes, the same bytes have the same meaning. Fields with
another value in every call (a deadline, a request id) would make every decoded list unique, so they
are separated from the others (`HeaderBlock.varying`), and the layer above caches the meaning of the
rest.
"""

from __future__ import annotations

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


class HeaderBlock(NamedTuple):
    """A decoded block. In `fields`, a varying field has an empty value: its place counts, too."""

    fields: tuple[HeaderField, ...]
    varying: tuple[HeaderField, ...] = ()


class HpackDecoder:
    __slots__ = ("_strings", "_table", "_varying", "known")

    def __init__(self, varying: frozenset[bytes] = frozenset()) -> None:
        """`varying`: names of fields that mostly have another value in each block."""
        self._varying = varying
        self._table = DynamicTable()
        self._strings: dict[bytes, bytes] = {}
        #: Blocks that change no table, as long as the table is the same.
        self.known: dict[bytes, HeaderBlock] = {}

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
        place, end, names = 0, len(block), self._varying
        get = self._table.get
        while place < end:
            first = block[place]
            if first >= _INDEXED:
                index, place = first - _INDEXED, place + 1
                if index == 0x7F:
                    index, place = _number(block, place - 1, 0x7F)
                field = STATIC_FIELDS[index] if 0 < index < FIRST_DYNAMIC else get(index)
            elif first >= _INSERTED:
                field, place = self._literal(block, place, 0x3F)
                self._table.insert(field)
            elif first >= _TABLE_SIZE:
                place = self._resize(block, place, first_field=not fields)
                continue
            else:
                field, place = self._literal(block, place, 0x0F)
            if field[0] in names:
                varying.append(field)
                field = field[0], b""
            fields.append(field)
            if len(fields) > FIELDS_MAX:
                raise _too_long()
        # The fields are references into tables and pieces of the block: until here a long list
        # costs no more than its number of fields.
        size = sum(map(len, chain.from_iterable(fields))) + ENTRY_BYTES * len(fields)
        for _, value in varying:
            size += len(value)
        if size > LIST_BYTES_MAX:
            raise _too_long()
        return HeaderBlock(tuple(fields), tuple(varying))

    def _resize(self, block: bytes, place: int, *, first_field: bool) -> int:
        limit, place = _number(block, place, 0x1F)
        if not first_field:
            raise ProtocolError("a table size is not at the beginning of its header block")
        if limit > TABLE_BYTES_MAX:
            raise ProtocolError(f"a header table of {limit} bytes; {TABLE_BYTES_MAX} are allowed")
        self._table.resize(limit)
        return place

    def _literal(self, block: bytes, place: int, mask: int) -> tuple[HeaderField, int]:
        index, place = _number(block, place, mask)
        if index:
            name = self._table.get(index)[0]
        else:
            name, place = self._string(block, place)
        value, place = self._string(block, place)
        return (name, value), place

    def _string(self, block: bytes, place: int) -> tuple[bytes, int]:
        coded = block[place] & 0x80
        size, place = _number(block, place, 0x7F)
        end = place + size
        if end > len(block):
            raise ProtocolError("a header string is cut off")
        raw = block[place:end]
        if not coded:
            return raw, end
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
