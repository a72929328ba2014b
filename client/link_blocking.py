"""The link of a synchronous client: it blocks the calling thread and needs no other.

A connection belongs to one thread, so each thread that calls gets one of its own (a line), made at
its first call and closed with it. No lock is contended and nothing is handed to another thread: a
call costs one round trip and little more.

A single call is sent before anything else is seen to, and its answer is waited for in the plainest
way for a blink. Only when none has come are the connection and the times looked at (`_wait`).

Closing from another thread: idle lines are closed by the closer; a line that is in a call is woken
by ending its connection, and closes itself.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Final

from weft.errors import ConnectionLost, ProtocolError, UsageError, WeftError
from weft.proto import wire

from .connecting import Connecting
from .connection import BLINK_MS, CHANGED, CLOSE_MS, DOWN, READABLE, UP, Ended
from .exchange import Call, Exchange
from .link import ATTEMPT_S, LOOK_S, LOST_S, Answered, Asked, Place

log = logging.getLogger("weft.client")

#: A call with less time than this has its times looked at from the start.
BLINK_S: Final = BLINK_MS / 1000


class Line:
    """One thread's connection."""

    def __init__(self, connecting: Connecting, place: Place, attempt_s: float) -> None:
        self._place = place
        self._connection = connecting.connect()
        self.exchange = Exchange(attempt_s, place.token)
        # Re-entrant: a signal handler may call while its own thread is inside a call.
        self.lock = threading.RLock()
        self._search_at = 0.0

    def talk(self, asked: Sequence[Asked], deadline: float) -> list[Call]:
        """Makes the calls and waits until each has ended."""
        now = time.monotonic()
        calls: list[Call] = []
        try:
            for request, payload in asked:
                calls.append(self.exchange.start(request, payload, deadline, now))
            self._wait(calls)
        except BaseException:  # a signal's exception, perhaps just when an answer had come
            for call in calls:
                self.exchange.abandon(call)
            raise
        return calls

    def ask(self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float) -> Call:
        """Makes one call and waits until it has ended."""
        now = time.monotonic()
        call = self.exchange.start(request, payload, deadline, now)
        try:
            if not self._ends_soon(call, now):
                self._wait([call])
        except BaseException:  # as above
            self.exchange.abandon(call)
            raise
        return call

    def _ends_soon(self, call: Call, now: float) -> bool:
        """Sends the call and waits for a blink; whether it has ended."""
        exchange, connection = self.exchange, self._connection
        if call.deadline - now <= BLINK_S or not exchange.send_first(call, connection.send):
            return False
        if connection.changed():
            self._changes()
        while exchange.up and (frames := connection.answer()) is not None:
            try:
                exchange.received(frames)
            except ProtocolError as error:
                log.warning("%s", error)
            if call.answer is not None or call.error is not None:
                if exchange.give_back:
                    exchange.send(connection.send, time.monotonic())
                return True
        return False

    def _wait(self, calls: list[Call]) -> None:
        exchange, connection = self.exchange, self._connection
        now = time.monotonic()
        self._search_at = now + LOST_S
        state = CHANGED
        while True:
            if state & CHANGED:
                self._changes()
            if state & READABLE:
                self._receive()
            exchange.send(connection.send, now)
            under_way = [call for call in calls if not call.ended]
            if not under_way:
                return
            until = min(map(exchange.next_due, under_way))
            if self._unreachable:
                until = min(until, self._search_at)
            state = connection.wait(until - now, for_room=exchange.has_unsent)
            now = time.monotonic()
            if now >= until:
                now = self._late(under_way, now)

    @property
    def _unreachable(self) -> bool:
        return not self.exchange.up or self.exchange.has_unsent

    def _changes(self) -> None:
        for change in self._connection.changes():
            if change == UP:
                self.exchange.restored()
            elif change == DOWN:
                self.exchange.lost()
            else:
                self.exchange.refused()

    def _receive(self) -> None:
        while (frames := self._connection.receive()) is not None:
            self._take(frames)
            if not self._connection.state() & READABLE:
                return

    def _take(self, frames: list[wire.Frame]) -> None:
        try:
            self.exchange.received(frames)
        except ProtocolError as error:
            log.warning("%s", error)

    def _late(self, calls: list[Call], now: float) -> float:
        for call in calls:
            self.exchange.overdue(call, now)
        if self._unreachable and now >= self._search_at:
            if not self.exchange.fail_fast:
                self._find(min(call.deadline for call in calls) - now)
            if self.exchange.fail_fast:  # there are others: no use to wait for this node
                self.exchange.drop_unsent()
            now = time.monotonic()
            self._search_at = now + LOST_S
        return now

    def _find(self, left_s: float) -> None:
        address = self._place.refresh(min(LOOK_S, left_s))
        self._place.looked()
        if address is not None and address != self._connection.address:
            self._connection.move(address)

    def close(self) -> None:
        """Gives back what nobody took; nobody may be inside a call."""
        self._changes()
        if self._connection.state() & READABLE:
            self._receive()
        self.exchange.send(self._connection.send, time.monotonic())
        self._connection.close(CLOSE_MS)

    def drop(self) -> None:
        """Closes the connection as it is."""
        if hasattr(self, "_connection"):
            self._connection.close(0)

    # The thread has ended, and its line with it.
    __del__ = drop


class BlockingLink:
    """Implements Link without ever suspending. Safe to share between threads."""

    def __init__(self, place: Place, *, attempt_s: float = ATTEMPT_S) -> None:
        self._place = place
        self._attempt_s = attempt_s
        self._connecting = Connecting(place)
        self._local = threading.local()
        self._lines: weakref.WeakSet[Line] = weakref.WeakSet()
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
            except Ended:
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
        return self._line().exchange.breaks

    @property
    def fail_fast(self) -> bool:
        return self._fail_fast

    @fail_fast.setter
    def fail_fast(self, value: bool) -> None:
        with self._lock:
            self._fail_fast = value
            for line in self._lines:
                line.exchange.fail_fast = value

    def _talk(self, asked: Sequence[Asked], deadline: float) -> list[Call]:
        line = self._line()
        with line.lock:
            if self._closed:
                raise self._ended()
            try:
                return line.talk(asked, deadline)
            except Ended:
                line.drop()
                raise self._ended() from None

    def _line(self) -> Line:
        if os.getpid() != self._pid:
            raise UsageError(
                "this client was made before a fork, and its connections stay with the parent: "
                "call weft.connect in the child"
            )
        line: Line | None = getattr(self._local, "line", None)
        if line is None:
            with self._lock:
                if self._closed:
                    raise self._ended()
                line = self._local.line = Line(self._connecting, self._place, self._attempt_s)
                line.exchange.fail_fast = self._fail_fast
                self._lines.add(line)
        return line

    def close(self, *, retired: bool = False) -> None:
        """Ends calls that are under way in other threads, too."""
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
        self._connecting.end()  # wakes the busy ones, which close themselves
        for line in busy:
            with line.lock:
                line.drop()

    def _ended(self) -> WeftError:
        if self._retired:
            return ConnectionLost("the node has left; the call may or may not have been done")
        return UsageError("the client is closed")
