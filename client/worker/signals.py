"""SIGTERM and SIGINT stop a worker: the first drains the worker, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping(stop: Callable[[bool], None]) -> Iterator[None]:
    """Inside the context, signals call `stop(now)`.

    Outside of the main thread the context changes nothing. The previous signal handlers are
    restored at the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = 0

    def caught(number: int, frame: Any) -> None:
        nonlocal came
        came += 1
        stop(came > 1)

    before = {number: signal.signal(number, caught) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
