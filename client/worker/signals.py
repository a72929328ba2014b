"""SIGTERM and SIGINT stop a worker: the first drains the worker, the second ends it at once.

A process that a handler forks (`os.fork`, `multiprocessing`) is no worker: its parent ends it by a
signal, which must not be a request to drain. So the fork gets the usual handlers. The signals are
blocked from before the fork until then: one that came between would be lost.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

#: The handlers of forks, by signal.
_in_forks: Final[dict[signal.Signals, Any]] = {}
_mask: Final = threading.local()


def restore_in_forks(handlers: Mapping[signal.Signals, Any]) -> None:
    """Processes that this one forks from now on have these handlers; None is the default."""
    for number, handler in handlers.items():
        _in_forks.setdefault(number, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def stopping(stop: Callable[[bool], None]) -> Iterator[None]:
    """Inside the context, signals call `stop(now)`.

    Outside of the main thread the context changes nothing. The previous signal handlers are
    restored at the end, and in processes forked inside.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = told = 0
    telling = False

    def caught(number: int, frame: Any) -> None:
        """One `stop` after the other: a signal may interrupt another's, and `stop` takes locks."""
        nonlocal came, told, telling
        came += 1
        while told < came and not telling:
            telling, told = True, told + 1
            try:
                stop(told > 1)
            finally:
                telling = False

    outermost = not _in_forks.keys() & set(SIGNALS)
    before = {number: signal.signal(number, caught) for number in SIGNALS}
    restore_in_forks(before)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
            if outermost:
                _in_forks.pop(number, None)


def _before_fork() -> None:
    if _in_forks:
        _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, list(_in_forks))


def _after_fork() -> None:
    before = getattr(_mask, "before", None)
    if before is not None:
        _mask.before = None
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_fork() -> None:
    for number, handler in _in_forks.items():
        signal.signal(number, handler)
    _in_forks.clear()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_fork)
