"""Pushes to grouped queues: which are valid, and the partition of a group.

A push to a grouped queue names its group. There is no default group: one forgotten argument would
turn the queue into one sequence, and its consumers would wait for each other. SQS decides so, too.

What a grouped queue does not have, and why:

| refused                | reason                                                                |
|------------------------|-----------------------------------------------------------------------|
| `delay_ms` of a push   | later messages of the group would have to wait, or would overtake     |
| `priority`             | a message of high priority would overtake its group                   |
| `dedup_key`            | a group decides the partition, so a key could not be unique in the    |
|                        | queue: the same key in two groups is on two nodes. A producer's resend|
|                        | is stored once, as in every queue                                     |
| stages, subscriptions  | both reserve messages by age, regardless of groups                    |
"""

from __future__ import annotations

from weft import limits
from weft.dht import placement
from weft.errors import InvalidArgument
from weft.proto import wire
from weft.proto.settings import Settings


def place_of(queue: str, settings: Settings, request: wire.Push, partitions: int) -> int:
    """The partition of a push with a group, or to a grouped queue; raises InvalidArgument."""
    if isinstance(request, wire.PushTenant):
        raise InvalidArgument(
            f"{queue} is grouped: its groups are independent already. Push without a tenant"
        )
    if not isinstance(request, wire.PushGroup):
        raise InvalidArgument(f"{queue} is grouped: push each message with a group")
    if not settings.grouped:
        raise InvalidArgument(
            f"{queue} is not grouped: push without a group, or create a queue with grouped=True"
        )
    limits.check_range("group bytes", len(request.group.encode()), 1, limits.GROUP_BYTES_MAX)
    if request.delay_ms or request.priority:
        raise InvalidArgument(f"{queue} is grouped: it has neither delays nor priorities")
    if request.dedup_key is not None:
        raise InvalidArgument(
            f"{queue} is grouped: it has no dedup keys, because a key could repeat in another "
            "group. A resend of the same push is stored once without a key"
        )
    return placement.of_text(request.group, partitions)


def place_of_kept(queue: str, settings: Settings, kept: wire.Kept, partitions: int) -> int:
    """The partition of a batch from a backup; raises InvalidArgument."""
    check_kept(settings, queue, kept)
    if kept.group is None:
        return placement.of_push(
            queue, settings.ordered, kept.producer, kept.batch, kept.dedup_key, partitions
        )
    limits.check_range("group bytes", len(kept.group.encode()), 1, limits.GROUP_BYTES_MAX)
    return placement.of_text(kept.group, partitions)


def check_kept(settings: Settings, queue: str, kept: wire.Kept) -> None:
    if settings.grouped and kept.group is None:
        raise InvalidArgument(
            f"{queue} is grouped, and the batch in the backup has no group: restore it to a queue "
            "that is not grouped"
        )


def refuse(queue: str, settings: Settings, what: str) -> None:
    """Refuses a verb that does not respect groups."""
    if settings.grouped:
        raise InvalidArgument(f"{queue} is grouped: it has no place for {what}; push and pop it")
