"""A node's data directory: who this node is, and the lock that keeps a second process out.

| name        | what                                                                           |
|-------------|--------------------------------------------------------------------------------|
| `node.json` | the data format, the node's id, its cluster's id; written once, atomically      |
| `curve.json`| the node's secret key, for its owner alone (`keys`)                             |
| `lock`      | held with flock as long as the process lives; holds the pid, for people         |
| `store`     | LevelDB                                                                         |
| `store.new` | an empty store while the directory is being made                                |

Making a directory survives a crash at any step: an empty store is made as `store.new`, then
`node.json` appears, then `store.new` becomes `store`. So without `node.json` there was never any
data, and a `store` without it (or it without a store) means that somebody removed something: that
is an error, nothing is made up and nothing is removed.

A node's id is random and is never used again: a node whose data is gone comes back as another one.

**Formats.** `node.json` says in which format the directory is. A newer one is refused. An older one
is brought up to date when it is opened, format by format, by the steps of `UPGRADES`, under the
lock and before anything else is read; then `node.json` gets the new number, atomically. A step may
be cut off at any moment and is then made again from its beginning, so each must bear being repeated
on what it has half done. There is no way back: an older Weft refuses the directory from then on. A
step that changes records writes them with `sync=True`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
import xxhash

from weft.errors import StorageError, StoreDamaged, StoreLocked, StoreVersion

from .keys import Keys, open_keys
from .leveldb import LevelStore
from .syncmark import sync_folder

#: The newest data format that this code reads, and the one it writes.
#: 1 was the first. 2: large payloads in segments, parts that are held (reserved or staged).
FORMAT: Final = 2
#: From each older format to the next one: what is to be done in the directory. What 2 added, a
#: directory of 1 just does not have; the number keeps an older Weft from misreading it.
UPGRADES: Final[dict[int, Callable[[Path], None]]] = {1: lambda path: None}
#: Slices of the hash space of a new cluster; fixed for the cluster's life.
PARTITIONS_DEFAULT: Final = 256
#: A partition's number has 16 bits in a message id, and one number is the catalogue's.
PARTITIONS_MAX: Final = (1 << 16) - 1

_RESTORE: Final = "Restore this data directory from a backup, or start an empty one with --data"


class _Header(msgspec.Struct):
    """What every format, past and future, says first."""

    format: int
    weft: str = "an unknown version"


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`node.json`. Changing a field, or what one means, needs a new format number."""

    format: int
    #: The Weft that made the directory.
    weft: str
    #: 16 hexadecimal digits.
    node: str
    #: 32 hexadecimal digits.
    cluster: str
    partitions: int
    #: When the directory was made, ISO 8601, for people.
    created: str
    #: xxh3-64 of all of the above: a flipped bit must not make this another node.
    checksum: str = ""

    def sealed(self) -> Node:
        return msgspec.structs.replace(self, checksum=self._sum())

    def intact(self) -> bool:
        return self.checksum == self._sum()

    def _sum(self) -> str:
        fields = msgspec.json.encode(msgspec.structs.replace(self, checksum=""))
        return xxhash.xxh3_64_hexdigest(fields)


class DataDirectory:
    """An open data directory; `open` makes one, `close` gives it back."""

    def __init__(self, path: Path, node: Node, keys: Keys, lock: int) -> None:
        self._path = path
        self._node = node
        self._lock = lock
        #: This node's CURVE keys.
        self.keys = keys

    @staticmethod
    def is_made(path: str | os.PathLike[str]) -> bool:
        """Whether there is a data directory, whatever its state."""
        return (Path(path) / "node.json").exists()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        cluster: str | None = None,
        partitions: int | None = None,
    ) -> DataDirectory:
        """Open the directory at ``path``, or make it.

        A new one founds a cluster, or, with ``cluster`` and its ``partitions``, is made for that
        one. A directory of another cluster is refused.
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
                "Give a directory that this user may write, with --data"
            ) from error

    @property
    def path(self) -> str:
        return str(self._path)

    @property
    def node(self) -> str:
        """This node's id: 16 hexadecimal digits, never used again."""
        return self._node.node

    @property
    def cluster(self) -> str:
        """The id of the cluster that this directory was made for: 32 hexadecimal digits."""
        return self._node.cluster

    @property
    def partitions(self) -> int:
        return self._node.partitions

    @property
    def store_path(self) -> str:
        return str(self._path / "store")

    def open_store(self) -> LevelStore:
        """The store in this directory. It is there: `open` made it, or refused."""
        assert self._lock >= 0, "the directory is closed"
        return LevelStore(self.store_path, create=False)

    def free_bytes(self) -> int:
        """What an ordinary user may still write on this disk."""
        disk = os.statvfs(self._path)
        return disk.f_bavail * disk.f_frsize

    def close(self) -> None:
        """Give the lock back. Close the store first."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _make_folder(where: Path) -> None:
    missing = [folder for folder in (where, *where.parents) if not folder.exists()]
    where.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        # Or a power loss takes the folder away again, with all that is in it.
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
                f"{path.parent} is in use by {holder}. Stop it, or give another --data"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _open_node(where: Path, cluster: str | None, partitions: int | None) -> Node:
    """Read `node.json`, or make the directory. The lock is held."""
    file, store, new = where / "node.json", where / "store", where / "store.new"
    if not file.exists():
        if store.exists():
            raise StoreDamaged(f"{file} is missing, but {store} is there. {_RESTORE}")
        return _make(file, store, new, cluster, partitions)
    node = _read(file)
    if cluster is not None and (node.cluster, node.partitions) != (cluster, partitions):
        raise StorageError(
            f"{where} belongs to cluster {node.cluster} with {node.partitions} partitions, not to "
            f"{cluster} with {partitions}. Join that one with an empty --data"
        )
    if not store.exists():
        if not new.exists():
            raise StoreDamaged(f"{store} is missing, but {file} is there. {_RESTORE}")
        _rename(new, store)
    return _upgraded(file, node)


def _make(file: Path, store: Path, new: Path, cluster: str | None, partitions: int | None) -> Node:
    if new.exists():
        # An earlier attempt ended before node.json: nobody has ever written into this store.
        shutil.rmtree(new)
    LevelStore(new, create=True).close()
    node = Node(
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


def _read(file: Path) -> Node:
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
                "this Weft does not know any more. Back it up with that one and restore it here"
            )
        node = msgspec.json.decode(raw, type=Node)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreDamaged(f"{file} is not readable: {error}. {_RESTORE}") from error
    if not node.intact():
        raise StoreDamaged(f"{file} was changed: its checksum does not match. {_RESTORE}")
    return node


def _upgraded(file: Path, node: Node) -> Node:
    """The directory in today's format."""
    while node.format < FORMAT:
        UPGRADES[node.format](file.parent)
        node = msgspec.structs.replace(node, format=node.format + 1).sealed()
        _write(file, msgspec.json.format(msgspec.json.encode(node), indent=2) + b"\n")
    return node


def _write(file: Path, data: bytes) -> None:
    """All of it or nothing, and on disk when this returns."""
    draft = file.with_suffix(".tmp")
    with draft.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    _rename(draft, file)


def _rename(source: Path, target: Path) -> None:
    source.rename(target)
    sync_folder(str(target.parent))
