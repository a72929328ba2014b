"""The LevelDB database of a store: its options, its creation, its opening, and syncs of its files.

Invariants:

- `open_database` examines the files (`integrity`) before LevelDB opens, and so changes, the files.
  It returns a database only if the newest commit number in the database is at least that of the
  newest synced write: a database that has lost a synced write raises StoreDamaged with the names of
  the files.
- Every plyvel error of creating and opening becomes StoreDamaged, StoreLocked or OSError here.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final

import plyvel

from weft.errors import StoreDamaged, StoreLocked
from weft.limits import KIB, MIB

from . import integrity
from .folder import sync_folder
from .integrity import COMMIT_KEY, RESTORE

#: LevelDB converts a log into a table at this size. A larger value means fewer tables on level 0
#: and so less rewriting, but a restart replays this much and memory holds twice this much.
WRITE_BUFFER_BYTES: Final = 32 * MIB
#: Tables kept open; each table costs a file descriptor and the memory of the table's index.
OPEN_FILES_MAX: Final = 512
#: Size of one table. Payloads are large: the default of 2 MiB would hold a dozen payloads, and
#: merging would constantly open and close files.
TABLE_BYTES_MAX: Final = 16 * MIB
#: Scans read heads, and payloads are larger than any block: a middle size serves both.
BLOCK_BYTES: Final = 16 * KIB
#: The block cache for reads.
CACHE_BYTES: Final = 32 * MIB
#: Ten bits per key: one in a hundred look-ups of an absent key still reads a table.
BLOOM_BITS: Final = 10


def make_database(path: str) -> Any:
    """Create an empty database in ``path``."""
    os.makedirs(path, exist_ok=True)
    return _level(path, create=True)


def open_database(path: str, synced: int) -> tuple[Any, int]:
    """The existing database in ``path``, and the commit number of its newest write; ``synced`` is
    the number of the newest synced write."""
    empty_logs = integrity.check(path, synced)
    db = _level(path, create=False)
    try:
        # LevelDB has created new files and does not sync the folder after the last one.
        sync_folder(path)
        commit = _read_commit(db, path)
        if commit < synced:
            raise integrity.ends_early(empty_logs, commit, synced)
    except BaseException:
        db.close()
        raise
    return db, commit


def _read_commit(db: Any, path: str) -> int:
    try:
        return integrity.unpack_commit(db.get(COMMIT_KEY, verify_checksums=True))
    except plyvel.Error as error:
        where = integrity.find_bad_table(path, COMMIT_KEY, COMMIT_KEY)
        raise StoreDamaged(f"{where} cannot be read: {error_text(error)}. {RESTORE}") from error


def _level(path: str, *, create: bool) -> Any:
    try:
        return plyvel.DB(
            path,
            create_if_missing=create,
            # Without paranoid_checks LevelDB silently drops unreadable parts of its log.
            paranoid_checks=True,
            # Producers compress large payloads; compressing twice only costs time.
            compression=None,
            write_buffer_size=WRITE_BUFFER_BYTES,
            max_open_files=OPEN_FILES_MAX,
            max_file_size=TABLE_BYTES_MAX,
            block_size=BLOCK_BYTES,
            lru_cache_size=CACHE_BYTES,
            bloom_filter_bits=BLOOM_BITS,
        )
    except plyvel.IOError as error:
        text = error_text(error)
        if text.startswith("IO error: lock "):
            raise StoreLocked(
                f"{path} is open in another process. Stop that process, or set another --data"
            ) from error
        raise OSError(text) from error
    except plyvel.Error as error:
        where = integrity.find_bad_records(path)
        raise StoreDamaged(f"{where} cannot be read: {error_text(error)}. {RESTORE}") from error


def sync_logs(path: str) -> None:
    """Sync every log of the database, so that all earlier writes are durable."""
    for log in integrity.log_paths(path):
        try:
            fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # LevelDB removes a log once a synced table holds the log's contents.
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def error_text(error: Exception) -> str:
    """LevelDB's message; plyvel passes the message on as bytes."""
    said = error.args[0] if len(error.args) == 1 else error
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def give_back_memory() -> None:
    """Return freed memory to the system. During recovery LevelDB reads its log into memory, up to a
    write buffer, and frees the memory. The C library would keep the memory for this thread, but a
    node writes in another thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # only glibc has malloc_trim
        trim(0)
