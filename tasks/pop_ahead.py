"""One pop ahead of a worker's loop, in a second thread: tasks arrive while others run.

| state | begins with | ends with |
|---|---|---|
| idle | | `begin`: the loop runs tasks and expects more |
| planned | `begin`, with the time of the pop | its time, or `take`: then nothing was popped |
| popping | the time of the pop | the answer |
| done | the answer | `take`, which returns the messages |

A pop for short tasks starts at once. A pop behind a long task starts shortly before the task's
expected end, so that no task waits at a busy worker while another worker is idle.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from weft.client.consumer.message import BaseMessage
from weft.errors import WeftError

log = logging.getLogger("weft.tasks")


class PopAhead:
    """`begin` and `take` belong to the loop's thread; `expire` may be called by another one."""

    def __init__(self, pop: Callable[[], list[BaseMessage]]) -> None:
        self._pop = pop
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        #: The time of the planned pop.
        self._at: float | None = None
        self._popping = self._closed = False
        self._messages: list[BaseMessage] = []
        self._came = 0.0

    def begin(self, at: float) -> None:
        """Plans a pop for this time, by the monotonic clock. Nothing may be planned."""
        with self._changed:
            self._at = at
            if self._thread is None:  # most workers with rare tasks never need the thread
                self._thread = threading.Thread(target=self._run, name="weft-pop", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def take(self) -> list[BaseMessage]:
        """Returns the messages of the pop, after its end; none if its time has not come."""
        with self._changed:
            self._at = None
            while self._popping:
                self._changed.wait()
            messages, self._messages = self._messages, []
            return messages

    def expire(self, before: float) -> list[BaseMessage]:
        """Returns messages that came before this time and still wait."""
        with self._changed:
            if not self._messages or self._came >= before:
                return []
            messages, self._messages = self._messages, []
            return messages

    def close(self) -> list[BaseMessage]:
        """Ends the thread; returns messages that nobody has taken."""
        messages = self.take()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        return messages

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed:
                    now = time.monotonic()
                    if self._at is not None and self._at <= now:
                        break
                    self._changed.wait(None if self._at is None else self._at - now)
                if self._closed:
                    return
                self._at, self._popping = None, True
            messages: list[BaseMessage] = []
            try:
                messages = self._pop()
            except WeftError as error:  # the loop's own pop meets the same failure, and waits
                log.debug("no tasks ahead: %s", error.message)
            finally:
                with self._changed:
                    self._popping, self._messages = False, messages
                    self._came = time.monotonic()
                    self._changed.notify_all()
