"""The store on disk: LevelDB through plyvel, and every way it fails mapped to a Weft error."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import plyvel

from weft.errors import StorageError, StoreDamaged, StoreLocked
from weft.limits import KIB, MIB

from .store import Change

#: A log is turned into a table when it has grown to this. Larger means fewer tables on level 0
#: and so less rewriting; it is also what a restart replays and (twice) what is held in memory.
WRITE_BUFFER_BYTES: Final = 32 * MIB
#: Tables kept open; each costs a file descriptor and its index in memory.
OPEN_FILES_MAX: Final = 512
#: One table. Payloads are large, so the default of 2 MiB would hold a dozen of them.
TABLE_BYTES_MAX: Final = 16 * MIB
#: Heads are read by scans and payloads are larger than any block: a middle size serves both.
BLOCK_BYTES: Final = 16 * KIB
#: Uncompressed blocks kept in memory for reads.
CACHE_BYTES: Final = 32 * MIB
#: Ten bits a key: one in a hundred look-ups of an absent key still reads a table.
BLOOM_BITS: Final = 10
#: A scan copies this much out of LevelDB at a time, at least one value.
SCAN_BYTES: Final = 1 * MIB


class LevelStore:
    """A Store in one directory. One thread writes; any thread reads; any thread closes."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        """Open the store in ``path``; with ``create``, make it if nothing is there yet."""
        self._path = os.fspath(path)
        self._failure: str | None = None
        self._users = 0
        self._gate = threading.Condition()
        self._db = _open(self._path, create=create)

    @property
    def path(self) -> str:
        return self._path

    def get(self, key: bytes) -> bytes | None:
        with self._use() as db:
            try:
                value: bytes | None = db.get(key, verify_checksums=True)
            except (plyvel.Error, OSError) as error:
                raise self._damaged(error) from error
            return value

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._use() as db:
            try:
                rows = db.iterator(start=start, stop=stop, verify_checksums=True, fill_cache=False)
            except (plyvel.Error, OSError) as error:
                raise self._damaged(error) from error
        return self._rows(rows)

    def write(self, changes: list[Change], *, sync: bool) -> None:
        with self._use() as db:
            batch = db.write_batch(sync=sync)
            for key, value in changes:
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
            try:
                batch.write()
            except (plyvel.Error, OSError) as error:
                self._failure = (
                    f"{self._path}: a write failed: {_text(error)}. Nothing more is written: free "
                    "or repair the disk, then start the node again"
                )
                raise StorageError(self._failure) from error

    def size_bytes(self) -> int:
        with self._use():
            return _directory_bytes(self._path)

    def close(self) -> None:
        with self._gate:
            db, self._db = self._db, None
            # plyvel frees LevelDB under a call that still runs in another thread.
            self._gate.wait_for(lambda: self._users == 0)
        if db is not None:
            db.close()

    @contextmanager
    def _use(self) -> Iterator[Any]:
        with self._gate:
            if self._failure is not None:
                raise StorageError(self._failure)
            if self._db is None:
                raise StorageError(f"{self._path}: the store is closed; open it again to use it")
            db = self._db
            self._users += 1
        try:
            yield db
        finally:
            with self._gate:
                self._users -= 1
                self._gate.notify_all()

    def _rows(self, rows: Any) -> Iterator[tuple[bytes, bytes]]:
        try:
            while chunk := self._chunk(rows):
                yield from chunk
        finally:
            rows.close()

    def _chunk(self, rows: Any) -> list[tuple[bytes, bytes]]:
        """The next rows of a scan; empty at its end."""
        chunk: list[tuple[bytes, bytes]] = []
        size = 0
        with self._use():
            try:
                for row in rows:
                    chunk.append(row)
                    size += len(row[1])
                    if size >= SCAN_BYTES or len(chunk) >= SCAN_BYTES >> 10:
                        break
            except (plyvel.Error, OSError) as error:
                raise self._damaged(error) from error
        return chunk

    def _damaged(self, error: Exception) -> StoreDamaged:
        return StoreDamaged(
            f"{self._path}: a read failed: {_text(error)}. "
            "Restore this data directory from a backup or a replica"
        )


def _open(path: str, *, create: bool) -> Any:
    try:
        return plyvel.DB(
            path,
            create_if_missing=create,
            # Without it LevelDB drops what it cannot read from its log, and says nothing.
            paranoid_checks=True,
            # Payloads are compressed by those who push them, if at all.
            compression=None,
            write_buffer_size=WRITE_BUFFER_BYTES,
            max_open_files=OPEN_FILES_MAX,
            max_file_size=TABLE_BYTES_MAX,
            block_size=BLOCK_BYTES,
            lru_cache_size=CACHE_BYTES,
            bloom_filter_bits=BLOOM_BITS,
        )
    except (plyvel.Error, OSError) as error:
        text = _text(error)
        if "LOCK" in text and ("already held" in text or "unavailable" in text):
            raise StoreLocked(
                f"{path} is open in another process. Stop it, or give another --data"
            ) from error
        if isinstance(error, plyvel.IOError):
            raise StorageError(
                f"{path} cannot be opened: {text}. Check the disk and who may write there"
            ) from error
        raise StoreDamaged(
            f"{path} cannot be opened: {text}. "
            "Restore this data directory from a backup or a replica"
        ) from error


def _text(error: Exception) -> str:
    """What LevelDB said; plyvel hands it on as bytes."""
    said = error.args[0] if error.args else error
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _directory_bytes(path: str) -> int:
    total = 0
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                total += entry.stat().st_size
            except FileNotFoundError:
                continue  # LevelDB removes old files in the background.
    return total
