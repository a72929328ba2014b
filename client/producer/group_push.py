"""push_many with groups or tenants: one batch has one of them, and the batches of a group keep
their order.

The messages of a chunk are sorted by group. A window of pushes has one batch of each group: the
next batch of a group leaves only when the one before is stored, so a retry reorders no group. A
window of several groups is one round trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from weft.client.routing.session import ClientSession
from weft.client.transport.link import PIPELINE_MAX
from weft.ids import MessageId
from weft.proto import wire

from . import push
from .batch import Columns, Encoded, batches


class _Next(NamedTuple):
    """The remaining batches of a group, and the places of their messages in the chunk."""

    group: str
    encoded: Iterator[Encoded]
    places: Iterator[int]


async def store_groups(
    session: ClientSession,
    queue: str,
    columns: Columns,
    deadline: float,
    delay_ms: int = 0,
    priority: int = 0,
) -> tuple[list[MessageId | None], Exception | None]:
    """Stores the messages of one chunk; returns their ids, None where not stored, and the error."""
    ids: list[MessageId | None] = [None] * len(columns.bodies)
    waiting = list(_by_group(columns))
    while waiting:
        front, waiting = waiting[:PIPELINE_MAX], waiting[PIPELINE_MAX:]
        window = [(each, batch) for each in front if (batch := next(each.encoded, None))]
        waiting += [each for each, _ in window]  # until their batches end
        if not window:
            continue
        pushes: list[tuple[wire.Push, Sequence[bytes]]] = [
            (
                push.request_of(
                    session,
                    queue,
                    batch.messages,
                    delay_ms,
                    priority,
                    None,
                    *((each.group, None) if columns.groups is not None else (None, each.group)),
                ),
                (batch.frame,),
            )
            for each, batch in window
        ]
        failure: Exception | None = None
        for (each, batch), end in zip(
            window, await push.push_window(session, pushes, deadline), strict=True
        ):
            places = [next(each.places) for _ in range(batch.messages)]
            if isinstance(end, wire.Pushed):
                first = MessageId.of(end.partition, end.producer, end.batch, 0)
                for offset, place in enumerate(places):
                    ids[place] = MessageId(first + offset)
            else:
                failure = failure or end
        if failure is not None:
            return ids, failure
    return ids, None


def _by_group(columns: Columns) -> Iterator[_Next]:
    """The messages of each group, or of each tenant."""
    labels = columns.groups if columns.groups is not None else columns.tenants
    assert labels is not None
    places: dict[str, list[int]] = {}
    for place, group in enumerate(labels):
        places.setdefault(group, []).append(place)
    for group, mine in places.items():
        yield _Next(group, batches(columns.choose(mine)), iter(mine))
