"""Tasks for the tests of graphs."""

from __future__ import annotations

import time

from weft import tasks
from weft.client.worker.retry_policy import expo

app = tasks.App("graphs")


@app.task
def one() -> int:
    return 1


@app.task
def add(left: int, right: int = 1) -> int:
    return left + right


@app.task
def total(values: list[int]) -> int:
    return sum(values)


@app.task(attempts=1)
def fails(value: int = 0) -> int:
    raise ValueError(f"no {value}")


@app.task(attempts=2, backoff=expo(0.01, 0.02))
def fails_once(value: int) -> int:
    if tasks.current().attempt == 1:
        raise ValueError("later")
    return value


@app.task
def report(value: int | None, other: int | None = None) -> list[str]:
    return [str(value), str(other), *sorted(tasks.current().failed_parents.values())]


@app.task
def mark(name: str) -> None:
    tasks.current().push("graphs.marks", name.encode())


@app.task(queue="slow")
def nap(seconds: float) -> int:
    time.sleep(seconds)
    return 1


@app.task
def big(size: int) -> bytes:
    return b"x" * size


@app.task
def length(data: bytes) -> int:
    return len(data)


@app.task
def fan(count: int) -> str:
    """Submits a graph that starts with the success of this task."""
    g = tasks.current().graph()
    parts = g.group(add, range(count))
    g.add(total, parts)
    return g.submit().id


@app.task
def several(graphs: int, delays: int) -> int:
    """Submits graphs whose tasks have different delays, so each is a batch."""
    for _ in range(graphs):
        g = tasks.current().graph()
        for delay in range(delays):
            g.add(one.with_options(delay=delay / 1000))
        g.submit()
    return graphs * delays


@app.task(attempts=1)
def fan_fails(count: int) -> None:
    g = tasks.current().graph()
    g.group(mark, [f"never {n}" for n in range(count)])
    g.submit()
    raise ValueError("no graph")


@app.task(once="none")
def plain(value: int) -> int:
    return value + 1
