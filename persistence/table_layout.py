"""The keys of the hash table in LevelDB; ``layout`` has all other keys.

| kind (1 byte) and the rest of the key            | value                                  |
|--------------------------------------------------|----------------------------------------|
| ``t`` partition(2) key                           | a table value as of version 0.1.0      |
| ``t`` partition(2) 0xff ``k`` key                | a table row: version, expiry, value    |
| ``t`` partition(2) 0xff ``n`` slice(4) producer(7) number(5) | a named write's result     |
| ``t`` partition(2) 0xff ``x`` expires(8) key     | a row that expires                     |
| ``t`` partition(2) 0xff ``c``                    | the partition's clock                  |

No UTF-8 text has a byte 0xff, so no key of the first form is taken for one of the others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

import xxhash

from .layout import TABLE

#: What follows the partition in a key of the hash table.
_ROW, _ROW_END, _NAME, _NAME_END = b"\xffk", b"\xffl", b"\xffn", b"\xffo"
_EXPIRY, _EXPIRY_END, _CLOCK = b"\xffx", b"\xffy", b"\xffc"

_small = struct.Struct(">cH")
_word = struct.Struct(">Q")
_hash = xxhash.xxh3_64_intdigest
_digest = xxhash.xxh3_64_digest


def key(partition: int, name: str) -> bytes:
    return _small.pack(TABLE, partition) + name.encode()


def rows(partition: int) -> bytes:
    """The start of the keys of all rows of a partition; a table key follows."""
    return _small.pack(TABLE, partition) + _ROW


def records(
    starts: Sequence[bytes], partitions: Iterable[int], keys: Iterable[bytes], data: Iterable[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    """Sealed records for a batch: `starts` has the start of the keys of every partition."""
    digest, hash_ = _digest, _hash
    for number, key, row in zip(partitions, keys, data, strict=False):  # `keys` may be endless
        place = starts[number] + key
        yield place, digest(row, hash_(place)) + row


def name_end(time_slice: int, producer: int, number: int) -> bytes:
    """The end of the key of a named write's result, after the start from `names`."""
    return b"".join(
        (time_slice.to_bytes(4, "big"), producer.to_bytes(7, "big"), number.to_bytes(5, "big"))
    )


def unpack_name(key: bytes) -> tuple[int, int, int]:
    """(slice, producer, number)."""
    named = key[5:]
    return (
        int.from_bytes(named[:4], "big"),
        int.from_bytes(named[4:11], "big"),
        int.from_bytes(named[11:], "big"),
    )


def names(partition: int) -> tuple[bytes, bytes]:
    """The start, and the scan bounds, of the results of a partition's named writes."""
    start = _small.pack(TABLE, partition)
    return start + _NAME, start + _NAME_END


def expiry(partition: int, expires: int, key: bytes) -> bytes:
    """The key of the index entry of a row that expires."""
    return _small.pack(TABLE, partition) + _EXPIRY + _word.pack(expires) + key


def expiry_records(
    expiries: Mapping[int, int], partitions: Iterable[int], keys: Iterable[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    """Sealed index entries for a batch of rows, which expire at one time in each partition."""
    starts = {number: expiry(number, at, b"") for number, at in expiries.items()}
    for number, key in zip(partitions, keys, strict=True):
        place = starts[number] + key
        yield place, _digest(b"", _hash(place))


def unpack_expiry(key: bytes) -> tuple[int, bytes]:
    """(time of expiry, table key)."""
    return int(_word.unpack(key[5:13])[0]), key[13:]


def expiries(partition: int) -> tuple[bytes, bytes]:
    """The scan bounds of a partition's rows that expire, the next one first."""
    start = _small.pack(TABLE, partition)
    return start + _EXPIRY, start + _EXPIRY_END


def clock(partition: int) -> bytes:
    """The key of the last recorded time of a partition's clock."""
    return _small.pack(TABLE, partition) + _CLOCK


def old_rows(partition: int) -> tuple[bytes, bytes]:
    """The scan bounds of the rows written as by version 0.1.0."""
    start = _small.pack(TABLE, partition)
    return start, start + b"\xff"
