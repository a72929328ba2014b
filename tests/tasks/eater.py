"""An app with a task that takes memory until the kernel kills its process."""

from __future__ import annotations

from weft import tasks

app = tasks.App("eater")


@app.task(attempts=1)
def eat(mebibytes: int) -> int:
    kept = [bytearray(b"x" * (1 << 20)) for _ in range(mebibytes)]
    return len(kept)
