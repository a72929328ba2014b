"""Integrity checks of a store's files, before LevelDB opens (and so changes) the files.

LevelDB verifies checksums. LevelDB does not notice that a file ends too early: a truncated log or
MANIFEST, or a missing log, opens without an error and holds less. So every write carries a commit
number (one more than the last) under the empty key, first in the batch, and:

1. every table in the MANIFEST exists, with the size recorded in the MANIFEST;
2. the log named in the MANIFEST exists (a truncated MANIFEST names a log removed long ago);
3. the commit numbers in the logs have no gap, and only the last logs may be empty;
4. the logs end at the mark (see `leveldb.SyncMark`) or after the mark.

The newest log may be empty, rightly or not. So rule 4 is checked again on the open store.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from typing import Final

from weft.errors import StoreDamaged
from weft.limits import MIB

from . import leveldb_log, leveldb_table, manifest
from .manifest import Manifest

#: Every write stores its commit number here. No other key is empty.
COMMIT_KEY: Final = b""
#: The search for a damaged table stops after this much: some ten seconds.
SEARCH_BYTES_MAX: Final = 96 * MIB
#: File names in an error message.
NAMES_MAX: Final = 8

RESTORE: Final = "Restore this data directory from a backup or a replica"
_LOG_NAME = re.compile(r"([0-9]{6,})\.log")
#: A batch in a log: sequence (8), count (4), then a put (1) of a key of length 0 and a value of 8.
_batch = struct.Struct(">12x3s8s")
_COMMIT_PUT: Final = bytes([1, 0, 8])


def check(folder: str, mark: int) -> list[str]:
    """Raise StoreDamaged, naming the file, or return the logs that may legitimately be empty."""
    current = manifest.read(folder)
    _check_tables(folder, current)
    logs = _logs(folder, current.log_number)
    first = _log_path(folder, current.log_number)
    if first not in logs:
        raise StoreDamaged(
            f"{first} is missing, but {current.path} names it: it was removed, or the latter was "
            f"cut off. {RESTORE}"
        )
    last = None
    empty: list[str] = []
    for path in logs:
        before = last
        for commit in _commits(path):
            if empty or (last is not None and commit != last + 1):
                raise _gap(empty or logs[: logs.index(path) + 1], path, last, commit)
            last = commit
        if last == before:
            empty.append(path)
    if last is not None and last < mark:
        raise ends_early([log for log in logs if log not in empty][-1:] + empty, last, mark)
    return empty


def ends_early(logs: list[str], commit: int, mark: int) -> StoreDamaged:
    """The error for one truncated log of ``logs``. The name of a missing newer log is unknown."""
    return StoreDamaged(
        f"{' or '.join(logs)} ends too early, at write {commit}, or a newer log was removed: "
        f"writes up to {mark} were on disk. {RESTORE}"
    )


def _gap(logs: list[str], path: str, last: int | None, commit: int) -> StoreDamaged:
    since = "nothing" if last is None else f"write {last}"
    return StoreDamaged(
        f"{' or '.join(logs)} has lost writes: {path} has write {commit} after {since}. {RESTORE}"
    )


def unpack_commit(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "big")


def find_bad_records(folder: str) -> str:
    """The MANIFEST or log with a wrong checksum, for an error message."""
    current = manifest.read(folder)
    for path in [current.path, *_logs(folder, current.log_number)]:
        try:
            offset = leveldb_log.first_bad_checksum(_read(path), path)
        except OSError as error:
            return f"{path} ({error.strerror})"
        if offset is not None:
            return f"{path} at byte {offset}"
    return folder


def find_bad_table(folder: str, start: bytes, stop: bytes | None) -> str:
    """The damaged table with keys from ``start`` to ``stop``, for an error message."""
    try:
        tables = manifest.read(folder).tables.values()
    except OSError as error:
        return f"{folder} ({error.strerror})"
    paths = []
    searched = 0
    for entry in tables:
        if entry.last < start or (stop is not None and stop < entry.first):
            continue
        paths.append(os.path.join(folder, entry.name))
        searched += entry.size
        if searched <= SEARCH_BYTES_MAX and _is_bad(paths[-1]):
            return paths[-1]
    return "one of " + ", ".join(paths[:NAMES_MAX]) if paths else folder


def _is_bad(path: str) -> bool:
    try:
        return leveldb_table.is_damaged(_read(path))
    except FileNotFoundError:
        return False  # A compaction has replaced the table, so the table was intact.
    except OSError:
        return True


def log_paths(folder: str) -> list[str]:
    """Every log in the folder, oldest first."""
    return _logs(folder, 0)


def _check_tables(folder: str, current: Manifest) -> None:
    for entry in current.tables.values():
        path = os.path.join(folder, entry.name)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            raise StoreDamaged(
                f"{path} is missing, but {current.path} names it: it was removed, or the latter "
                f"was cut off. {RESTORE}"
            ) from None
        if size != entry.size:
            raise StoreDamaged(
                f"{path} has {size} bytes, but {entry.size} in {current.path}. {RESTORE}"
            )


def _commits(path: str) -> Iterator[int]:
    for record in leveldb_log.records(_read(path), path):
        if len(record) < _batch.size or (fields := _batch.unpack_from(record))[0] != _COMMIT_PUT:
            raise StoreDamaged(f"{path} has a write without a commit number. {RESTORE}")
        yield unpack_commit(fields[1])


def _logs(folder: str, number_min: int) -> list[str]:
    numbers = [int(name[1]) for name in map(_LOG_NAME.fullmatch, os.listdir(folder)) if name]
    return [_log_path(folder, number) for number in sorted(numbers) if number >= number_min]


def _log_path(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number:06d}.log")


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
