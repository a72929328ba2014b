"""The calls that wait in the queue of `scheduled.py`: the tick of the chain, and marks.

A tick's commit pushes the mark and the next tick on its own partition, in one log entry; the row of
the next due time is on another partition and follows. So the waiting tick, not the row, says how
many ticks have happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tests.tasks import scheduled
from weft.client.sync_client import Client
from weft.client.transport.blocking_link import run
from weft.tasks.call import decode_call
from weft.tasks.schedule import TICK, DueRecord, begin_schedules, due_key

QUEUE = "timed.default"


@dataclass(frozen=True)
class PendingCalls:
    #: Due times of the waiting ticks: one for each chain.
    ticks: list[float]
    marks: int


def pending_calls(client: Client) -> PendingCalls:
    """No worker may run: a tick in the hands of a worker is not seen."""
    queue = client.queue(QUEUE)
    ticks, marks = [], 0
    for message in [*queue.peek(1000), *queue.peek(1000, delayed=True)]:
        call = decode_call(message.body)
        if call.name == TICK:
            ticks.append(float(msgspec.msgpack.decode(call.args)[2]))
        else:
            marks += 1
    return PendingCalls(ticks, marks)


def begin_chain(client: Client, servers: Sequence[str]) -> float:
    """Begins the schedule as a worker does at its start; returns when the first tick is due."""
    client.create_queue("timed.marks")
    client.create_queue(QUEUE, lease_ms=1000)
    scheduled.app.connect(servers)
    run(begin_schedules(scheduled.app, scheduled.app.session, [QUEUE]))
    scheduled.app.close()
    (first,) = pending_calls(client).ticks
    return first


def next_due(client: Client) -> float:
    """The row of the chain, which may be behind the chain for a moment."""
    data = client.kv.lookup(due_key("timed", "seconds"))
    return 0.0 if data is None else msgspec.msgpack.decode(data, type=DueRecord).next_due
