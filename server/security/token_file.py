"""Tokens: the file of valid tokens, reloaded when it changes.

A token is ``weft_ID_SECRET``. The file has the id, so that a token can be listed and revoked, and a
SHA-256 of the secret, never the secret itself. A slow hash is for passwords: the secret is 256
random bits, which no attacker guesses however fast the hash. The file's date is checked at most
once a second. An unreadable file changes nothing and is logged as an error: an operator's typing
mistake must neither lock all clients out nor let any in.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from weft.errors import InvalidArgument
from weft.limits import check_range
from weft.server.observability.log import fields

from .access import Grant, Limits, Principal

log = logging.getLogger(__name__)

PREFIX: Final = "weft"
_ID_BYTES: Final = 4
_SECRET_BYTES: Final = 32
#: A longer text is not a token, and is not hashed.
TOKEN_CHARACTERS_MAX: Final = 100
POLL_S: Final = 1.0
#: All tokens are in memory and in one file.
TOKENS_MAX: Final = 10_000
GRANTS_MAX: Final = 100
NAME_CHARACTERS_MAX: Final = 80
LIMIT_MAX: Final = 1 << 50
NO_LIMITS: Final = Limits()


class TokenEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One token as stored; times are seconds since 1970."""

    id: str
    name: str
    sha256: str
    grants: list[str]
    created: int
    #: 0: never.
    expires: int = 0
    #: As in `access.Limits`; 0: no limit.
    rate: int = 0
    bytes_rate: int = 0
    queues: int = 0


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: list[TokenEntry]


class TokenFile:
    """The tokens of a running node. Safe to use from any thread."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self._path = Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp = _stamp(self._path)
        self._by_id = _parse(self._path)
        #: Verified tokens, until the file changes: hashing a token costs more than all other access
        #: checks of a request. Wrong tokens are not cached, so the cache is no larger than the
        #: file.
        self._right: dict[str, tuple[TokenEntry, Principal]] = {}
        self._check_at = time.monotonic() + POLL_S

    def principal(self, token: str) -> Principal | None:
        if time.monotonic() >= self._check_at:
            self._reload_if_changed()
        right = self._right  # one consistent cache, even if another thread reloads
        found = right.get(token)
        if found is None:
            found = self._verified(token)
            if found is None:
                return None
            right[token] = found
        entry, principal = found
        if entry.expires and self._clock() >= entry.expires:
            return None
        return principal

    def _verified(self, token: str) -> tuple[TokenEntry, Principal] | None:
        parts = token.split("_", 2) if len(token) <= TOKEN_CHARACTERS_MAX else []
        found = self._by_id.get(parts[1]) if len(parts) == 3 and parts[0] == PREFIX else None
        if found is None or not hmac.compare_digest(_hash(parts[2]), found[0].sha256):
            return None
        return found

    def _reload_if_changed(self) -> None:
        if not self._lock.acquire(blocking=False):
            return  # another thread is checking
        try:
            self._check_at = time.monotonic() + POLL_S
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._stamp = stamp
                self._by_id = _parse(self._path)
                self._right = {}
                log.info("tokens read again", extra=fields(tokens=len(self._by_id)))
        except InvalidArgument as error:
            log.error("tokens not read again", extra=fields(error=error.message))
        finally:
            self._lock.release()


def create(
    path: Path, name: str, grants: list[str], expires: int, limits: Limits = NO_LIMITS
) -> tuple[TokenEntry, str]:
    """Adds a token to the file; returns the entry and the token, which is stored nowhere else."""
    for what in ("rate", "bytes_rate", "queues"):
        check_range(what, getattr(limits, what), 0, LIMIT_MAX)
    if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
        raise InvalidArgument(f"a token's name is 1 to {NAME_CHARACTERS_MAX} printable characters")
    if not 1 <= len(grants) <= GRANTS_MAX:
        raise InvalidArgument(f"a token has 1 to {GRANTS_MAX} grants, as push:orders.*")
    checked = [str(Grant.parse(text)) for text in grants]
    ident, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    entry = TokenEntry(
        ident, name, _hash(secret), checked, int(time.time()), expires, limits.rate,
        limits.bytes_rate, limits.queues,
    )  # fmt: skip
    with _changing(path) as entries:
        if len(entries) >= TOKENS_MAX:
            raise InvalidArgument(f"{path} has {len(entries)} tokens already: revoke some")
        entries.append(entry)
    return entry, f"{PREFIX}_{ident}_{secret}"


def revoke(path: Path, which: str) -> list[TokenEntry]:
    """Removes the tokens of the given id or name from the file; returns the removed entries."""
    with _changing(path) as entries:
        gone = [entry for entry in entries if which in (entry.id, entry.name)]
        if not gone:
            raise InvalidArgument(f"{path} has no token with the id or name {which[:100]!r}")
        entries[:] = [entry for entry in entries if entry not in gone]
    return gone


def read(path: Path) -> list[TokenEntry]:
    return [entry for entry, _ in _parse(path).values()]


@contextmanager
def _changing(path: Path) -> Iterator[list[TokenEntry]]:
    """Yields the entries for modification; replaces the file as a whole, so no node reads half."""
    try:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = read(path) if path.exists() else []
            yield entries
            _write(path, entries)
        finally:
            os.close(lock)
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}") from None


def _write(path: Path, entries: list[TokenEntry]) -> None:
    draft = path.with_suffix(".tmp")
    text = msgspec.json.format(msgspec.json.encode(_File(entries)), indent=1)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(text + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _parse(path: Path) -> dict[str, tuple[TokenEntry, Principal]]:
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=_File).tokens
    except OSError as error:
        raise InvalidArgument(
            f"tokens {path} cannot be read: {error.strerror}. Create it with weft token create"
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"tokens {path} is not a file of tokens: {error}") from None
    return {
        entry.id: (
            entry,
            Principal(
                entry.name,
                tuple(map(Grant.parse, entry.grants)),
                Limits(entry.rate, entry.bytes_rate, entry.queues),
            ),
        )
        for entry in entries
    }


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_ino, found.st_size


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
