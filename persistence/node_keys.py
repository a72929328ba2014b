"""The node's CURVE keys: the node's identity towards the other nodes.

`curve.json` holds the secret key, readable by the owner alone; the public key is derived from the
secret key and published in the cluster's view. The file is written once, atomically, and a
directory from before there were keys gets a key when the directory is opened. A key changed on disk
is refused: with another key the node would be a stranger to its cluster.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import xxhash
import zmq

from weft.errors import StoreDamaged

from .folder import sync_folder

NAME: Final = "curve.json"
_OWNER_ALONE: Final = 0o600
_RESTORE: Final = (
    "Restore the file from a backup, or join the cluster as a new node with an empty --data"
)


class Keys(NamedTuple):
    """A key pair, each key in Z85, 40 characters."""

    public: str
    secret: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    secret: str
    #: xxh3-64 of the secret: a flipped bit would give a valid key that no node knows.
    checksum: str


def open_keys(folder: Path) -> Keys:
    """The keys in this folder, created if missing. The caller holds the directory's lock."""
    file = folder / NAME
    return _read(file) if file.exists() else _make(file)


def make_keys() -> Keys:
    public, secret = zmq.curve_keypair()
    return Keys(public.decode(), secret.decode())


def _make(file: Path) -> Keys:
    keys = make_keys()
    data = msgspec.json.encode(_File(keys.secret, _sum(keys.secret))) + b"\n"
    draft = file.with_suffix(".tmp")
    draft.unlink(missing_ok=True)  # left by an earlier attempt
    out = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ALONE)
    try:
        os.fchmod(out, _OWNER_ALONE)  # restore bits that the umask removed
        os.write(out, data)
        os.fsync(out)
    finally:
        os.close(out)
    draft.rename(file)
    sync_folder(str(file.parent))
    return keys


def _read(file: Path) -> Keys:
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreDamaged(f"{file} is not readable: {error}. {_RESTORE}") from error
    if found.checksum != _sum(found.secret):
        raise StoreDamaged(f"{file} was changed: its checksum does not match. {_RESTORE}")
    return Keys(zmq.curve_public(found.secret.encode()).decode(), found.secret)


def _sum(secret: str) -> str:
    return xxhash.xxh3_64_hexdigest(secret.encode())
