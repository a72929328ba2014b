"""The link of a synchronous client: blocks the calling thread and needs no other thread.

A connection belongs to one thread. Each calling thread gets its own connection (`ThreadConnection`,
a line), created at the thread's first call and closed when the thread ends. No lock is contended
and no work moves to another thread: a call costs one round trip and little more.

A single call is sent first, and the thread waits up to BLINK_MS for the answer with the cheapest
read. Only without an answer does the thread check the connection state and the timeouts (`_wait`).

Close from another thread: the closing thread closes idle lines. A line inside a call is woken by
ending its connection, and closes itself.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from weft.errors import ConnectionLost, ProtocolError, UsageError, WeftError
from weft.proto import wire

from .connection import BLINK_MS, CHANGED, CLOSE_MS, DOWN, READABLE, UP, ConnectionEnded
from .connection_factory import ConnectionFactory
from .link import ATTEMPT_S, LOOK_S, LOST_S, Answered, Asked, NodeAddress
from .pending_calls import PendingCall, PendingCalls

log = logging.getLogger("weft.client")

T = TypeVar("T")

#: A call with less time left than this checks its timeouts from the start.
BLINK_S: Final = BLINK_MS / 1000


class ThreadConnection:
    """The connection of one thread."""

    def __init__(self, connecting: ConnectionFactory, place: NodeAddress, attempt_s: float) -> None:
        self._place = place
        self._connection = connecting.connect()
        self.pending_calls = PendingCalls(attempt_s, place.token)
        # Re-entrant: a signal handler may make a call while its thread is inside a call.
        self.lock = threading.RLock()
        self._search_at = 0.0

    def talk(self, asked: Sequence[Asked], deadline: float) -> list[PendingCall]:
        """Makes the calls and waits until every call has ended."""
        now = time.monotonic()
        calls: list[PendingCall] = []
        try:
            for request, payload in asked:
                calls.append(self.pending_calls.start(request, payload, deadline, now))
            self._wait(calls)
        except BaseException:  # from a signal handler, possibly just after an answer arrived
            for call in calls:
                self.pending_calls.abandon(call)
            raise
        return calls

    def ask(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float
    ) -> PendingCall:
        """Makes one call and waits until the call has ended."""
        now = time.monotonic()
        call = self.pending_calls.start(request, payload, deadline, now)
        try:
            if not self._ends_soon(call, now):
                self._wait([call])
        except BaseException:  # see `talk`
            self.pending_calls.abandon(call)
            raise
        return call

    def _ends_soon(self, call: PendingCall, now: float) -> bool:
        """Sends the call and waits up to BLINK_MS; returns True if the call has ended."""
        pending_calls, connection = self.pending_calls, self._connection
        if call.deadline - now <= BLINK_S or not pending_calls.send_first(call, connection.send):
            return False
        if connection.changed():
            self._changes()
        while pending_calls.up and (frames := connection.answer()) is not None:
            try:
                pending_calls.received(frames)
            except ProtocolError as error:
                log.warning("%s", error)
            if call.answer is not None or call.error is not None:
                if pending_calls.asides:
                    pending_calls.send(connection.send, time.monotonic())
                return True
        return False

    def _wait(self, calls: list[PendingCall]) -> None:
        pending_calls, connection = self.pending_calls, self._connection
        now = time.monotonic()
        self._search_at = now + LOST_S
        state = CHANGED
        while True:
            if state & CHANGED:
                self._changes()
            if state & READABLE:
                self._receive()
            pending_calls.send(connection.send, now)
            under_way = [call for call in calls if not call.ended]
            if not under_way:
                return
            until = min(map(pending_calls.next_due, under_way))
            if self._unreachable:
                until = min(until, self._search_at)
            state = connection.wait(until - now, for_room=pending_calls.has_unsent)
            now = time.monotonic()
            if now >= until:
                now = self._late(under_way, now)

    @property
    def _unreachable(self) -> bool:
        return not self.pending_calls.up or self.pending_calls.has_unsent

    def _changes(self) -> None:
        for change in self._connection.changes():
            if change == UP:
                self.pending_calls.restored()
            elif change == DOWN:
                self.pending_calls.lost()
            else:
                self.pending_calls.refused()

    def _receive(self) -> None:
        while (frames := self._connection.receive()) is not None:
            self._take(frames)
            if not self._connection.state() & READABLE:
                return

    def _take(self, frames: list[wire.Frame]) -> None:
        try:
            self.pending_calls.received(frames)
        except ProtocolError as error:
            log.warning("%s", error)

    def _late(self, calls: list[PendingCall], now: float) -> float:
        for call in calls:
            self.pending_calls.overdue(call, now)
        if self._unreachable and now >= self._search_at:
            if not self.pending_calls.fail_fast:
                self._find(min(call.deadline for call in calls) - now)
            if self.pending_calls.fail_fast:  # other nodes can serve the calls
                self.pending_calls.drop_unsent()
            now = time.monotonic()
            self._search_at = now + LOST_S
        return now

    def _find(self, left_s: float) -> None:
        address = self._place.refresh(min(LOOK_S, left_s))
        self._place.looked()
        if address is not None and address != self._connection.address:
            self._connection.move(address)

    def close(self) -> None:
        """Returns the leases of unclaimed answers. No call may be in progress."""
        self._changes()
        if self._connection.state() & READABLE:
            self._receive()
        self.pending_calls.send(self._connection.send, time.monotonic())
        self._connection.close(CLOSE_MS)

    def drop(self) -> None:
        """Closes the connection without sending anything."""
        if hasattr(self, "_connection"):
            self._connection.close(0)

    # The thread has ended: its line closes with it.
    __del__ = drop


class BlockingLink:
    """Implements Link without ever suspending. Threads may share one instance."""

    def __init__(self, place: NodeAddress, *, attempt_s: float = ATTEMPT_S) -> None:
        self._place = place
        self._attempt_s = attempt_s
        self._connecting = ConnectionFactory(place)
        self._local = threading.local()
        self._lines: weakref.WeakSet[ThreadConnection] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = self._retired = self._fail_fast = False
        self._pid = os.getpid()

    async def call(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float
    ) -> Answered:
        line = self._line()
        with line.lock:
            if self._closed:
                raise self._ended()
            try:
                call = line.ask(request, payload, deadline)
            except ConnectionEnded:
                line.drop()
                raise self._ended() from None
        if call.error is not None:
            raise call.error
        assert call.answer is not None
        return call.answer, call.frames

    async def call_all(self, asked: Sequence[Asked], deadline: float) -> list[Answered | Exception]:
        return [call.error or call.result() for call in self._talk(asked, deadline)]

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this link blocks; no event loop runs it

    @property
    def breaks(self) -> int:
        return self._line().pending_calls.breaks

    @property
    def quiet(self) -> bool:
        return self._line().pending_calls.quiet

    @property
    def fail_fast(self) -> bool:
        return self._fail_fast

    @fail_fast.setter
    def fail_fast(self, value: bool) -> None:
        with self._lock:
            self._fail_fast = value
            for line in self._lines:
                line.pending_calls.fail_fast = value

    def _talk(self, asked: Sequence[Asked], deadline: float) -> list[PendingCall]:
        line = self._line()
        with line.lock:
            if self._closed:
                raise self._ended()
            try:
                return line.talk(asked, deadline)
            except ConnectionEnded:
                line.drop()
                raise self._ended() from None

    def _line(self) -> ThreadConnection:
        if os.getpid() != self._pid:
            raise UsageError(
                "this client was made before a fork, and its connections stay with the parent: "
                "call weft.connect in the child"
            )
        line: ThreadConnection | None = getattr(self._local, "line", None)
        if line is None:
            with self._lock:
                if self._closed:
                    raise self._ended()
                line = self._local.line = ThreadConnection(
                    self._connecting, self._place, self._attempt_s
                )
                line.pending_calls.fail_fast = self._fail_fast
                self._lines.add(line)
        return line

    def close(self, *, retired: bool = False) -> None:
        """Also ends calls in flight in other threads."""
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed, self._retired = True, retired
            lines = list(self._lines)
        busy = []
        for line in lines:
            if line.lock.acquire(blocking=False):
                line.close()
                line.lock.release()
            else:
                busy.append(line)
        self._connecting.end()  # wakes the busy lines, which close themselves
        for line in busy:
            with line.lock:
                line.drop()

    def _ended(self) -> WeftError:
        if self._retired:
            return ConnectionLost("the node has left; the call may or may not have been done")
        return UsageError("the client is closed")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine over a blocking link, which never suspends: one step ends the coroutine."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise AssertionError("a blocking link suspended")
