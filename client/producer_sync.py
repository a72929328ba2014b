"""The synchronous producer: the caller's thread gathers, the client's background loop pushes.

What crosses between the threads is a batch, never a message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from weft import limits

from . import tracing
from .background import Background
from .batch import Body, Headers, check_body, measured
from .outbox import Outbox, ProducerOptions
from .producer import checked


class Producer:
    """Safe to share between threads. Use it with `with`, or close it: closing flushes."""

    def __init__(
        self,
        background: Background,
        queue: str,
        options: ProducerOptions,
        on_close: Callable[[Producer], None],
    ) -> None:
        self._queue = queue
        self._traced = tracing.on()
        self._changed = threading.Condition()
        self._on_close = on_close
        self._outbox = Outbox(background.session, queue, options, background.post, self._tell)

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def send(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
    ) -> None:
        """Takes a message to be pushed soon. Blocks while too much is under way."""
        if self._outbox.attention:
            self._heed()
        if self._traced:
            headers = tracing.carry(self._queue, headers)
        if headers is None and key is None and not delay_ms and not priority:
            if type(body) is not bytes or len(body) > limits.BODY_BYTES_MAX:
                body = check_body(body)
            self._outbox.put(body)
        else:
            self._outbox.add(*checked(body, headers, key, delay_ms, priority))

    def send_many(self, bodies: Sequence[Body]) -> None:
        """Takes many messages; much cheaper than one by one."""
        if self._traced:
            for body in bodies:
                self.send(body)
            return
        outbox = self._outbox
        written = outbox.written(bodies)
        for batch in written:
            if outbox.attention:
                self._heed()
            outbox.put_batch(batch)
        if written:
            return
        for part, size in outbox.parts(*measured(bodies)):
            if outbox.attention:
                self._heed()
            outbox.put_many(part, size)

    def flush(self) -> None:
        """Returns when everything that was sent is stored; raises what went wrong."""
        self._outbox.flush()
        self._until(lambda: not self._outbox.busy)
        self._raise()

    def close(self) -> None:
        """Flushes, and takes no more."""
        self._outbox.close()
        try:
            self.flush()
        finally:
            self._on_close(self)

    def _heed(self) -> None:
        """Raises what went wrong, or waits until there is room again."""
        self._raise()
        self._until(lambda: not self._outbox.overfull)

    def _until(self, so: Callable[[], bool]) -> None:
        # Every push under way ends within its time limit, so this ends, too.
        with self._changed:
            self._changed.wait_for(so)

    def _raise(self) -> None:
        failure = self._outbox.take_failure()
        if failure is not None:
            raise failure

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
