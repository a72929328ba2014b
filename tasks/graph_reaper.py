"""The reaper: ends a graph after the death of a client before the start of the graph.

A delayed task of the graph's own submission (``graph_submission``). If the graph was started, the
reaper does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.client.transport.blocking_link import run
from weft.ids import MessageId

from .call import queue_name
from .graph_record import BatchRecord, GraphRecord
from .graph_submission import REAPER, abandon

if TYPE_CHECKING:
    from .app import App


def register(app: App, queues: list[str]) -> None:
    """Makes the reaper known to a worker. It runs on any queue of the app."""
    if REAPER in app.tasks or not app.tasks:
        return

    def reap(graph: str, ttl_ms: int, batches: list[tuple[str, int, int, int, int]]) -> bool:
        rows = [BatchRecord(*each) for each in batches]
        number = MessageId.parse(graph)
        record = GraphRecord(number.to_bytes(16, "big"), [], [], rows, [], [], [], ttl_ms)
        return run(abandon(app.session, app.name, record))

    # A queue of one map-reduce run is no task's own: its submissions name the queue.
    other = queues[0].removeprefix(queue_name(app.name, ""))
    own = (task.options.queue for task in app.tasks.values() if task.queue in queues)
    queue = next(own, other)
    app.task(name=REAPER, queue=queue, attempts=100)(reap)
