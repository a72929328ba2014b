"""The field tables of HPACK (RFC 7541, section 2.3): the static table, and a dynamic table.

An index below 62 names a static field, an index from 62 the dynamic fields, the newest first.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ProtocolError

#: Name and value of one header field.
HeaderField = tuple[bytes, bytes]

#: The size limit that both ends start with (RFC 9113, section 6.5.2), and the one Weft keeps.
TABLE_BYTES_MAX: Final = 4096
#: The size of an entry besides its strings (RFC 7541, section 4.1).
ENTRY_BYTES: Final = 32

_STATIC: Final = """\
:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate
"""


def _field(line: str) -> HeaderField:
    name, _, value = line.partition(" ")
    return name.encode(), value.encode()


#: Appendix A; the index 0 has no field.
STATIC_FIELDS: Final[tuple[HeaderField, ...]] = (
    (b"", b""),
    *map(_field, _STATIC.splitlines()),
)
FIRST_DYNAMIC: Final = len(STATIC_FIELDS)
assert FIRST_DYNAMIC == 62


def field_size(field: HeaderField) -> int:
    return len(field[0]) + len(field[1]) + ENTRY_BYTES


class DynamicTable:
    """The fields that the encoder of one direction has inserted, up to a size in bytes."""

    __slots__ = ("_fields", "_size", "inserted", "limit", "oldest", "version")

    def __init__(self) -> None:
        self._fields: list[HeaderField] = []  # the newest last
        self._size = 0
        self.limit = TABLE_BYTES_MAX
        #: Changes whenever an index may mean another field.
        self.version = 0
        #: The number of fields that were ever inserted: the number of the newest field. `oldest` is
        #: the number of the oldest field that is in the table still.
        self.inserted = 0
        self.oldest = 1

    def get(self, index: int) -> HeaderField:
        """The field at an index of either table. Raises ProtocolError without one."""
        if index < FIRST_DYNAMIC:
            if index:
                return STATIC_FIELDS[index]
        elif index - FIRST_DYNAMIC < len(self._fields):
            return self._fields[FIRST_DYNAMIC - 1 - index]
        raise ProtocolError(f"no header field has the index {index}")

    def find(self, field: HeaderField) -> int:
        """The index of a dynamic field, or 0."""
        for place, each in enumerate(reversed(self._fields)):
            if each == field:
                return FIRST_DYNAMIC + place
        return 0

    def find_name(self, name: bytes) -> int:
        """The index of a dynamic field with this name, or 0."""
        for place, (each, _) in enumerate(reversed(self._fields)):
            if each == name:
                return FIRST_DYNAMIC + place
        return 0

    def insert(self, field: HeaderField) -> None:
        self.version += 1
        self.inserted += 1
        self._fields.append(field)
        self._size += len(field[0]) + len(field[1]) + ENTRY_BYTES
        if self._size > self.limit:
            self._evict()

    def resize(self, limit: int) -> None:
        self.version += 1
        self.limit = limit
        self._evict()

    def _evict(self) -> None:
        gone, fields = 0, self._fields
        while self._size > self.limit:
            name, value = fields[gone]
            self._size -= len(name) + len(value) + ENTRY_BYTES
            gone += 1
        del fields[:gone]
        self.oldest += gone
