"""Creates a backup of a running cluster, or of some of its queues, through its nodes.

Guarantee: the backup contains every message that was acknowledged to its producer before the backup
began and is not acked when its partition is read. The backup keeps the delivery count, delay,
priority, headers, key and push time of a message, and the reason and origin of a dead letter.
Leased messages are stored as waiting messages. A message that is pushed or acked during the backup
may or may not be included: the partitions are read one after the other. The backup includes queues
with their settings and, for a whole cluster, the topics with their bindings and the rows of the
hash table.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

from weft.client.admin.queues import AdminCore
from weft.client.routing.session import ClientSession
from weft.errors import QueueNotFound
from weft.proto import wire

from .file import VERSION, VERSION_PLAIN, Batches, End, QueueKept, Rows, Start, Writer
from .topics import kept_topics

#: Called with the partitions read, the total of partitions, and the messages so far.
Progress = Callable[[int, int, int], None]


async def take(
    session: ClientSession, path: Path, queues: Sequence[str] | None, progress: Progress
) -> End:
    admin = AdminCore(session)
    view = await admin.view()
    found = await admin.settings_of(queues)
    unknown = sorted(set(queues or ()) - found.keys())
    if unknown:
        raise QueueNotFound(f"there is no queue {', '.join(unknown)}")
    wanted = sorted(found if queues is None else set(queues))
    topics = await kept_topics(session, frozenset(wanted)) if queues is None else []
    with Writer(path, VERSION if topics else VERSION_PLAIN) as file:
        asked = None if queues is None else wanted
        start = Start(
            secrets.token_bytes(16), version("weft"), view.cluster, view.partitions, _now(), asked
        )
        file.write(start)
        for name in wanted:
            file.write(QueueKept(name, msgspec.structs.asdict(found[name])))
        for topic in topics:
            file.write(topic)
        totals = _Totals(frozenset(wanted))
        scopes: list[str | None] = [None] if asked is None else list(asked)
        for partition in range(view.partitions):
            for scope in scopes:
                await _partition(
                    session, file, wire.Snapshot(partition, scope, graphs=True), totals
                )
            progress(partition + 1, view.partitions, totals.messages)
        counts = totals.batches, totals.messages, totals.rows
        end = End(len(wanted), *counts, _now(), len(topics))
        file.write(end)
    return end


class _Totals:
    def __init__(self, known: frozenset[str]) -> None:
        self.known = known
        self.batches = self.messages = self.rows = 0


async def _partition(
    session: ClientSession, file: Writer, asked: wire.Snapshot, totals: _Totals
) -> None:
    """Reads all pages of one partition."""
    more = True
    while more:
        page = await session.ask(asked, wire.Snapped, None)
        batches = [each for kept in page.batches if (each := _of(kept, totals.known)) is not None]
        if batches:
            file.write(Batches(batches))
        if page.rows:
            file.write(Rows(page.rows, page.ttls_ms))
        totals.batches += len(batches)
        totals.messages += sum(part.count for kept in batches for part in kept.parts)
        totals.rows += len(page.rows)
        asked = wire.Snapshot(asked.partition, asked.queue, page.lsn, page.key, True)
        more = page.more


def _of(kept: wire.Kept, known: frozenset[str]) -> wire.Kept | None:
    """Removes messages of queues that were created after the backup began."""
    parts = [part for part in kept.parts if part.queue in known]
    if len(parts) == len(kept.parts):
        return kept
    return msgspec.structs.replace(kept, parts=parts) if parts else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
