"""The app of the measurements; each task with each promise."""

from __future__ import annotations

import time

from weft import tasks

app = tasks.App("bench")


@app.task(name="null.effects")
def null_effects(value: float) -> float:
    return value


@app.task(name="sleep.effects")
def sleep_effects(value: float) -> float:
    time.sleep(value)
    return value


@app.task(name="null.start", once="start")
def null_start(value: float) -> float:
    return value


@app.task(name="sleep.start", once="start")
def sleep_start(value: float) -> float:
    time.sleep(value)
    return value


@app.task(name="null.none", once="none")
def null_none(value: float) -> float:
    return value


@app.task(name="sleep.none", once="none")
def sleep_none(value: float) -> float:
    time.sleep(value)
    return value
