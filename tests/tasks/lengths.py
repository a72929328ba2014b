"""A job of a user, for the tests: imported by worker processes, and by the tests.

Lines that begin with `!` do something unusual: `!kill FILE` kills the worker process unless the
file exists, `!wait FILE` waits for the file, `!raise`, `!list` and `!mixed` are mistakes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft import tasks
from weft.tasks import mapreduce

app = tasks.App("lengths")


def kill_once(marker: Path) -> None:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def lengths(line: bytes) -> Iterator[tuple[Any, Any]]:
    """The length of each line as a text, and its first byte."""
    word, _, rest = line.decode("latin-1").partition(" ")
    if word == "!kill":
        kill_once(Path(rest))
    elif word == "!wait":
        deadline = time.monotonic() + 120
        while not Path(rest).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    elif word == "!raise":
        raise ValueError("a mistake")
    elif word == "!list":
        yield [], 1
    elif word == "!mixed":
        yield 7, 1
    yield str(len(line)), line[:1]


def joined(key: str, values: list[bytes]) -> Any:
    if key == "0":
        return None
    return {"lines": len(values), "first": b"".join(sorted(values)).decode("latin-1")}


def most(key: str, values: list[int]) -> int:
    return max(values)


def sizes(line: bytes) -> Iterator[tuple[int, int]]:
    yield len(line) % 7, len(line)


def killing(key: bytes, values: list[str]) -> int:
    """A reduce function that kills its worker once."""
    kill_once(Path(values[0]))
    return len(values)


def marked(line: bytes) -> Iterator[tuple[bytes, str]]:
    yield line[:1], os.environ["WEFT_TEST_MARKER"]


job = mapreduce.MapReduce(app, "lengths", map=lengths, reduce=joined)
combined = mapreduce.MapReduce(app, "sizes", map=sizes, reduce=most, combine=most)
killer = mapreduce.MapReduce(app, "killer", map=marked, reduce=killing)
