"""A node's data directory: the node's identity, and the lock that keeps a second process out.

| name        | contents                                                                       |
|-------------|--------------------------------------------------------------------------------|
| `node.json` | the data format, the node's id, the cluster's id; written once, atomically      |
| `curve.json`| the node's secret key, readable by the owner alone (`node_keys`)                |
| `lock`      | held with flock as long as the process lives; holds the pid, for people         |
| `store`     | LevelDB                                                                         |
| `store.new` | an empty store while the directory is being created                             |

Creating a directory survives a crash at any step: `open` creates an empty store as `store.new`,
then writes `node.json`, then renames `store.new` to `store`. So without `node.json` there was never
any data. A `store` without `node.json`, or `node.json` without a store, means that a file was
removed: `open` raises an error, creates no replacement and removes no file.

A node's id is random and never reused: a node that lost all data comes back under another id.

**Formats.** `node.json` holds the format of the directory. `open` refuses a newer format. `open`
upgrades an older format, one format at a time, with the steps of `UPGRADES`, under the lock and
before any other file is read; then `node.json` gets the new number, atomically. A crash may cut a
step off at any moment, and the next `open` runs the step again from the beginning, so each step
must tolerate its own half-done work. There is no downgrade: an older Weft refuses the directory
from then on. A step that changes records writes the records with `sync=True`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
import xxhash

from weft.errors import StorageError, StoreDamaged, StoreLocked, StoreVersion

from .folder import sync_folder
from .leveldb import LevelStore
from .node_keys import Keys, open_keys

#: The newest data format that this code reads, and the only format that this code writes.
#: 1 was the first. 2: large payloads in segments, held parts (reserved or staged).
FORMAT: Final = 2
#: The step from each older format to the next. Format 2 only adds records that a directory of
#: format 1 lacks; the new number keeps an older Weft from misreading the directory.
UPGRADES: Final[dict[int, Callable[[Path], None]]] = {1: lambda path: None}
#: Partitions of the hash space of a new cluster; fixed for the cluster's life.
PARTITIONS_DEFAULT: Final = 256
#: A partition's number has 16 bits in a message id, and one number is the catalogue's.
PARTITIONS_MAX: Final = (1 << 16) - 1

_RESTORE: Final = "Restore this data directory from a backup, or start an empty one with --data"


class _Header(msgspec.Struct):
    """The fields that every format, past and future, has."""

    format: int
    weft: str = "an unknown version"


class NodeRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`node.json`. Changing a field, or a field's meaning, needs a new format number."""

    format: int
    #: The Weft version that created the directory.
    weft: str
    #: 16 hexadecimal digits.
    node: str
    #: 32 hexadecimal digits.
    cluster: str
    partitions: int
    #: Creation time of the directory, ISO 8601, for people.
    created: str
    #: xxh3-64 of all fields above: a flipped bit must not give the node another identity.
    checksum: str = ""

    def sealed(self) -> NodeRecord:
        return msgspec.structs.replace(self, checksum=self._sum())

    def intact(self) -> bool:
        return self.checksum == self._sum()

    def _sum(self) -> str:
        fields = msgspec.json.encode(msgspec.structs.replace(self, checksum=""))
        return xxhash.xxh3_64_hexdigest(fields)


