"""An app whose tasks keep to the promises of the solo pool."""

from __future__ import annotations

from weft import tasks

app = tasks.App("solo")


@app.task(queue="solo")
def add(a: int, b: int) -> int:
    return a + b
