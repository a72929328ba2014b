"""A wake-up from any thread for the thread that polls a connection."""

from __future__ import annotations

import os
import threading


class Bell:
    """An eventfd that any thread rings: a name was resolved, or the connection must end."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Held during writes and close: a closed descriptor may already belong to another file.
        self._lock = threading.Lock()
        self.rang = False

    def fileno(self) -> int:
        return self._descriptor

    def ring(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)
                self.rang = True

    def heard(self) -> None:
        """Called by the polling thread, before it acts on the ring."""
        with self._lock:
            os.eventfd_read(self._descriptor)
            self.rang = False

    def close(self) -> None:
        with self._lock:  # a lookup may be about to write the eventfd
            os.close(self._descriptor)
            self._descriptor = -1
