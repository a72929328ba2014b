"""Name resolution for a connection: the one step that would block, so it runs in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable


class NameLookup:
    """Resolves one name at a time. As in ZeroMQ, a name resolves to IPv4 addresses only."""

    def __init__(self, on_found: Callable[[], None]) -> None:
        self._on_found = on_found
        self._thread: threading.Thread | None = None
        #: The resolved name and its first address; the address is empty if there is none.
        self.found: tuple[str, str] | None = None

    def start(self, host: str) -> None:
        """Sets `found` at once for an address. For a name, a thread sets it and calls `on_found`.

        While an older name is being resolved, the call starts nothing: the connection sees the
        older name in `found`, and asks again.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            socket.inet_pton(family, host)
        except OSError:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._resolve, args=(host,), daemon=True)
                self._thread.start()
            return
        self.found = host, host

    def take(self) -> tuple[str, str] | None:
        found, self.found = self.found, None
        return found

    def _resolve(self, name: str) -> None:
        try:
            answers = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
            self.found = name, str(answers[0][4][0])
        except OSError:
            self.found = name, ""
        self._on_found()
