"""Putting a backup back, into an empty cluster or another one, by way of its nodes.

The file is read once before anything is changed, so a damaged one changes nothing. Queues that are
not there are made; one that is there with other settings is an error. Batches go to the partitions
where this cluster places them, in the order of the file, and a partition remembers how far it came
with each backup: a restore that was broken off goes on where it was, and one that is made again
does nothing. Rows of the hash table go where there is no such key; what is there stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from weft import limits
from weft.errors import BackupDamaged, QueueExists, Unavailable
from weft.proto import wire
from weft.proto.settings import Settings

from . import retry
from .admin import AdminCore, make_settings
from .backup_file import Batches, End, QueueKept, Record, Rows, Start, read
from .link import Asked
from .router import ANY
from .session import Session

#: Batches on their way at once, each to another partition, and their bytes.
WINDOW_MAX: Final = 32
WINDOW_BYTES_MAX: Final = 4 * limits.MIB
#: For a row whose fate is not known: it is safe to ask again.
_ROW_TRIES: Final = 5

#: Told how many batches and rows of how many are done.
Progress = Callable[[int, int], None]


@dataclass
class Contents:
    """What a file has, seen by reading all of it."""

    start: Start
    end: End
    queues: dict[str, Settings] = field(default_factory=dict)


@dataclass
class Restored:
    queues_made: int = 0
    batches: int = 0
    messages: int = 0
    #: Batches that this cluster has taken before.
    batches_known: int = 0
    rows: int = 0
    #: Rows whose key was there.
    rows_kept: int = 0


def look(path: Path) -> Contents:
    """Checks all of a file."""
    start: Start | None = None
    queues: dict[str, Settings] = {}
    end = End(0, 0, 0, 0, "")
    batches = messages = rows = 0
    for record in read(path):
        match record:
            case Start():
                start = record
            case QueueKept():
                queues[record.name] = make_settings(record.settings)
            case Batches():
                batches += len(record.batches)
                messages += sum(p.count for kept in record.batches for p in kept.parts)
            case Rows():
                rows += len(record.rows)
            case End():
                end = record
    assert start is not None, "read() gives one"
    if (len(queues), batches, messages, rows) != (end.queues, end.batches, end.messages, end.rows):
        raise BackupDamaged(f"{path} does not have what its end says: {end}")
    return Contents(start, end, queues)


async def put_back(
    session: Session, path: Path, contents: Contents, name: bytes, progress: Progress
) -> Restored:
    """`name` is what the cluster remembers it by: the backup's own id, or a fresh one."""
    done = Restored()
    done.queues_made = await _make_queues(session, contents)
    total = contents.end.batches + contents.end.rows
    backup = int.from_bytes(name[:8], "big"), int.from_bytes(name[8:], "big")
    for window in _windows(session, read(path), contents, backup):
        await _put(session, window, done)
        progress(done.batches + done.batches_known + done.rows + done.rows_kept, total)
    return done


_Window = list[tuple[int, Asked]]


def _windows(
    session: Session, records: Iterator[Record], contents: Contents, backup: tuple[int, int]
) -> Iterator[_Window]:
    """Requests of one kind with their places, no two of a window to the same place."""
    size, places = 0, set[int]()
    window: _Window = []
    for place, request in _requests(session, records, contents, backup):
        mixed = bool(window) and type(window[0][1][0]) is not type(request)
        if mixed or place in places or len(window) == WINDOW_MAX or size > WINDOW_BYTES_MAX:
            yield window
            window, size, places = [], 0, set()
        if isinstance(request, wire.Restore):
            size += len(request.kept.payload)
        places.add(place)
        window.append((place, (request, ())))
    if window:
        yield window


def _requests(
    session: Session, records: Iterator[Record], contents: Contents, backup: tuple[int, int]
) -> Iterator[tuple[int, wire.Restore | wire.CompareAndSwap]]:
    router, number = session.router, 0
    for record in records:
        if isinstance(record, Batches):
            for kept in record.batches:
                # Who pushed to a queue that is not in the backup: where its messages are now.
                queue = kept.queue if kept.queue in contents.queues else kept.parts[0].queue
                push = wire.Push(
                    queue, kept.producer, kept.batch, kept.count, dedup_key=kept.dedup_key
                )
                place = router.of_push(contents.queues[queue].ordered, push)
                yield place, wire.Restore(queue, backup, number, kept)
                number += 1
        elif isinstance(record, Rows):
            for key, value in record.rows:
                yield router.of_text(key), wire.CompareAndSwap(key, None, value)


async def _put(session: Session, window: _Window, done: Restored) -> None:
    if isinstance(window[0][1][0], wire.Restore):
        deadline = time.monotonic() + session.timeout_ms / 1000
        for (_, (request, _)), end in zip(
            window, await retry.ask_all(session.router, window, wire.Pushed, deadline), strict=True
        ):
            if isinstance(end, Exception):
                raise end
            assert isinstance(request, wire.Restore)
            done.batches += not end.duplicate
            done.batches_known += end.duplicate
            if not end.duplicate:
                done.messages += sum(part.count for part in request.kept.parts)
        return
    await _put_rows(session, window, done)


async def _put_rows(session: Session, window: _Window, done: Restored) -> None:
    for attempt in range(_ROW_TRIES):
        deadline = time.monotonic() + session.timeout_ms / 1000
        ends = await retry.ask_all(session.router, window, wire.Swapped, deadline)
        doubt: _Window = []
        for asked, end in zip(window, ends, strict=True):
            if isinstance(end, Unavailable) and attempt + 1 < _ROW_TRIES:
                doubt.append(asked)
            elif isinstance(end, Exception):
                raise end
            else:
                done.rows += end.swapped
                done.rows_kept += not end.swapped
        if not doubt:
            return
        window = doubt


async def _make_queues(session: Session, contents: Contents) -> int:
    """Dead letter queues before those that name them; how many were not there."""
    wanted = contents.queues
    there = await AdminCore(session).settings_of(None if contents.start.asked is None else wanted)
    differ = sorted(n for n, settings in wanted.items() if there.get(n, settings) != settings)
    if differ:
        raise QueueExists(
            f"there with other settings than in the backup: {', '.join(differ[:10])}. Update or "
            "delete them, or restore into another cluster"
        )
    made = 0
    for name in _in_order(wanted):
        if name not in there:
            request = wire.CreateQueue(name, wanted[name])
            await session.ask(ANY, request, wire.Created, None)
            made += 1
    return made


def _in_order(wanted: dict[str, Settings]) -> list[str]:
    """Each after its dead letter queue, which would else be made with other settings."""
    order: dict[str, None] = {}

    def visit(name: str, above: frozenset[str]) -> None:
        letter = wanted[name].dead_letter
        if letter in wanted and letter not in above and letter not in order:
            visit(letter, above | {name})
        order.setdefault(name)

    for name in sorted(wanted):
        visit(name, frozenset())
    return list(order)
