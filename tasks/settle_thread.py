"""A thread that settles the ended tasks of a worker's loop while the next ones run."""

from __future__ import annotations

import threading
from collections.abc import Callable


class SettleThread:
    """The methods belong to the loop's thread."""

    def __init__(self, settle: Callable[[], None]) -> None:
        self._settle = settle
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asked = self._busy = self._closed = False

    def ask(self) -> bool:
        """Has the thread settle what has ended; False, and nothing is done, if the thread is
        still at the last request: the caller then settles, and so waits, by itself."""
        with self._changed:
            if self._asked or self._busy:
                return False
            self._asked = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="weft-settle", daemon=True)
                self._thread.start()
            self._changed.notify()
            return True

    def close(self) -> None:
        """Ends the thread, after the last request."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                while not self._asked and not self._closed:
                    self._changed.wait()
                if not self._asked:
                    return
                self._asked, self._busy = False, True
            self._settle()
