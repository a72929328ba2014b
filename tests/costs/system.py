"""System calls, syncs and file bytes of an operation, for the node and client processes.

Two methods. The kernel's accounting (`/proc/PID/io`) exists everywhere on Linux. It counts calls
that read or write a file, a pipe or an eventfd (by which ZeroMQ wakes its threads), and their
bytes; it does not include a socket's sends and receives. `strace`, where installed and allowed to
attach, counts every call of every thread by name, and so the syncs. Under strace everything is
slower, and threads that would have met without a wake-up sleep: the figures are an upper bound.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Final

from weft.testing import cluster

from .caller import MARK
from .operations import Plan, low, sections

_SECTIONS: Final = [one.name for one in sections(None, Plan())]  # type: ignore[arg-type]
_ATTACH_S: Final = 20.0
_CALL: Final = re.compile(r"(\d+) +(\w+)\(")
_SYNCS: Final = {"fsync", "fdatasync", "sync_file_range", "msync"}


class Caller:
    """A client process that runs a section on request."""

    def __init__(self, servers: list[str], plan: Plan) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.costs.caller", ",".join(servers),
             str(plan.singles), str(plan.batches)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._plan = plan
        self._heard("ready")

    def times(self, section: str) -> int:
        return self._plan.batches if section.startswith("batch") else self._plan.singles

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, section: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(section + "\n")
        self._process.stdin.flush()
        self._heard("done")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _heard(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.strip() == word, f"the client process said {line!r}"


@contextmanager
def pair(plan: Plan) -> Iterator[tuple[int, Caller]]:
    """A node's pid and a client of the node, both warm."""
    with cluster(1, awake_us=0) as nodes:
        caller = Caller(nodes.servers, plan)
        try:
            for section in _SECTIONS:
                caller.do(section)
            yield nodes.node().pid, caller
        finally:
            caller.close()


def books(node: int, caller: Caller) -> dict[str, float]:
    """By the kernel's accounting: calls that read or write, and the bytes."""
    found: dict[str, float] = {}
    for section in _SECTIONS:
        before = {"node": _io(node), "client": _io(caller.pid)}
        caller.do(section)
        times = caller.times(section)
        for who, pid in (("node", node), ("client", caller.pid)):
            grown = {name: value - before[who][name] for name, value in _io(pid).items()}
            calls = grown["syscr"] + grown["syscw"]
            found[f"{section}: reads and writes, {who}"] = calls / times
            found[f"{section}: bytes written, {who}"] = grown["wchar"] / times
            found[f"{section}: bytes read, {who}"] = grown["rchar"] / times
    return found


def _io(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}


# --- strace -----------------------------------------------------------------------------------


class NoStrace(Exception):
    """Why strace cannot be used here."""


def traced(node: int, caller: Caller) -> dict[str, float]:
    """By strace: all system calls, and the syncs among them.

    The client makes an extra call after each operation (`MARK`) to separate the operations. A
    node's timers fall into some operations, into more on a slow machine: the value that nine of ten
    operations reach counts.
    """
    strace = shutil.which("strace")
    if strace is None:
        raise NoStrace("strace is not installed: system calls are not counted by name")
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        threads = {"node": _threads(node), "client": _threads(caller.pid)}
        whose = {each: who for who, several in threads.items() for each in several}
        for section in _SECTIONS:
            trace = Path(folder) / "trace"
            with _attached(strace, [node, caller.pid], trace):
                caller.do(section)
            rows = operations_of(trace.read_text(encoding="utf-8", errors="replace"), whose)
            assert len(rows) == caller.times(section), f"{len(rows)} operations in the trace"
            for who in threads:
                total = [sum(row[who].values()) for row in rows]
                found[f"{section}: system calls, {who}"] = low(total)
            syncs = [sum(n for name, n in row["node"].items() if name in _SYNCS) for row in rows]
            found[f"{section}: syncs, node"] = mean(syncs)
    return found


def operations_of(trace: str, whose: dict[int, str]) -> list[dict[str, Counter[str]]]:
    """For each operation: calls by process and name. A new thread belongs to neither process."""
    rows: list[dict[str, Counter[str]]] = []
    row: dict[str, Counter[str]] = {who: Counter() for who in whose.values()}
    for line in trace.splitlines():
        if (found := _CALL.match(line)) is None:
            continue  # the second half of a split line, or a signal
        thread, name = int(found[1]), found[2]
        if name == MARK:
            rows.append(row)
            row = {who: Counter() for who in whose.values()}
        elif (who := whose.get(thread)) is not None:
            row[who][name] += 1
    return rows


def _threads(pid: int) -> list[int]:
    return [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]


@contextmanager
def _attached(strace: str, pids: list[int], trace: Path) -> Iterator[None]:
    """Record every call of every thread of these processes in the file."""
    process = subprocess.Popen(
        [strace, "-f", "-s", "0", "-o", str(trace), *(f"-p{pid}" for pid in pids)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        end = time.monotonic() + _ATTACH_S
        while not all(_tracer(pid, each) == process.pid for pid in pids for each in _threads(pid)):
            if process.poll() is not None:
                raise NoStrace(f"strace may not attach here: {process.stderr.read().strip()}")
            assert time.monotonic() < end, "strace does not attach"
            time.sleep(0.01)
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # strace detaches and exits
            process.wait(_ATTACH_S)
        process.stderr.close()


def _tracer(pid: int, thread: int) -> int:
    try:
        status = Path(f"/proc/{pid}/task/{thread}/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return 0  # the thread has just ended; another look will not find it
    return next(int(x.split()[1]) for x in status.splitlines() if x.startswith("TracerPid"))
