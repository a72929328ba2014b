"""Tasks that do what a worker would rather not see: the app of `test_hostile_tasks`."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import tasks

app = tasks.App("hostile")


#: True in the process of the test, which only submits.
submitting = False


@dataclass
class Fragile:
    n: int

    def __post_init__(self) -> None:
        if not submitting:
            raise KeyError("only at a worker")


class Nameless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this exception has no text")


@app.task
def plain(n: int) -> int:
    return n + 1


@app.task
def anything(value: Any) -> None: ...


@app.task(attempts=1)
def fail(how: str) -> None:
    if how == "surrogate":
        raise FileNotFoundError("report-\udcff.txt")
    raise Nameless


@app.task(attempts=1)
def take(value: Fragile) -> int:
    return value.n


class Nowhere(datetime.tzinfo):
    def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta:
        raise KeyError("no offset")

    def dst(self, when: datetime.datetime | None) -> None: ...

    def tzname(self, when: datetime.datetime | None) -> None: ...


@app.task(attempts=1)
def give() -> datetime.datetime:
    return datetime.datetime(2026, 1, 1, tzinfo=Nowhere())


@app.task
def much(n: int, size: int) -> bytes:
    return bytes(size)


@app.task(attempts=2, backoff=lambda attempt: float("nan"))
def retry() -> int:
    if tasks.current().attempt == 1:
        raise ValueError("again")
    return tasks.current().attempt


solo = tasks.App("hostile-solo")


@solo.task
def sleep() -> None:
    time.sleep(600)


@app.task(attempts=1)
def end_a_fork() -> int | None:
    process = multiprocessing.get_context("fork").Process(target=sleep.function)
    process.start()
    process.terminate()
    process.join(20)
    process.kill()
    return process.exitcode


@app.task(attempts=2)
def leave_a_fork(file: str) -> int:
    """The process of the first attempt dies, and the one that it has forked goes on."""
    if tasks.current().attempt == 1:
        forked = os.fork()
        if not forked:
            sleep()
        Path(file).write_text(str(forked))
        os.kill(os.getpid(), signal.SIGKILL)
    return tasks.current().attempt
