"""The tasks of the measured graphs."""

from __future__ import annotations

from weft import tasks

app = tasks.App("graphbench")


@app.task
def root() -> int:
    return 1


@app.task
def null(value: int) -> int:
    return value


@app.task
def join(values: list[int]) -> int:
    return len(values)
