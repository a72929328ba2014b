"""An app of long tasks that count their starts in the table."""

from __future__ import annotations

import ctypes
import time

from weft import tasks

app = tasks.App("slow")


@app.task(attempts=10)
def nap(number: int, seconds: float) -> int:
    """Sleeps, and goes on until the key `slow/go` exists: through all restarts."""
    app.client.kv.append(f"slow/starts/{number}", b"x")
    time.sleep(seconds)
    while app.client.kv.lookup("slow/go") is None:
        time.sleep(0.2)
    return tasks.current().attempt


@app.task(attempts=10)
def hold(number: int, seconds: int) -> int:
    """Sleeps in C with the interpreter's lock held."""
    app.client.kv.append(f"slow/starts/{number}", b"x")
    ctypes.PyDLL(None).sleep(seconds)
    return tasks.current().attempt
