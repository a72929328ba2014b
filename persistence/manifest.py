"""Reads LevelDB's MANIFEST without LevelDB: the tables and the log that make up the store.

``CURRENT`` names the MANIFEST. The MANIFEST is a sequence of edits, each a sequence of tagged
fields, and the state is the sum of the edits. Only a few fields matter here; the reader skips the
rest.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final

from weft.errors import StoreDamaged

from . import leveldb_log

COMPARATOR, LOG_NUMBER, NEXT_FILE, LAST_SEQUENCE, COMPACT_POINTER = 1, 2, 3, 4, 5
DELETED_FILE, NEW_FILE, PREVIOUS_LOG = 6, 7, 9

#: LevelDB appends the sequence number and the kind to each internal key.
_INTERNAL_BYTES: Final = 8
_RESTORE: Final = "Restore this data directory from a backup or a replica"
_MANIFEST_NAME = re.compile(rb"MANIFEST-[0-9]+\n")


@dataclass(frozen=True)
class Table:
    number: int
    size: int
    #: The first and the last key of the table.
    first: bytes
    last: bytes

    @property
    def name(self) -> str:
        return f"{self.number:06d}.ldb"


@dataclass
class Manifest:
    """The sum of the edits."""

    path: str
    #: The contents of older logs are in tables; a start replays this log and newer ones.
    log_number: int = 0
    tables: dict[int, Table] = field(default_factory=dict)


def read(folder: str) -> Manifest:
    """The manifest of the store in ``folder``; raises StoreDamaged naming the damaged file."""
    current = os.path.join(folder, "CURRENT")
    try:
        with open(current, "rb") as file:
            name = file.read()
    except FileNotFoundError:
        raise StoreDamaged(f"{current} is missing. {_RESTORE}") from None
    if not _MANIFEST_NAME.fullmatch(name):
        raise StoreDamaged(f"{current} does not name a MANIFEST. {_RESTORE}")
    path = os.path.join(folder, name.decode().rstrip("\n"))
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise StoreDamaged(f"{path} is missing, but {current} names it. {_RESTORE}") from None
    manifest = Manifest(path)
    for edit in leveldb_log.records(data, path):
        try:
            _apply(manifest, edit)
        except IndexError:
            raise StoreDamaged(f"{path} has an edit that ends too early. {_RESTORE}") from None
    if manifest.log_number == 0:
        raise StoreDamaged(f"{path} ends too early: it names no log. {_RESTORE}")
    return manifest


def _apply(manifest: Manifest, edit: bytes) -> None:
    at = 0
    while at < len(edit):
        tag, at = varint(edit, at)
        if tag in (LOG_NUMBER, NEXT_FILE, LAST_SEQUENCE, PREVIOUS_LOG):
            number, at = varint(edit, at)
            if tag == LOG_NUMBER:
                manifest.log_number = number
        elif tag == COMPARATOR:
            _, at = _string(edit, at)
        elif tag == COMPACT_POINTER:
            _, at = varint(edit, at)
            _, at = _string(edit, at)
        elif tag == DELETED_FILE:
            _, at = varint(edit, at)
            number, at = varint(edit, at)
            manifest.tables.pop(number, None)
        elif tag == NEW_FILE:
            _, at = varint(edit, at)
            table, at = _new_table(edit, at)
            manifest.tables[table.number] = table
        else:
            raise StoreDamaged(f"{manifest.path} has an edit of unknown kind {tag}. {_RESTORE}")


def _new_table(edit: bytes, at: int) -> tuple[Table, int]:
    number, at = varint(edit, at)
    size, at = varint(edit, at)
    first, at = _string(edit, at)
    last, at = _string(edit, at)
    return Table(number, size, first[:-_INTERNAL_BYTES], last[:-_INTERNAL_BYTES]), at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """LevelDB's varint at ``at``, and the offset of the next field."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = varint(data, at)
    if at + length > len(data):
        raise IndexError
    return data[at : at + length], at + length
