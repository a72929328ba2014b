"""The asyncio producer: send and forget, until flush.

Messages are pushed in batches in the background. `flush` returns when all that was sent is stored;
an error of a batch is raised by the next send, flush or close, and says how many messages it cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType

from weft import limits

from . import tracing
from .batch import Body, Headers, check_body, check_headers, check_keys, measured
from .buffer import Options
from .outbox import Outbox, ProducerOptions
from .pushing import check_options
from .session import Session


class Change:
    """Lets coroutines wait until something is so, looking whenever they are told to."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def tell(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, so: Callable[[], bool]) -> None:
        while not so():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter


def checked(
    body: Body, headers: Headers | None, key: str | None, delay_ms: int, priority: int
) -> tuple[bytes, dict[str, str] | None, str | None, Options]:
    """One message of a producer, as an outbox takes it."""
    check_options(delay_ms, priority)
    column = check_headers([headers], 1) if headers else None
    keys = check_keys([key], 1) if key is not None else None
    return (
        check_body(body),
        column[0] if column else None,
        keys[0] if keys else None,
        Options(delay_ms, priority),
    )


class Producer:
    """Use it with `async with`, or close it: closing flushes."""

    def __init__(
        self,
        session: Session,
        queue: str,
        options: ProducerOptions,
        on_close: Callable[[Producer], None],
    ) -> None:
        self._queue = queue
        self._traced = tracing.on()
        self._change = Change()
        self._outbox = Outbox(session, queue, options, _now, self._change.tell)
        self._on_close = on_close

    async def send(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
    ) -> None:
        """Takes a message to be pushed soon. Waits while too much is under way."""
        if self._outbox.attention:
            await self._heed()
        if self._traced:
            headers = tracing.carry(self._queue, headers)
        if headers is None and key is None and not delay_ms and not priority:
            if type(body) is not bytes or len(body) > limits.BODY_BYTES_MAX:
                body = check_body(body)
            self._outbox.put(body)
        else:
            self._outbox.add(*checked(body, headers, key, delay_ms, priority))

    async def send_many(self, bodies: Sequence[Body]) -> None:
        """Takes many messages; much cheaper than one by one."""
        if self._traced:
            for body in bodies:
                await self.send(body)
            return
        outbox = self._outbox
        written = outbox.written(bodies)
        for batch in written:
            if outbox.attention:
                await self._heed()
            outbox.put_batch(batch)
        if written:
            return
        for part, size in outbox.parts(*measured(bodies)):
            if outbox.attention:
                await self._heed()
            outbox.put_many(part, size)

    async def flush(self) -> None:
        """Returns when everything that was sent is stored; raises what went wrong."""
        self._outbox.flush()
        await self._change.until(lambda: not self._outbox.busy)
        self._raise()

    async def close(self) -> None:
        """Flushes, and takes no more."""
        self._outbox.close()
        try:
            await self.flush()
        finally:
            self._on_close(self)

    async def _heed(self) -> None:
        """Raises what went wrong, or waits until there is room again."""
        self._raise()
        await self._change.until(lambda: not self._outbox.overfull)

    def _raise(self) -> None:
        failure = self._outbox.take_failure()
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _now(callback: Callable[..., None], *arguments: object) -> None:
    """The caller is on the event loop already."""
    callback(*arguments)
