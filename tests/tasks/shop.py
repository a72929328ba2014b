"""The app of the tests: imported by worker processes, and by the tests."""

from __future__ import annotations

import asyncio
import ctypes
import datetime
import os
import signal
import time
from dataclasses import dataclass

import weft
from weft import tasks

app = tasks.App("shop")


@dataclass
class Order:
    number: int
    day: datetime.date


@app.task
def double(n: int) -> int:
    return 2 * n


@app.task
def next_day(order: Order) -> Order:
    return Order(order.number, order.day + datetime.timedelta(days=1))


@app.task
def nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@app.task(attempts=3, backoff=weft.expo(0.05, 0.1))
def succeed_at(attempt: int) -> int:
    if tasks.current().attempt < attempt:
        raise ValueError(f"attempt {tasks.current().attempt} fails")
    return tasks.current().attempt


@app.task(attempts=2)
def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(attempts=2)
def kill_worker_once() -> int:
    if tasks.current().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return tasks.current().attempt


@app.task(time_limit=0.5, attempts=1)
def never_end() -> None:
    time.sleep(600)


@app.task(soft_time_limit=0.2, attempts=1)
def clean_up() -> str:
    try:
        time.sleep(60)
    except weft.TaskTimedOut:
        return "cleaned"
    return "not interrupted"


@app.task(soft_time_limit=0.2, attempts=1)
def time_out() -> None:
    time.sleep(60)


@app.task
def hold_interpreter(seconds: int) -> int:
    """Sleeps in C with the interpreter's lock held."""
    ctypes.PyDLL(None).sleep(seconds)
    return tasks.current().attempt


@app.task
def report(seconds: float) -> int:
    context = tasks.current()
    for step in range(1000):
        context.progress(step / 1000, f"step {step}")
    time.sleep(seconds)
    return 1000


@app.task
def with_effects(n: int) -> str:
    context = tasks.current()
    context.push("shop.effects", str(n).encode(), headers={"n": str(n)})
    context.kv.insert(f"effect/{n}", b"1")
    context.kv.insert("effect/last", str(n).encode())
    context.submit(double, n)
    return context.id


@app.task(attempts=1)
def fail_with_effects(n: int) -> None:
    tasks.current().push("shop.effects", b"never")
    raise RuntimeError("no effects")


@app.task
def push_to(queue: str) -> None:
    tasks.current().push(queue, b"x")


@app.task(once="start")
def start_once(key: str) -> str:
    app.client.kv.append(f"started/{key}", b"x")
    return key


@app.task(once="start")
def start_and_die(key: str) -> None:
    app.client.kv.append(f"started/{key}", b"x")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(once="none")
def plain(n: int) -> int:
    tasks.current().push("shop.effects", b"plain")
    return n + 1


@app.task(once="none")
def plain_push_to(queue: str) -> None:
    tasks.current().push(queue, b"x")


@app.task
def big(size: int) -> bytes:
    return b"x" * size


@app.task
def unencodable() -> object:
    return object()


@app.task(attempts=5)
def linger(seconds: float) -> str:
    """Cleans up when cancelled, and says so in the table."""
    try:
        time.sleep(seconds)
    except weft.TaskCancelled:
        app.client.kv.insert("lingered", b"cleaned up")
        raise
    return "ended"


@app.task(queue="async")
async def wait_for(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return tasks.current().attempt


@app.task(queue="async", time_limit=0.2, attempts=1)
async def wait_long() -> None:
    await asyncio.sleep(60)


@app.task(queue="async", attempts=2)
async def kill_event_loop() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue="async", attempts=2)
def kill_thread_of_event_loop() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
