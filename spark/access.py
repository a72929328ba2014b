"""The way to the cluster: what a process needs to connect, and the one connection it then keeps.

Spark pickles readers and writers and sends them to executors, so they hold an `Access`, which is
plain text, and never a connection. A connection is opened when a process first needs it, and kept
for as long as the process lives: Python workers serve many tasks.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from weft.client.sync import Client

#: Different clusters or credentials that one process talks to; the least recently used goes first.
CLIENTS_MAX: Final = 16
#: A node that dies is replaced within seconds; a task should outlive that, not a dead cluster.
TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True)
class Access:
    """How to reach a cluster. Where token and tls are None, each process's environment counts."""

    servers: str
    token: str | None = field(default=None, repr=False)
    #: The file of the nodes' authority; "system" for the system's own; "" for no TLS.
    tls: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def client(self) -> Client:
        """The connection of this process."""
        # A forked worker must not use what its parent opened, so the process is part of the key.
        key = os.getpid(), self
        with _lock:
            client = _clients.pop(key, None)
            if client is None:
                client = self._connect()
            _clients[key] = client
            while len(_clients) > CLIENTS_MAX:
                (pid, _), oldest = next(iter(_clients.items()))
                del _clients[next(iter(_clients))]
                if pid == os.getpid():
                    oldest.close()
        return client

    def _connect(self) -> Client:
        from weft.client.credentials import Tls
        from weft.client.sync import connect

        tls: Tls | bool | None = None
        if self.tls is not None:
            ca = None if self.tls == "system" else self.tls
            tls = Tls(ca, self.tls_cert, self.tls_key) if self.tls else False
        return connect(self.servers, token=self.token, tls=tls, timeout_ms=TIMEOUT_MS)


_lock = threading.Lock()
_clients: dict[tuple[int, Access], Client] = {}
