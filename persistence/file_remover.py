"""Removes files in a separate thread.

Unlinking a large file takes long: the kernel frees every page of the file, and waits for pages in
flight to the disk. No other thread needs to wait for the kernel or to share a processor with the
removal, so the remover thread runs at low priority. Opening the store finds and removes files that
a crash left behind.
"""

from __future__ import annotations

import logging
import os
import threading
from queue import Queue
from typing import Final

log = logging.getLogger(__name__)

_NAME: Final = "weft-file-remover"
#: The nice value of the remover thread. A removal takes milliseconds of a processor, in the kernel,
#: and delays the node or a client that needs the same processor. At 10 the thread gets a tenth of a
#: contended processor and all of an idle processor. At a higher value the thread could hold the
#: file system's journal for long, and a sync of the node would wait for the journal.
NICE: Final = 10


class FileRemover:
    """Removes files; the thread starts with the first file."""

    def __init__(self) -> None:
        self._files: Queue[str | None] = Queue()
        self._thread: threading.Thread | None = None

    def remove(self, path: str) -> None:
        """Remove a file soon. The caller must not create another file under the same name."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=_NAME, daemon=True)
            self._thread.start()
        self._files.put(path)

    def settle(self) -> None:
        """Return when all files are removed. Any thread may call this."""
        self._files.join()

    def close(self) -> None:
        """Remove all files, then end the thread."""
        if self._thread is not None:
            self._files.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        me = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, me, max(NICE, os.getpriority(os.PRIO_PROCESS, me)))
        while (path := self._files.get()) is not None:
            try:
                os.unlink(path)
            except OSError as error:  # the file takes room until the store is opened again
                log.warning("%s cannot be removed: %s", path, error)
            self._files.task_done()
        self._files.task_done()  # for the None that ends the thread
