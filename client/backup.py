"""Taking a backup of a running cluster, or of some of its queues, through its nodes.

What it promises: every message whose push was acknowledged before the backup began, and which is
not acked when its partition is read, is in it; so are its delivery count, its delay, its priority,
its headers and key, the time of its push, and for a dead letter why it is one and where it came
from. Messages that are lent are in it as ones that wait. What is pushed or acked while the backup
runs is in it or not, message by message: the partitions are read one after the other. Queues are in
it with their settings, and rows of the hash table, when it is the whole cluster's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

from weft.errors import QueueNotFound
from weft.proto import wire

from .admin import AdminCore
from .backup_file import Batches, End, QueueKept, Rows, Start, Writer
from .session import Session

#: Told how many of how many partitions are read, and how many messages there were so far.
Progress = Callable[[int, int, int], None]


async def take(
    session: Session, path: Path, queues: Sequence[str] | None, progress: Progress
) -> End:
    admin = AdminCore(session)
    view = await admin.view()
    found = await admin.settings_of(queues)
    unknown = sorted(set(queues or ()) - found.keys())
    if unknown:
        raise QueueNotFound(f"there is no queue {', '.join(unknown)}")
    wanted = sorted(found if queues is None else set(queues))
    with Writer(path) as file:
        asked = None if queues is None else wanted
        start = Start(
            secrets.token_bytes(16), version("weft"), view.cluster, view.partitions, _now(), asked
        )
        file.write(start)
        for name in wanted:
            file.write(QueueKept(name, msgspec.structs.asdict(found[name])))
        totals = _Totals(frozenset(wanted))
        scopes: list[str | None] = [None] if asked is None else list(asked)
        for partition in range(view.partitions):
            for scope in scopes:
                await _partition(session, file, wire.Snapshot(partition, scope), totals)
            progress(partition + 1, view.partitions, totals.messages)
        end = End(len(wanted), totals.batches, totals.messages, totals.rows, _now())
        file.write(end)
    return end


class _Totals:
    def __init__(self, known: frozenset[str]) -> None:
        self.known = known
        self.batches = self.messages = self.rows = 0


async def _partition(session: Session, file: Writer, asked: wire.Snapshot, totals: _Totals) -> None:
    """All pages of one partition."""
    more = True
    while more:
        page = await session.ask(asked.partition, asked, wire.Snapped, None)
        batches = [each for kept in page.batches if (each := _of(kept, totals.known)) is not None]
        if batches:
            file.write(Batches(batches))
        if page.rows:
            file.write(Rows(page.rows))
        totals.batches += len(batches)
        totals.messages += sum(part.count for kept in batches for part in kept.parts)
        totals.rows += len(page.rows)
        asked = wire.Snapshot(asked.partition, asked.queue, page.lsn, page.key)
        more = page.more


def _of(kept: wire.Kept, known: frozenset[str]) -> wire.Kept | None:
    """Without the messages of queues that were made since the backup began."""
    parts = [part for part in kept.parts if part.queue in known]
    if len(parts) == len(kept.parts):
        return kept
    return msgspec.structs.replace(kept, parts=parts) if parts else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
