"""Runs the calls of columns in a worker's loop.

An interrupt (`TaskInterrupts`) raises in this thread only while `current` is set: in the function,
and while its result is encoded. So an end is never lost and never taken twice.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from weft.client.consumer.message import BaseMessage
from weft.errors import TaskCancelled

from .execution import TaskRun, raised, succeeded
from .run_column import COLUMN_RESULT_MAX, RunColumn
from .run_marker import RunMarker
from .signature import encode
from .task_context import ContextSlot
from .task_interrupts import TaskInterrupts


class ColumnRunner:
    """The state is the loop's: its waiting messages, ended runs, mark and interrupts."""

    def __init__(
        self,
        waiting: deque[BaseMessage],
        ended: deque[TaskRun],
        slot: ContextSlot,
        marker: RunMarker,
        interrupts: TaskInterrupts,
        stopping: threading.Event,
    ) -> None:
        self._waiting = waiting
        self._ended = ended
        self._slot = slot
        self._marker = marker
        self._interrupts = interrupts
        self._stopping = stopping

    def run(self, column: RunColumn, message: BaseMessage, until: float) -> int:
        """Runs this message and the waiting ones of its column until this time; returns how many.

        Nothing here may be done in vain: a call has a budget of a microsecond.
        """
        function, arguments, first = column.function, column.arguments, column.first
        lease, here, ended = column.lease, self._slot, column.ended
        interrupts, take, mark = self._interrupts, self._waiting.popleft, self._marker.next
        marks, stopping, clock = interrupts.marks, self._stopping.is_set, time.monotonic
        seen = column.marks_seen
        begun_at = message._index
        self._marker.begin(lease.lent.nonce, begun_at, clock())
        here.make = column.context
        while True:
            index, now = message._index, clock()
            mark(index, now)
            column.message = message
            try:
                interrupts.current = (column, now)
                value = function(*arguments[index - first])
            except BaseException as error:
                interrupts.current = None
                self._leave(column, message, error)
            else:
                try:
                    data = encode(value)
                    interrupts.current = None
                except BaseException as error:
                    interrupts.current = None
                    self._leave(column, message, error, value)
                else:
                    if here.context is None and len(data) <= COLUMN_RESULT_MAX:
                        ended.append((index, data))
                    else:
                        self._leave(column, message, None, value)
            if now > until or marks.added != seen or stopping():
                break
            try:
                message = take()
            except IndexError:
                break
            if message._lease is not lease:
                self._waiting.appendleft(message)
                break
        here.make = None
        return index - begun_at + 1

    def _leave(
        self,
        column: RunColumn,
        message: BaseMessage,
        error: BaseException | None,
        value: Any = None,
    ) -> None:
        """A call with a failure, effects or a large result goes on as a run of its own.

        A value without an encoding is a success that `succeeded` refuses.
        """
        run = TaskRun(message)
        run.task = column.task
        context, self._slot.context = self._slot.context, None
        if error is None or (value is not None and not isinstance(error, TaskCancelled)):
            succeeded(run, value, context)
        else:
            raised(run, error)
        self._ended.append(run)
