"""Access to the cluster: the connection parameters of a process, and its one connection.

Spark pickles readers and writers and sends them to executors. So they hold a `ClusterAccess`, which
is plain text, and never a connection. A process opens a connection on first use and keeps it until
it exits: Python workers serve many tasks.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from weft.client.sync_client import Client

#: Limit on cached clients (clusters or credentials) of one process; least recently used go first.
CLIENTS_MAX: Final = 16
#: A task should survive a failover, which takes seconds, but not a dead cluster.
TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True)
class ClusterAccess:
    """Connection parameters. If token and tls are None, the environment of each process applies."""

    servers: str
    token: str | None = field(default=None, repr=False)
    #: The CA file of the nodes' certificates; "system" for the system's authorities; "" for no TLS.
    tls: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def client(self) -> Client:
        """Returns the client of this process."""
        # A forked worker must not use its parent's connections, so the process id is part of the
        # key.
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
        from weft.client.sync_client import connect
        from weft.client.transport.credentials import Tls

        tls: Tls | bool | None = None
        if self.tls is not None:
            ca = None if self.tls == "system" else self.tls
            tls = Tls(ca, self.tls_cert, self.tls_key) if self.tls else False
        return connect(self.servers, token=self.token, tls=tls, timeout_ms=TIMEOUT_MS)


_lock = threading.Lock()
_clients: dict[tuple[int, ClusterAccess], Client] = {}
