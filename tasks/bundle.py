"""Submissions of one thread, gathered into batches: `with app.bundle():`.

A push of its own costs a task a round trip and a disk sync. In a bundle, `submit` returns before
the push: the tasks leave together when a batch is full, at the first submission after the linger
time, when a future is asked for anything, and at the end of the block. At the end all are durable,
or the block raises. A plain `submit` keeps its promise: durable when it returns.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

from weft import limits
from weft.client.transport.blocking_link import run
from weft.errors import UsageError, WeftError

from .batch_results import BatchResults
from .future import Future
from .submission import SubmitOptions, push_calls

if TYPE_CHECKING:
    from .app import App
    from .task import AppTask

#: A batch leaves with so many tasks, or bytes: those of a producer.
COUNT_MAX: Final = 1_000
BYTES_MAX: Final = limits.MIB
LINGER_S: Final = 0.005


class _Gathered:
    """Calls with a common queue, delay and priority, and their futures."""

    def __init__(self, options: SubmitOptions) -> None:
        self.options = options
        self.bodies: list[bytes] = []
        self.futures: list[tuple[Future, AppTask[Any, Any]]] = []


class Bundle:
    """See `App.bundle`. Other threads may use the futures of an open bundle."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.RLock()
        self._gathered: dict[tuple[str, int, int], _Gathered] = {}
        self._count = self._size = 0
        self._since = 0.0
        self._error: BaseException | None = None

    def submit(self, task: AppTask[Any, Any], body: bytes, options: SubmitOptions) -> Future:
        """Gathers a call. Raises the errors of a push, of this call and of those before."""
        with self._lock:
            key = (task.queue, options.delay_ms, options.priority)
            gathered = self._gathered.get(key)
            if gathered is None:
                gathered = self._gathered[key] = _Gathered(options)
            future = Future(self._app, cast(BatchResults, self), -1)
            gathered.bodies.append(body)
            gathered.futures.append((future, task))
            if not self._count:
                self._since = time.monotonic()
            self._count += 1
            self._size += len(body)
            if (
                self._count >= COUNT_MAX
                or self._size >= BYTES_MAX
                or time.monotonic() - self._since > LINGER_S
            ):
                self.send()
            return future

    def send(self) -> None:
        """Pushes the gathered calls. A future without an id repeats the error of its push."""
        with self._lock:
            if not self._count and self._error is not None:
                raise self._error
            left, self._gathered = self._gathered, {}
            self._count = self._size = 0
            failure: BaseException | None = None
            for (queue, _, _), gathered in left.items():
                try:
                    self._push(queue, gathered)
                except WeftError as error:  # the calls for other queues go on
                    failure = self._error = error
                except BaseException as error:  # Ctrl-C: no future may wait for a lost push
                    self._error = error
                    raise
            if failure is not None:
                raise failure

    def _push(self, queue: str, gathered: _Gathered) -> None:
        app, session = self._app, self._app.session
        stored = run(push_calls(session, queue, gathered.bodies, gathered.options))
        futures = iter(gathered.futures)
        for first, count in stored:
            shared: dict[AppTask[Any, Any], BatchResults] = {}
            for number, (future, task) in zip(range(first, first + count), futures, strict=False):
                results = shared.get(task)
                if results is None:
                    results = app.results(first, task.signature.result, session)
                    shared[task] = results
                future._batch, future._number = results, number

    def __enter__(self) -> Bundle:
        here = self._app.bundles
        if getattr(here, "open", None) is not None:
            raise UsageError(f"a bundle of the app {self._app.name} is open in this thread")
        here.open = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._app.bundles.open = None
        if self._count:  # after an exception, too: what was submitted is submitted
            self.send()
