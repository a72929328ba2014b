"""Interrupts of the running task of a loop: cancellation, and soft time limits.

In the main thread of a process an interrupt is a signal, whose handler raises in the task. In other
threads the interpreter raises an exception in the thread of the loop; as that may happen late, the
exception is withdrawn, under a lock, before the next task.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from weft.errors import TaskCancelled, TaskFailed, TaskTimedOut

from .cancellation import Marks
from .task import AppTask


class _Withdrawn(BaseException):
    """Takes the place of an interrupt that came too late."""


class Interruptible(Protocol):
    """A running task: a run, or the column of which a call runs."""

    @property
    def task(self) -> AppTask[Any, Any] | None: ...

    @property
    def message(self) -> Any: ...


class TaskInterrupts:
    def __init__(self) -> None:
        #: Cancelled tasks.
        self.marks = Marks()
        #: The running task and its start. Only the thread of the loop replaces the pair.
        self.current: tuple[Interruptible, float] | None = None
        self.main = threading.current_thread() is threading.main_thread()
        self._thread_id = threading.get_ident()
        self._interrupting = threading.Lock()
        self._interrupted = self._timed = False

    # --- in the thread of the loop ---

    def begin(self) -> None:
        """The loop runs in this thread from now on."""
        self.main = threading.current_thread() is threading.main_thread()
        self._thread_id = threading.get_ident()
        if self.main:
            signal.signal(signal.SIGALRM, self._on_alarm)
            signal.signal(signal.SIGUSR1, self._on_cancel)

    def limit(self, soft_s: float | None) -> None:
        """Begins the soft time limit of the current task."""
        if soft_s is not None and self.main:
            self._timed = True
            signal.setitimer(signal.ITIMER_REAL, soft_s)

    def end_limit(self) -> None:
        """The current task has ended: no interrupt may reach the loop."""
        if self.main:
            if self._timed:
                self._timed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
            return
        with self._interrupting:
            interrupted, self._interrupted = self._interrupted, False
            if interrupted:
                self._withdraw()

    def _withdraw(self) -> None:
        """Withdraws the exception of this thread, raised or not.

        Another exception takes its place and is caught here. To set none would do, too, but the
        interpreter (3.11) then keeps its flag for such exceptions until the process ends: each
        check of the flag takes the slow path, and a profiled or traced function never begins.
        """
        try:
            self._raise(_Withdrawn)
            while True:  # until the interpreter raises it, within some instructions
                pass
        except _Withdrawn:
            return

    def _raise(self, error: type[BaseException]) -> None:
        """Raises the error in the thread of the loop, soon."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self._thread_id), ctypes.py_object(error)
        )

    # --- in any thread ---

    def cancel(self, numbers: Sequence[int]) -> None:
        """Marks tasks as cancelled, and interrupts the running one."""
        self.marks.add(numbers)
        current = self.current
        if current is None or current[0].message.id not in self.marks:
            return
        if self.main:
            signal.pthread_kill(self._thread_id, signal.SIGUSR1)
        else:
            self._interrupt(current, TaskCancelled)

    def check_limit(self, current: tuple[Interruptible, float], took_s: float) -> None:
        """Interrupts the task in a thread, if its soft time limit is over."""
        task = current[0].task
        limit = task.options.soft_time_limit if task is not None else None
        if limit is not None and took_s >= limit and not self.main:
            self._interrupt(current, TaskTimedOut)

    def _interrupt(self, current: tuple[Interruptible, float], error: type[TaskFailed]) -> None:
        """Raises the error in the thread of the loop, if the task still runs there."""
        with self._interrupting:
            if self.current is current and not self._interrupted:
                self._interrupted = True
                self._raise(error)

    # --- signals, in the main thread ---

    def _on_alarm(self, number: int, frame: Any) -> None:
        current = self.current
        if current is not None:
            task = current[0].task
            assert task is not None
            limit = task.options.soft_time_limit
            raise TaskTimedOut(f"the soft time limit of {limit} s is over")

    def _on_cancel(self, number: int, frame: Any) -> None:
        current = self.current
        if current is not None and current[0].message.id in self.marks:
            raise TaskCancelled("cancelled")
