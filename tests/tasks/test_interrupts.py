"""Interrupts of tasks in threads, and what they leave behind in the interpreter."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

#: A thread of a worker whose task is interrupted: before the task ends, or too late.
_SCRIPT: Final = """
import sys, threading
from types import SimpleNamespace
from weft.errors import TaskCancelled
from weft.tasks.task_interrupts import TaskInterrupts

def work():
    interrupts = TaskInterrupts()
    interrupts.begin()
    for late in (False, True):
        current = interrupts.current = SimpleNamespace(task=None, message=None), 0.0
        try:
            interrupts._interrupt(current, TaskCancelled)
            while not late:
                pass
        except TaskCancelled:
            print("interrupted")
        interrupts.current = None
        interrupts.end_limit()
    sys.setprofile(lambda *_: None)
    print("a function begins:", (lambda: 5)())

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.timeout(60)
def test_an_interpreter_runs_on_after_an_interrupt_that_was_withdrawn() -> None:
    """In a process of its own: a thread that cannot begin a function cannot be ended."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=40
    )
    assert done.stdout.splitlines()[0] == "interrupted", done.stderr
    assert "a function begins: 5" in done.stdout, done.stderr
