"""The key of a job: a random secret in the hash table, which a fetch of the job's blocks proves.

A token that reads the app's rows of the table is enough to fetch its blocks. The key itself never
travels between workers: a request carries a digest over the key, the server's challenge and the
request.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from typing import Final

from weft import limits
from weft.client.kv_core import KvCore
from weft.client.routing.session import ClientSession
from weft.client.transport.blocking_link import run
from weft.errors import VersionMismatch

KEY_BYTES: Final = 32
#: Longer than any block lives.
KEY_TTL_MS: Final = limits.TABLE_TTL_MS_MAX
#: Keys that a process remembers.
KEYS_MAX: Final = 1_000


def key_row(app: str, job: str) -> str:
    return f"tasks/{app}/y/{job}"


def proof(key: bytes, challenge: bytes, body: bytes) -> bytes:
    return hmac.digest(key, challenge + body, hashlib.sha256)


class JobKeys:
    """The keys of an app's jobs, over a blocking session; threads may share an instance."""

    def __init__(self, session: ClientSession, app: str) -> None:
        self._kv = KvCore(session)
        self._app = app
        self._known: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def find(self, job: str) -> bytes | None:
        """The key of a job; None if there is no such job. Raises the errors of a look-up."""
        known = self._known.get(job)
        if known is None:
            known = run(self._kv.lookup(key_row(self._app, job)))
            if known is not None:
                self._keep(job, known)
        return known

    def make(self, job: str) -> bytes:
        """The key of a job; the first caller of all processes makes it."""
        known = self.find(job)
        if known is not None:
            return known
        made = secrets.token_bytes(KEY_BYTES)
        try:
            row = key_row(self._app, job)
            run(self._kv.insert(row, made, if_version=0, ttl_ms=KEY_TTL_MS))
        except VersionMismatch:
            found = self.find(job)
            assert found is not None, "another process has made the key"
            return found
        self._keep(job, made)
        return made

    def _keep(self, job: str, key: bytes) -> None:
        with self._lock:
            if len(self._known) >= KEYS_MAX:
                self._known.clear()
            self._known[job] = key