class DataDirectory:
    """An open data directory; `open` creates or opens one, `close` releases the lock."""

    def __init__(self, path: Path, node: NodeRecord, keys: Keys, lock: int) -> None:
        self._path = path
        self._node = node
        self._lock = lock
        #: This node's CURVE keys.
        self.keys = keys

    @staticmethod
    def is_made(path: str | os.PathLike[str]) -> bool:
        """True if there is a data directory, in any state."""
        return (Path(path) / "node.json").exists()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        cluster: str | None = None,
        partitions: int | None = None,
    ) -> DataDirectory:
        """Open the directory at ``path``, or create the directory.

        A new directory founds a cluster, or, with ``cluster`` and ``partitions``, belongs to the
        given cluster. `open` refuses a directory of another cluster.
        """
        assert (cluster is None) == (partitions is None), "a cluster has its number of partitions"
        assert partitions is None or 1 <= partitions <= PARTITIONS_MAX
        where = Path(path).absolute()
        try:
            _make_folder(where)
            lock = _take_lock(where / "lock")
            try:
                node = _open_node(where, cluster, partitions)
                return cls(where, node, open_keys(where), lock)
            except BaseException:
                os.close(lock)
                raise
        except OSError as error:
            raise StorageError(
                f"{where} cannot be used as a data directory: {error.strerror or error}. "
                "Set --data to a directory that this user can write"
            ) from error

    @property
    def path(self) -> str:
        return str(self._path)

    @property
    def node(self) -> str:
        """This node's id: 16 hexadecimal digits, never reused."""
        return self._node.node

    @property
    def cluster(self) -> str:
        """The id of the cluster that the directory belongs to: 32 hexadecimal digits."""
        return self._node.cluster

    @property
    def partitions(self) -> int:
        return self._node.partitions

    @property
    def mode(self) -> int:
        """The directory's permission bits. A directory created by `open` has 0700: owner only."""
        return stat.S_IMODE(self._path.stat().st_mode)

    @property
    def store_path(self) -> str:
        return str(self._path / "store")

    def open_store(self) -> LevelStore:
        """Open the store in this directory. The store exists: otherwise `open` had refused."""
        assert self._lock >= 0, "the directory is closed"
        return LevelStore(self.store_path, create=False)

    def free_bytes(self) -> int:
        """Bytes that an unprivileged user may still write on this disk."""
        disk = os.statvfs(self._path)
        return disk.f_bavail * disk.f_frsize

    def close(self) -> None:
        """Release the lock. Close the store first."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _make_folder(where: Path) -> None:
    missing = [folder for folder in (where, *where.parents) if not folder.exists()]
    where.parent.mkdir(parents=True, exist_ok=True)
    where.mkdir(mode=0o700, exist_ok=True)
    for folder in missing:
        # Otherwise a power loss removes the folder again, with all files inside.
        sync_folder(str(folder.parent))


def _take_lock(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 32, 0).decode(errors="replace").strip()
            holder = f"process {pid}" if pid else "another process"
            raise StoreLocked(
                f"{path.parent} is in use by {holder}. Stop that process, or set another --data"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _open_node(where: Path, cluster: str | None, partitions: int | None) -> NodeRecord:
    """Read `node.json`, or create the directory. The caller holds the lock."""
    file, store, new = where / "node.json", where / "store", where / "store.new"
    if not file.exists():
        if store.exists():
            raise StoreDamaged(f"{file} is missing, but {store} exists. {_RESTORE}")
        return _make(file, store, new, cluster, partitions)
    node = _read(file)
    if cluster is not None and (node.cluster, node.partitions) != (cluster, partitions):
        raise StorageError(
            f"{where} belongs to cluster {node.cluster} with {node.partitions} partitions, not to "
            f"{cluster} with {partitions}. Join that one with an empty --data"
        )
    if not store.exists():
        if not new.exists():
            raise StoreDamaged(f"{store} is missing, but {file} exists. {_RESTORE}")
        _rename(new, store)
    return _upgraded(file, node)


def _make(
    file: Path, store: Path, new: Path, cluster: str | None, partitions: int | None
) -> NodeRecord:
    if new.exists():
        # An earlier attempt ended before node.json: no process has ever written into this store.
        shutil.rmtree(new)
    LevelStore(new, create=True).close()
    node = NodeRecord(
        format=FORMAT,
        weft=version("weft"),
        node=secrets.token_hex(8),
        cluster=cluster or secrets.token_hex(16),
        partitions=partitions or PARTITIONS_DEFAULT,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    ).sealed()
    _write(file, msgspec.json.format(msgspec.json.encode(node), indent=2) + b"\n")
    _rename(new, store)
    return node


def _read(file: Path) -> NodeRecord:
    raw = file.read_bytes()
    try:
        header = msgspec.json.decode(raw, type=_Header)
        if header.format > FORMAT:
            raise StoreVersion(
                f"{file} has data format {header.format}, written by Weft {header.weft}; this is "
                f"Weft {version('weft')}, which reads up to format {FORMAT}. Upgrade Weft"
            )
        if header.format < FORMAT and header.format not in UPGRADES:
            raise StoreVersion(
                f"{file} has data format {header.format}, written by Weft {header.weft}, which "
                "this version can no longer read. Back up with that version and restore with this"
            )
        node = msgspec.json.decode(raw, type=NodeRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreDamaged(f"{file} is not readable: {error}. {_RESTORE}") from error
    if not node.intact():
        raise StoreDamaged(f"{file} was changed: its checksum does not match. {_RESTORE}")
    return node


def _upgraded(file: Path, node: NodeRecord) -> NodeRecord:
    """Bring the directory to the current format; returns the new node record."""
    while node.format < FORMAT:
        UPGRADES[node.format](file.parent)
        node = msgspec.structs.replace(node, format=node.format + 1).sealed()
        _write(file, msgspec.json.format(msgspec.json.encode(node), indent=2) + b"\n")
    return node


def _write(file: Path, data: bytes) -> None:
    """Write the file atomically; the data is on disk on return."""
    draft = file.with_suffix(".tmp")
    with draft.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    _rename(draft, file)


def _rename(source: Path, target: Path) -> None:
    source.rename(target)
    sync_folder(str(target.parent))
