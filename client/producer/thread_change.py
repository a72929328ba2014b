"""The wait of a synchronous producer; `async_producer.Change` is the form for an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ThreadChange:
    """Lets threads wait for a condition, which is checked at every notification."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def until(self, so: Callable[[], bool]) -> None:
        # Every push in flight ends within its timeout, so this wait ends too.
        with self._changed:
            self._changed.wait_for(so)
