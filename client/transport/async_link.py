"""The link of an asyncio client: one connection with any number of calls in flight.

A call only sends; calls of several tasks in one turn of the event loop leave together. One timer
serves all calls: most calls end long before they are due, and the timer finds the others.

The event loop triggers reads, and each read takes a bounded number of answers.
The callers of those answers run before the next read. Reason: with a thousand pops in flight that
each ack their messages, every ack would otherwise read the answers of other callers, until all
answers are in memory and none is in the processor's cache.
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

from .connection import CLOSE_MS, DOWN, UP, WRITABLE
from .connection_factory import ConnectionFactory
from .link import ATTEMPT_S, LOOK_S, LOST_S, Answered, Asked, NodeAddress
from .pending_calls import NotSent, PendingCall, PendingCalls

log = logging.getLogger("weft.client")

CLOSED: Final = "the client is closed"

#: Answers to process before other tasks of the event loop run.
DRAIN_MAX: Final = 64
#: The same limit in bytes: decode received data while it is in the processor's cache, then read
#: more.
DRAIN_BYTES_MAX: Final = 1024 * 1024


class AsyncLink:
    """Implements Link on the running event loop. The link belongs to that loop alone."""

    def __init__(self, place: NodeAddress, *, attempt_s: float = ATTEMPT_S) -> None:
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._connecting = ConnectionFactory(place)
        self._connection = self._connecting.connect()
        self._pending_calls = PendingCalls(attempt_s, place.token)
        self._search: asyncio.Task[None] | None = None
        self._look: asyncio.TimerHandle | None = None
        #: The timer of the calls, and its time: no call is due earlier.
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        #: True while calls wait for the end of this turn of the event loop, to leave together.
        self._gathers = False
        self._closed: WeftError | None = None
        self._descriptors = self._connection.descriptors()
        for descriptor in self._descriptors:
            self._loop.add_reader(descriptor, self._wake)
        # The monitor's descriptor does not become readable before a first read found its socket
        # empty.
        self._wake()

    async def call(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float
    ) -> Answered:
        self._check()
        now = time.monotonic()
        call = self._pending_calls.start(request, payload, deadline, now)
        future: asyncio.Future[None] = self._loop.create_future()
        call.on_end = functools.partial(_wake_caller, future)
        if call.attempt_at < self._alarm_at or call.deadline < self._alarm_at:
            self._set_alarm(self._pending_calls.next_due(call), now)
        if self._gathers:
            pass  # leaves with the others
        elif self._pending_calls.in_flight > 1:
            self._gathers = True
            self._loop.call_soon(self._send)
        else:
            self._send()
        try:
            await future
        except BaseException:  # cancelled, possibly just after the answer arrived
            self._pending_calls.abandon(call)
            self._send()
            raise
        if call.error is not None:
            raise call.error
        assert call.answer is not None
        return call.answer, call.frames

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
        return self._pending_calls.breaks

    @property
    def quiet(self) -> bool:
        return self._pending_calls.quiet

    @property
    def fail_fast(self) -> bool:
        return self._pending_calls.fail_fast

    @fail_fast.setter
    def fail_fast(self, value: bool) -> None:
        self._pending_calls.fail_fast = value
        self._send()

    def close(self, *, retired: bool = False) -> None:
        """Ends all calls in flight. Call this method on the loop's own thread."""
        if self._closed or os.getpid() != self._pid:
            return
        self._wake()  # return the leases of answers without a waiting caller
        self._closed = NotSent("the node has left") if retired else UsageError(CLOSED)
        if self._search is not None:
            self._search.cancel()
        for timer in (self._look, self._alarm):
            if timer is not None:
                timer.cancel()
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        if retired:
            self._pending_calls.break_off()
        self._pending_calls.fail_all(self._closed)
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
                self._pending_calls.restored()
            elif change == DOWN:
                self._pending_calls.lost()
            else:
                self._pending_calls.refused()
        self._pump()

    def _pump(self) -> None:
        """Sends and receives until both would block or the drain limit is reached."""
        connection, pending_calls = self._connection, self._pending_calls
        self._send()
        left = DRAIN_BYTES_MAX
        for _ in range(DRAIN_MAX):
            if left <= 0:
                break
            frames = connection.receive()
            if frames is None:
                if connection.state() & WRITABLE and pending_calls.has_unsent:
                    self._send()
                return
            try:
                pending_calls.received(frames)
            except ProtocolError as error:
                log.warning("%s", error)
            left -= sum(map(len, frames))
        self._loop.call_soon(self._wake)

    def _send(self) -> None:
        """Sends as many pending calls as the connection accepts now."""
        self._gathers = False
        if not self._closed:
            connection = self._connection
            connection.gather()
            self._pending_calls.send(connection.send, time.monotonic())
            connection.send_gathered()
            self._tend()

    def _tend(self) -> None:
        """Starts a search for an unreachable node and schedules the connection's next step."""
        if self._search is None and self._unreachable and not self._given_up:
            self._search = self._loop.create_task(self._find())
        if self._look is None and (due := self._connection.due()) != math.inf:
            self._look = self._loop.call_later(max(0.0, due - time.monotonic()), self._wake)

    def _set_alarm(self, due: float, now: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = due
        self._alarm = self._loop.call_later(max(0.0, due - now), self._ring)

    def _ring(self) -> None:
        """Resends or ends the calls that are due; sets the timer for the next one."""
        now = time.monotonic()
        self._alarm, self._alarm_at = None, math.inf
        due = self._pending_calls.all_overdue(now)
        if due is not None:
            self._set_alarm(due, now)
        self._send()

    @property
    def _unreachable(self) -> bool:
        return not self._pending_calls.up or self._pending_calls.has_unsent

    @property
    def _given_up(self) -> bool:
        return self._pending_calls.fail_fast and not self._pending_calls.up

    async def _find(self) -> None:
        """Asks the seeds for the node's address while the node is unreachable and the only one."""
        while True:
            await asyncio.sleep(LOST_S)
            if not self._unreachable:
                break
            if not self._pending_calls.fail_fast:
                address = await asyncio.to_thread(self._place.refresh, LOOK_S)
                self._place.looked()
                if self._closed is not None:
                    return
                if address is not None and address != self._connection.address:
                    self._connection.move(address)
                    self._wake()
            if self._pending_calls.fail_fast:
                self._pending_calls.drop_unsent()
                break
        self._search = None


def _wake_caller(future: asyncio.Future[None], call: PendingCall) -> None:
    if not future.done():  # a cancelled caller's future is already done
        future.set_result(None)
