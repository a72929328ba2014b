"""Admission of calls, so that a node can drain and stop without dropping a call.

A closed gate refuses new calls and fails calls that only wait for an event (a pop on an empty
queue, a full stream); calls that do work run to their end. The gate is idle when no call is left.
If draining takes too long, `cut` fails the remaining calls with ShuttingDown. A gate belongs to the
thread of its server and must not be used from any other thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from weft.errors import ShuttingDown, WeftError


class DrainedCall(Protocol):
    """A call that waits. `fail` ends the wait with an error; the gate may call `fail` once."""

    def fail(self, error: WeftError) -> None: ...


class DrainGate:
    def __init__(self, on_idle: Callable[[], None] = lambda: None) -> None:
        """`on_idle` is called once, when the gate is closed and the last call has ended."""
        self.closed = False
        self._on_idle = on_idle
        self._idle = False
        self._under_way = 0
        #: Calls that wait; True for an idle wait, for an event that may never happen.
        self._waits: dict[DrainedCall, bool] = {}

    def enter(self) -> None:
        """Admits one call, until its `leave`; raises ShuttingDown if the gate is closed."""
        if self.closed:
            raise ShuttingDown(_CLOSED)
        self._under_way += 1

    def leave(self) -> None:
        self._under_way -= 1
        if self.closed:
            self._check_idle()

    def begin_wait(self, call: DrainedCall, *, idle: bool) -> None:
        """Registers a wait, until its `end_wait`: the gate may fail the call meanwhile.

        An idle wait, for an event that may never happen, ends when the gate closes; if the gate is
        closed already, the idle wait is refused with ShuttingDown.
        """
        if idle and self.closed:
            raise ShuttingDown(_CLOSED)
        self._waits[call] = idle

    def end_wait(self, call: DrainedCall) -> None:
        self._waits.pop(call, None)

    def close(self) -> None:
        self.closed = True
        for call in [call for call, idle in self._waits.items() if idle]:
            call.fail(ShuttingDown(_CLOSED))
        self._check_idle()

    def cut(self) -> None:
        """Fails the calls that are still in progress: the grace period is over."""
        assert self.closed, "close first"
        for call in list(self._waits):
            call.fail(ShuttingDown(_CUT))

    def _check_idle(self) -> None:
        if self.closed and self._under_way == 0 and not self._idle:
            self._idle = True
            self._on_idle()


_CLOSED: Final = "this node is stopping; try again when it is back"
_CUT: Final = (
    "this node stopped before it could answer; the request may or may not have been executed"
)
