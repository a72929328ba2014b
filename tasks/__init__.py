"""Tasks on queues: functions that workers run, with results by id.

app = weft.tasks.App("shop")

@app.task
def resize(path: str, width: int) -> str: ...

resize.submit("a.png", 100).result(timeout=10)
"""

from __future__ import annotations

from weft.client.worker.retry_policy import expo
from weft.errors import (
    BlockLost,
    TaskCancelled,
    TaskFailed,
    TaskTimedOut,
    UpstreamFailed,
    WorkerLost,
)

from . import aio
from .app import App
from .blocks.block import Block
from .future import AsyncFuture, Future, as_completed, gather
from .graph import Graph, GraphNode
from .graph_run import AsyncGraphRun, GraphProgress, GraphRun
from .task import AppTask
from .task_context import TaskContext, current

__all__ = [
    "App",
    "AppTask",
    "AsyncFuture",
    "AsyncGraphRun",
    "Block",
    "BlockLost",
    "Future",
    "Graph",
    "GraphNode",
    "GraphProgress",
    "GraphRun",
    "TaskCancelled",
    "TaskContext",
    "TaskFailed",
    "TaskTimedOut",
    "UpstreamFailed",
    "WorkerLost",
    "aio",
    "as_completed",
    "current",
    "expo",
    "gather",
]
