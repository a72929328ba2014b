"""A worker process: one producer, consumer or caller, controlled through lines of JSON.

The worker reports readiness, waits for the start line, works, and reports start time, end time and
processor time. CLOCK_MONOTONIC is common to the machine, so times of two workers are comparable.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any, Final

import msgspec

from weft.client.cli.bench.child import ready, say

from .session import Flow, Session
from .systems import BY_NAME

#: Calls per slice: pushes and pops alternate in slices, under the same conditions.
_SLICE: Final = 50


class Task(msgspec.Struct, frozen=True):
    system: str
    role: str
    address: dict[str, Any]
    queues: list[str]
    count: int
    size: int
    visit: int
    fan_out: bool = False


def main() -> None:
    task = msgspec.json.decode(sys.argv[1].encode(), type=Task)
    try:
        say(_work(task))
    except Exception as error:  # The run reports the failure of the system and continues.
        say({"error": {"code": "UNAVAILABLE", "message": f"{type(error).__name__}: {error}"}})
        sys.exit(1)


def _work(task: Task) -> dict[str, Any]:
    session = BY_NAME[task.system].open(task.address, fan_out=task.fan_out)
    flow = Flow(task.queues, task.count, task.size, task.visit, task.fan_out)
    try:
        if task.role == "call":
            return _call(session, flow)
        session.prepare(flow, takes=task.role == "consume")
        work = session.consume if task.role == "consume" else session.produce
        ready()
        cpu, start = _cpu_s(), time.monotonic_ns()
        work(flow)
        end = time.monotonic_ns()
        return {"start_ns": start, "end_ns": end, "cpu_s": _cpu_s() - cpu}
    finally:
        session.close()


def _call(session: Session, flow: Flow) -> dict[str, Any]:
    """Times synchronous pushes and synchronous pops with acks, one call at a time."""
    (queue,) = flow.queues
    bodies = flow.bodies()
    for _ in range(_SLICE):
        session.push(queue, bodies[0])
    for _ in range(_SLICE):
        session.pop_ack(queue)
    ready()
    pushes: list[float] = []
    pops: list[float] = []
    clock = time.perf_counter_ns
    cpu, start = _cpu_s(), time.monotonic_ns()
    for first in range(0, flow.count, _SLICE):
        for number in range(first, min(first + _SLICE, flow.count)):
            began = clock()
            session.push(queue, bodies[number % len(bodies)])
            pushes.append((clock() - began) / 1000)
        for _ in range(first, min(first + _SLICE, flow.count)):
            began = clock()
            session.pop_ack(queue)
            pops.append((clock() - began) / 1000)
    end = time.monotonic_ns()
    took = {"start_ns": start, "end_ns": end, "cpu_s": _cpu_s() - cpu}
    return {**took, "push_us": _short(pushes), "pop_ack_us": _short(pops)}


def _short(taken: list[float]) -> list[float]:
    return [round(each, 1) for each in taken]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
