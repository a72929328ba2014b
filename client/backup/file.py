"""The backup file: one identifying line, then records, each with a checksum.

A record is ``kind (1) | length (4) | checksum (8) | data``, big-endian; data is msgpack. The
checksum is xxh3-64 of the data, seeded with the checksum of the previous record: a changed,
missing, moved or surplus record does not match, nor does any record after it. The last record is
`End`, with the expected totals; a file without `End` is truncated. The writer writes the file under
a temporary name beside the final one, and renames it when it is complete and on disk.

`VERSION` is raised when an old Weft could misread a new file. New fields are only added at the end
of a struct, with a default, and need no new version. Version 2 has topics; a backup without topics
is a file of version 1, which an older Weft reads.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

import msgspec
import xxhash

from weft.errors import BackupDamaged, StoreVersion
from weft.limits import BATCH_BYTES_MAX, MIB
from weft.proto import wire

VERSION: Final = 2
#: The version of a file without topics.
VERSION_PLAIN: Final = 1
_FIRST_LINE: Final = b"weft backup %d\n"
_LINE_BYTES_MAX: Final = 32
_record = struct.Struct(">BIQ")
#: A page of a snapshot: 1 MiB and one batch more, with room for metadata.
RECORD_BYTES_MAX: Final = BATCH_BYTES_MAX + 8 * MIB


class Start(msgspec.Struct, frozen=True, array_like=True):
    #: 16 random bytes: the id of the backup, by which the cluster recognizes a restore.
    id: bytes
    #: The version of Weft, the cluster of the backup, and the cluster's number of partitions.
    weft: str
    cluster: str
    partitions: int
    #: ISO 8601, for people.
    started: str
    #: The requested queues; None for the whole cluster.
    asked: list[str] | None


class QueueKept(msgspec.Struct, frozen=True, array_like=True):
    name: str
    settings: dict[str, int | str | bool]


class Batches(msgspec.Struct, frozen=True, array_like=True):
    batches: list[wire.Kept]


class Rows(msgspec.Struct, frozen=True, array_like=True):
    rows: list[tuple[str, bytes]]
    #: As in `Snapped`; empty in a file of version 0.1.0.
    ttls_ms: list[int] = msgspec.field(default_factory=list)


class TopicKept(msgspec.Struct, frozen=True, array_like=True):
    name: str
    bindings: list[wire.Binding]


class End(msgspec.Struct, frozen=True, array_like=True):
    queues: int
    batches: int
    messages: int
    rows: int
    ended: str
    topics: int = 0


Record = Start | QueueKept | Batches | Rows | End | TopicKept
_KINDS: Final[dict[int, type[Record]]] = {
    1: Start, 2: QueueKept, 3: Batches, 4: Rows, 5: End, 6: TopicKept,
}  # fmt: skip
_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}


class Writer:
    """Use `with`: the file appears under its name when the block ends without an error."""

    def __init__(self, path: Path, version: int = VERSION) -> None:
        self._path = path
        self._draft = path.with_name(path.name + ".partial")
        handle = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(handle, "wb")
        self._file.write(_FIRST_LINE % version)
        self._sum = 0

    def write(self, record: Record) -> None:
        data = msgspec.msgpack.encode(record)
        assert len(data) <= RECORD_BYTES_MAX, len(data)
        self._sum = xxhash.xxh3_64_intdigest(data, self._sum)
        self._file.write(_record.pack(_NUMBERS[type(record)], len(data), self._sum) + data)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        if kind is not None:
            self._draft.unlink(missing_ok=True)
            return
        self._draft.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read(path: Path) -> Iterator[Record]:
    """Yields all records, each checked; raises BackupDamaged with the place, or StoreVersion."""
    with path.open("rb") as file:
        _check_version(file, path)
        total, before, ended = 0, 0, False
        while head := file.read(_record.size):
            place = f"{path}, record {total}"
            if ended:
                raise BackupDamaged(f"{place} comes after the end: the file is not as it was made")
            record, before = _next(file, head, before, place)
            if (total == 0) != isinstance(record, Start):
                raise BackupDamaged(f"{place} does not belong there: {type(record).__name__}")
            ended = isinstance(record, End)
            total += 1
            yield record
        if not ended:
            raise BackupDamaged(f"{path} was cut off after {total} records: it has no end")


def _check_version(file: BinaryIO, path: Path) -> None:
    line = file.readline(_LINE_BYTES_MAX)
    words = line.split()
    if words[:2] != [b"weft", b"backup"] or len(words) != 3 or not words[2].isdigit():
        raise BackupDamaged(f"{path} is not a backup: it does not begin with 'weft backup'")
    if int(words[2]) > VERSION:
        raise StoreVersion(
            f"{path} is a backup of version {int(words[2])}; this Weft reads up to {VERSION}"
        )


def _next(file: BinaryIO, head: bytes, before: int, place: str) -> tuple[Record, int]:
    if len(head) < _record.size:
        raise BackupDamaged(f"{place} is cut off")
    number, length, checksum = _record.unpack(head)
    kind = _KINDS.get(number)
    if kind is None or length > RECORD_BYTES_MAX:
        raise BackupDamaged(f"{place} was changed: it has kind {number} and {length} bytes")
    data = file.read(length)
    if len(data) < length:
        raise BackupDamaged(f"{place} is cut off: it has {len(data)} of {length} bytes")
    if xxhash.xxh3_64_intdigest(data, before) != checksum:
        raise BackupDamaged(f"{place} was changed: its checksum does not match")
    try:
        return msgspec.msgpack.decode(data, type=kind), checksum
    except wire.MALFORMED as error:
        raise BackupDamaged(f"{place} is not readable: {error}") from None
