"""Task graphs on the wire: messages that wait for others, and the end of what they wait for.

The rules for every struct of ``wire`` apply: new fields are only added at the end.

A message of a graph *waits* for a number of *parents*: no pop gets the message before each parent
has ended, or one has failed. Which messages are the parents is known to the clients alone; the
partition of the waiting message has the count (``server.engine.parent_counts``). A commit tells the
end of parents by its *arrivals*.

The verbs have tags of their own because a node of an older version would ignore an unknown field of
`Push`, and deliver waiting messages at once.
"""

from __future__ import annotations

import msgspec

from .queue_messages import Push
from .request import Request


class Arrival(msgspec.Struct, array_like=True, frozen=True):
    """Parents that have ended, of waiting messages of one batch.

    `ended` has ranges (first index, count, parents): so many parents of each of the messages have
    ended. `failed` has ranges (first index, count) of messages that are released at once, with the
    reason. A message that does not wait is left alone.
    """

    queue: str
    partition: int
    producer: int
    batch: int
    ended: list[tuple[int, int, int]] = []
    failed: list[tuple[int, int]] = []
    reason: str = ""


class PushWaiting(Push, frozen=True, tag="push_waiting"):
    """A batch of a graph. `waits` has the number of parents of each message; a message without
    parents is delivered like any other. The queue needs the setting `graphs`."""

    waits: list[int] = msgspec.field(default_factory=list)


class KnowsGraphs(Request, frozen=True, tag="knows_graphs"):
    """Between nodes: a member that knows task graphs answers `Done`. While a member does not know
    the request, no queue gets the setting `graphs`, so no message waits."""
