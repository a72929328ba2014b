"""The link of a synchronous client: it blocks the calling thread and needs no other.

ZeroMQ sockets belong to one thread, so each thread that calls gets a connection of its own (a
line), made at its first call and closed with it. No lock is contended and nothing is handed to
another thread: a call costs one round trip and little more.

Closing from another thread: idle lines are closed by the closer; a line that is in a call is woken
by ending the ZeroMQ context, and closes itself.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from weft.errors import ProtocolError, UsageError
from weft.proto import wire

from .dealer import CHANGED, CLOSE_MS, READABLE, UP, Context, ContextEnded, Dealer
from .discovery import Discovery
from .exchange import Call, Exchange
from .link import ATTEMPT_S, LOOK_S, LOST_S, Answered, Asked

log = logging.getLogger("weft.client")


class Line:
    """One thread's connection."""

    def __init__(self, context: Context[Any], discovery: Discovery, attempt_s: float) -> None:
        self._discovery = discovery
        self._dealer = Dealer(context, discovery.address)
        self.exchange = Exchange(attempt_s)
        # Re-entrant: a signal handler may call while its own thread is inside a call.
        self.lock = threading.RLock()
        self._search_at = 0.0

    def talk(self, asked: Sequence[Asked], deadline: float) -> list[Call]:
        """Makes the calls and waits until each has ended."""
        exchange, dealer = self.exchange, self._dealer
        now = time.monotonic()
        calls = [exchange.start(request, payload, deadline, now) for request, payload in asked]
        self._search_at = now + LOST_S
        state = CHANGED
        try:
            while True:
                if state & CHANGED:
                    self._changes()
                if state & READABLE:
                    self._receive()
                exchange.send(dealer.send, now)
                under_way = [call for call in calls if not call.ended]
                if not under_way:
                    return calls
                until = min(map(exchange.next_due, under_way))
                if self._unreachable:
                    until = min(until, self._search_at)
                state = dealer.wait(until - now, for_room=exchange.has_unsent)
                now = time.monotonic()
                if now >= until:
                    now = self._late(under_way, now)
        except BaseException:  # a signal's exception, perhaps just when an answer had come
            for call in calls:
                exchange.abandon(call)
            raise

    @property
    def _unreachable(self) -> bool:
        return not self.exchange.up or self.exchange.has_unsent

    def _changes(self) -> None:
        for change in self._dealer.changes():
            if change == UP:
                self.exchange.restored()
            else:
                self.exchange.lost()

    def _receive(self) -> None:
        while (frames := self._dealer.receive()) is not None:
            try:
                self.exchange.received(frames)
            except ProtocolError as error:
                log.warning("%s", error)
            if not self._dealer.state() & READABLE:
                return

    def _late(self, calls: list[Call], now: float) -> float:
        for call in calls:
            self.exchange.overdue(call, now)
        if self._unreachable and now >= self._search_at:
            left_s = min(call.deadline for call in calls) - now
            address = self._discovery.refresh(min(LOOK_S, left_s))
            if address is not None and address != self._dealer.address:
                self._dealer.move(address)
            now = time.monotonic()
            self._search_at = now + LOST_S
        return now

    def close(self) -> None:
        """Gives back what nobody took; nobody may be inside a call."""
        self._changes()
        if self._dealer.state() & READABLE:
            self._receive()
        self.exchange.send(self._dealer.send, time.monotonic())
        self._dealer.close(CLOSE_MS)

    def drop(self) -> None:
        """Closes the connection as it is."""
        if hasattr(self, "_dealer"):
            self._dealer.close(0)

    # The thread has ended, and its line with it.
    __del__ = drop


class BlockingLink:
    """Implements Link without ever suspending. Safe to share between threads."""

    def __init__(self, discovery: Discovery, *, attempt_s: float = ATTEMPT_S) -> None:
        self._discovery = discovery
        self._attempt_s = attempt_s
        self._context: Context[Any] = Context()
        self._local = threading.local()
        self._lines: weakref.WeakSet[Line] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()

    async def call(
        self, request: wire.AnyRequest, payload: Sequence[bytes], deadline: float
    ) -> Answered:
        return self._talk([(request, payload)], deadline)[0].result()

    async def call_all(self, asked: Sequence[Asked], deadline: float) -> list[Answered | Exception]:
        return [call.error or call.result() for call in self._talk(asked, deadline)]

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this link blocks; no event loop runs it

    @property
    def breaks(self) -> int:
        return self._line().exchange.breaks

    def _talk(self, asked: Sequence[Asked], deadline: float) -> list[Call]:
        line = self._line()
        with line.lock:
            if self._closed:
                raise _closed()
            try:
                return line.talk(asked, deadline)
            except ContextEnded:
                line.drop()
                raise _closed() from None

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
                    raise _closed()
                line = self._local.line = Line(self._context, self._discovery, self._attempt_s)
                self._lines.add(line)
        return line

    def close(self) -> None:
        """Ends calls that are under way in other threads, too."""
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
            lines = list(self._lines)
        for line in lines:
            if line.lock.acquire(blocking=False):
                line.close()
                line.lock.release()
        # Wakes the busy lines with ContextEnded and waits until they have closed.
        self._context.term()


def _closed() -> UsageError:
    return UsageError("the client is closed")
