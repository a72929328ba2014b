"""The app of `tests.tasks.faults`: its worker processes kill themselves at labelled points.

The points are wrapped around functions of the worker when this module is imported, so the shipped
code has no hook for them. Each process draws one point and a time; at the first time that it comes
by the point after that time, it ends with SIGKILL.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from weft import tasks
from weft.client.transaction import pipeline
from weft.tasks import lease_loop, task_commit

POINTS: Final = ("popped", "running", "commit sent", "answered", "claim written")
#: A life in seconds.
LIFE_S: Final = (1.0, float(os.environ.get("WEFT_FAULTS_LIFE_S", "12")))

app = tasks.App("faults")


class Fate:
    """The point at which this process ends, drawn by its number."""

    def __init__(self) -> None:
        draw = random.Random(os.getpid() ^ int(os.environ.get("WEFT_FAULTS_SEED", "0")))
        self.point = draw.choice(POINTS)
        self.at = time.monotonic() + draw.uniform(*LIFE_S)
        self.enabled = "WEFT_FAULTS_SEED" in os.environ

    def due(self, point: str) -> bool:
        return self.enabled and point == self.point and time.monotonic() >= self.at

    def pass_by(self, point: str) -> None:
        if self.due(point):
            die(point)


def die(point: str) -> None:
    os.write(2, f"fault: {point}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)


fate = Fate()


@app.task(attempts=1_000)
def effect(n: int) -> int:
    fate.pass_by("running")
    tasks.current().push("faults.effects", str(n).encode())
    return n


@app.task(attempts=1_000)
def chain(n: int) -> int:
    """Has an effect on another queue of the app, too."""
    tasks.current().submit(effect, n)
    return n


@app.task(attempts=1_000)
def node(n: int, values: list[int]) -> int:
    """A task of a graph: its parents' results are their numbers, all smaller than its own."""
    fate.pass_by("running")
    if any(value >= n for value in values):
        raise ValueError(f"{n} has the parents {values}")
    tasks.current().push("faults.effects", str(n).encode())
    return n


@app.task(once="start")
def start(n: int) -> int:
    app.client.kv.append(f"faults/started/{n}", b"x")
    fate.pass_by("running")
    return n


_work, _claim, _commit = lease_loop.LeaseLoop._work, lease_loop.claim, pipeline.commit_all


def _work_or_die(self: Any, messages: list[Any]) -> None:
    fate.pass_by("popped")
    _work(self, messages)


async def _claim_or_die(*arguments: Any) -> bool:
    claimed = await _claim(*arguments)
    fate.pass_by("claim written")
    return claimed


async def _commit_or_die(session: Any, transactions: Sequence[Any], **more: Any) -> Any:
    if fate.due("commit sent"):
        threading.Timer(random.uniform(0, 0.003), die, ["commit sent"]).start()
    answered = await _commit(session, transactions, **more)
    fate.pass_by("answered")
    return answered


for owner, name, replacement in (
    (lease_loop.LeaseLoop, "_work", _work_or_die),
    (lease_loop, "claim", _claim_or_die),
    (task_commit, "commit_all", _commit_or_die),
):
    setattr(owner, name, replacement)
