"""One acting provisioner per app: a row of the hash table that expires.

The holder writes the row again at each interval, on the condition of the version that the holder
wrote last. The time is counted from before the write, so the holder stops acting before the row
expires.
"""

from __future__ import annotations

import os
import secrets
import socket
import time

from weft.client.sync_client import Client
from weft.errors import VersionMismatch, WeftError


class ProvisionerLease:
    def __init__(self, client: Client, app: str, name: str, ttl_s: float) -> None:
        self._client = client
        self._key = f"tasks/{app}/v/{name}"
        self._ttl_s = ttl_s
        self._version = 0
        self._until = 0.0
        self._value = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(4)}".encode()

    @property
    def held(self) -> bool:
        """True while no other provisioner can hold the lease."""
        return time.monotonic() < self._until

    def renew(self) -> bool:
        """Takes or keeps the lease; False if another provisioner has it. Raises the errors of a
        table write; the lease then ends at its time."""
        began = time.monotonic()
        try:
            self._version = self._client.kv.insert(
                self._key, self._value, ttl_ms=int(self._ttl_s * 1000), if_version=self._version
            )
        except VersionMismatch:
            entry = self._client.kv.lookup_entry(self._key)
            mine = entry is not None and entry.value == self._value
            # A lost answer: the row is this one's. No row: it has expired, or was never there.
            self._version = entry.version if entry is not None and mine else 0
            if entry is not None and not mine:
                self._until = 0.0
                return False
            return self._again(began)
        self._until = began + self._ttl_s
        return True

    def _again(self, began: float) -> bool:
        try:
            self._version = self._client.kv.insert(
                self._key, self._value, ttl_ms=int(self._ttl_s * 1000), if_version=self._version
            )
        except VersionMismatch:
            self._version, self._until = 0, 0.0
            return False
        self._until = began + self._ttl_s
        return True

    def release(self) -> None:
        """Lets another provisioner act at once."""
        held, self._until = self.held, 0.0
        try:
            if held:
                self._client.kv.remove(self._key, if_version=self._version)
        except WeftError:
            pass  # the row expires
