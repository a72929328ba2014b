"""An app with tasks near data: imported by worker processes, and by the tests."""

from __future__ import annotations

import os
import time

from weft import tasks
from weft.tasks import Block

app = tasks.App("near")


@app.task(near=True)
def make(number: int, size: int, ttl: float = 3600.0) -> Block:
    return tasks.current().put_block(content(number, size), ttl=ttl)


@app.task(near="block")
def measure(block: Block, seconds: float = 0.0) -> list[str | int]:
    """The site of the run, and the size of the block."""
    data = tasks.current().read_block(block)
    time.sleep(seconds)
    return [app.blocks.site, len(data)]


@app.task(near="blocks")
def join(blocks: list[Block]) -> Block:
    return tasks.current().put_block(b"".join(map(tasks.current().read_block, blocks)))


@app.task(near="site")
def visit(site: str, until: str = "") -> str:
    """Runs until a file exists."""
    while until and not os.path.exists(until):
        time.sleep(0.01)
    return app.blocks.site


@app.task(near=True)
def remember(folder: str) -> Block:
    """Makes another block at each run."""
    with open(os.path.join(folder, "runs"), "ab") as file:
        file.write(b"x")
        file.flush()
        return tasks.current().put_block(b"%d" % os.fstat(file.fileno()).st_size)


def content(number: int, size: int) -> bytes:
    return (b"%08d" % number) * (size // 8)
