"""Removes files in a thread of its own.

To unlink a large file takes the kernel long: it gives back every page of it, and waits for those
that are on their way to the disk. Nobody needs to wait for that, nor to share a processor with it:
the thread stands behind the others of its machine. What a crash leaves behind is found, and
removed, when the store is opened.
"""

from __future__ import annotations

import logging
import os
import threading
from queue import Queue
from typing import Final

log = logging.getLogger(__name__)

_NAME: Final = "weft-undertaker"
#: How nice its thread is. A removal takes milliseconds of a processor, in the kernel, and who wants
#: that processor meanwhile is held up: the node, or its client. With 10 it gets a tenth of one that
#: others want, and all of one that is idle. More would let it hold the file system's journal for
#: long, for which a sync of the node would wait.
NICE: Final = 10


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
        me = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, me, max(NICE, os.getpriority(os.PRIO_PROCESS, me)))
        while (path := self._files.get()) is not None:
            try:
                os.unlink(path)
            except OSError as error:  # it takes room until the store is opened again
                log.warning("%s cannot be removed: %s", path, error)
            self._files.task_done()
        self._files.task_done()  # nobody waits for a word that only ends this
