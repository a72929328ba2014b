"""Removes files in a thread of its own.

To unlink a large file takes the kernel long: it gives back every page of it, and waits for those
that are on their way to the disk. Nobody needs to wait for that. What a crash leaves behind is
found, and removed, when the store is opened.
"""

from __future__ import annotations

import logging
import os
import threading
from queue import Queue
from typing import Final

log = logging.getLogger(__name__)

_NAME: Final = "weft-undertaker"


class Undertaker:
    """Its thread begins with the first file."""

    def __init__(self) -> None:
        self._files: Queue[str | None] = Queue()
        self._thread: threading.Thread | None = None

    def remove(self, path: str) -> None:
        """It is removed soon. Nothing may be made under its name any more."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=_NAME, daemon=True)
            self._thread.start()
        self._files.put(path)

    def settle(self) -> None:
        """Returns when everything is removed, from any thread."""
        self._files.join()

    def close(self) -> None:
        """The same, and it is over."""
        if self._thread is not None:
            self._files.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (path := self._files.get()) is not None:
            try:
                os.unlink(path)
            except OSError as error:  # it takes room until the store is opened again
                log.warning("%s cannot be removed: %s", path, error)
            self._files.task_done()
        self._files.task_done()  # nobody waits for a word that only ends this
