"""The topics of a backup: created and bound again by a restore of the whole backup.

A topic that exists stays, and so does the filter of a queue that is bound; only what is missing is
added. So an interrupted restore may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.client.admin.queues import AdminCore
from weft.client.routing.session import ClientSession
from weft.proto import wire

from .file import TopicKept


async def kept_topics(session: ClientSession, known: frozenset[str]) -> list[TopicKept]:
    """Returns all topics of the cluster, with their bindings of the queues of the backup."""
    return [
        TopicKept(each.name, [one for one in each.bindings if one.queue in known])
        for each in await AdminCore(session).list_topics("")
    ]


async def restore_topics(session: ClientSession, topics: Sequence[TopicKept]) -> tuple[int, int]:
    """Returns the numbers of topics created and of queues bound."""
    if not topics:
        return 0, 0
    admin = AdminCore(session)
    there = {each.name: _bound(each.bindings) for each in await admin.list_topics("")}
    created = bound = 0
    for topic in topics:
        if topic.name not in there:
            created += await admin.create_topic(topic.name)
        for binding in topic.bindings:
            if binding.queue not in there.get(topic.name, ()):
                bound += await admin.bind(
                    topic.name, binding.queue, binding.headers, binding.prefixes
                )
    return created, bound


def _bound(bindings: Iterable[wire.Binding]) -> set[str]:
    return {each.queue for each in bindings}
