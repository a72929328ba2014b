"""The link of an asyncio client: one connection, any number of calls under way.

A call only sends. What has come is read when the event loop says so, some of it at a time, and
those who waited for it have their turn before more is read: with a thousand pops under way, each of
which acks what it got, every ack would else bring in the answers of others, until all of them are
in memory and none of them in the processor's cache.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import time
from collections.abc import Sequence
from typing import Final

from weft.errors import ProtocolError, UsageError, WeftError
from weft.proto import wire

from .connecting import Connecting
from .connection import CLOSE_MS, DOWN, READABLE, UP, WRITABLE
from .exchange import Call, Exchange, NotSent
from .link import ATTEMPT_S, LOOK_S, LOST_S, Answered, Asked, Place

log = logging.getLogger("weft.client")

CLOSED: Final = "the client is closed"

#: Answers taken in one go before others on the event loop have their turn.
DRAIN_MAX: Final = 64
#: The same in bytes: what has come is best taken apart before more comes, while it is at hand.
DRAIN_BYTES_MAX: Final = 1024 * 1024


class AsyncLink:
    """Implements Link on the running event loop. Belongs to that loop alone."""

    def __init__(self, place: Place, *, attempt_s: float = ATTEMPT_S) -> None:
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._connecting = Connecting(place)
        self._connection = self._connecting.connect()
        self._exchange = Exchange(attempt_s, place.token)
        self._search: asyncio.Task[None] | None = None
        self._look: asyncio.TimerHandle | None = None
        self._closed: WeftError | None = None
        self._descriptors = self._connection.descriptors()
        for descriptor in self._descriptors:
            self._loop.add_reader(descriptor, self._wake)
        # The monitor's descriptor stays silent until its socket was once found empty.
        self._wake()

    async def call(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float
    ) -> Answered:
        self._check()
        now = time.monotonic()
        call = self._exchange.start(request, payload, deadline, now)
        future: asyncio.Future[None] = self._loop.create_future()
        call.on_end = functools.partial(_wake_caller, future)
        alarm = _Alarm(self, call, now)
        self._send()
        try:
            await future
        except BaseException:  # cancelled, perhaps just when the answer had come
            self._exchange.abandon(call)
            self._send()
            raise
        finally:
            alarm.stop()
        return call.result()

    async def call_all(self, asked: Sequence[Asked], deadline: float) -> list[Answered | Exception]:
        ends = await asyncio.gather(
            *(self.call(request, payload, deadline) for request, payload in asked),
            return_exceptions=True,
        )
        results: list[Answered | Exception] = []
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, Exception):
                raise end
            results.append(end)
        return results

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def breaks(self) -> int:
        return self._exchange.breaks

    @property
    def fail_fast(self) -> bool:
        return self._exchange.fail_fast

    @fail_fast.setter
    def fail_fast(self, value: bool) -> None:
        self._exchange.fail_fast = value
        self._send()

    def close(self, *, retired: bool = False) -> None:
        """Ends all calls under way. On the loop's own thread."""
        if self._closed or os.getpid() != self._pid:
            return
        self._wake()  # an answer that nobody waits for any more is still given back
        self._closed = NotSent("the node has left") if retired else UsageError(CLOSED)
        if self._search is not None:
            self._search.cancel()
        if self._look is not None:
            self._look.cancel()
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        if retired:
            self._exchange.break_off()
        self._exchange.fail_all(self._closed)
        self._connection.close(CLOSE_MS)
        self._connecting.end()

    # --- inside ---

    def _check(self) -> None:
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        if os.getpid() != self._pid:
            raise UsageError(
                "this client was made before a fork, and its connection stays with the parent: "
                "call weft.aio.connect in the child"
            )
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError("this client belongs to another event loop: connect on this one, too")

    def _wake(self) -> None:
        if self._closed:
            return
        if self._look is not None:
            self._look.cancel()
            self._look = None
        for change in self._connection.changes():
            if change == UP:
                self._exchange.restored()
            elif change == DOWN:
                self._exchange.lost()
            else:
                self._exchange.refused()
        self._pump()

    def _pump(self) -> None:
        """Sends and receives until neither can go on, or others are to have their turn."""
        left = DRAIN_BYTES_MAX
        for _ in range(DRAIN_MAX):
            self._exchange.send(self._connection.send, time.monotonic())
            if left <= 0:
                self._loop.call_soon(self._wake)
                break
            state = self._connection.state()
            if state & READABLE:
                left -= self._receive()
            elif not (state & WRITABLE and self._exchange.has_unsent):
                break
        else:
            self._loop.call_soon(self._wake)
        self._tend()

    def _send(self) -> None:
        """Sends what can be sent now."""
        if not self._closed:
            self._exchange.send(self._connection.send, time.monotonic())
            self._tend()

    def _tend(self) -> None:
        """Sees to it that a node is looked for that cannot be reached."""
        if self._search is None and self._unreachable and not self._given_up:
            self._search = self._loop.create_task(self._find())
        if self._look is None and (due := self._connection.due()) != math.inf:
            self._look = self._loop.call_later(max(0.0, due - time.monotonic()), self._wake)

    def _receive(self) -> int:
        """Takes one answer; its bytes."""
        frames = self._connection.receive()
        if frames is None:
            return 0
        try:
            self._exchange.received(frames)
        except ProtocolError as error:
            log.warning("%s", error)
        return sum(map(len, frames))

    def _overdue(self, call: Call) -> None:
        self._exchange.overdue(call, time.monotonic())
        self._send()

    @property
    def _unreachable(self) -> bool:
        return not self._exchange.up or self._exchange.has_unsent

    @property
    def _given_up(self) -> bool:
        return self._exchange.fail_fast and not self._exchange.up

    async def _find(self) -> None:
        """Asks where the node is, for as long as it cannot be reached and is the only one."""
        while True:
            await asyncio.sleep(LOST_S)
            if not self._unreachable:
                break
            if not self._exchange.fail_fast:
                address = await asyncio.to_thread(self._place.refresh, LOOK_S)
                self._place.looked()
                if self._closed is not None:
                    return
                if address is not None and address != self._connection.address:
                    self._connection.move(address)
                    self._wake()
            if self._exchange.fail_fast:
                self._exchange.drop_unsent()
                break
        self._search = None


def _wake_caller(future: asyncio.Future[None], call: Call) -> None:
    if not future.done():  # it is when the caller was cancelled
        future.set_result(None)


class _Alarm:
    """Rings when a call is due to be sent again or to end, until it has ended."""

    __slots__ = ("_call", "_link", "_timer")

    def __init__(self, link: AsyncLink, call: Call, now: float) -> None:
        self._link = link
        self._call = call
        self._set(now)

    def _set(self, now: float) -> None:
        due = self._link._exchange.next_due(self._call)
        self._timer = self._link._loop.call_later(max(0.0, due - now), self._ring)

    def _ring(self) -> None:
        self._link._overdue(self._call)
        if not self._call.ended:
            self._set(time.monotonic())

    def stop(self) -> None:
        self._timer.cancel()
