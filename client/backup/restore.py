"""Restores a backup: all of it or some queues, as a copy or to undo a purge.

The restore reads the whole file before any change, so a damaged file changes nothing. There are two
modes:

- **undo**, into the cluster of the backup: restores only messages that a purge or a delete has
  removed since. The partitions have records of those messages (`server.engine.purged`); messages
  that wait, are leased or were acknowledged since the backup are in no record and are skipped.
  Every restored message leaves its record, so a restore may be interrupted and repeated.
- **copy**, into any other cluster, into another queue (`into`), or on request (`again`): restores
  every message of the backup. A partition remembers its progress with each backup: an interrupted
  restore continues at that point, and a repeated one changes nothing.

Missing queues are created. Topics and rows of the hash table are restored with the whole backup
only; an existing key keeps its value, and a bound queue its filter.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from weft import limits
from weft.client.admin.queues import AdminCore, stored_settings
from weft.client.routing.session import ClientSession, ask_all
from weft.client.transport.link import Asked
from weft.errors import BackupDamaged, InvalidArgument, QueueExists, QueueNotFound
from weft.proto import wire
from weft.proto.settings import Settings

from .file import Batches, End, QueueKept, Record, Rows, Start, TopicKept, read
from .topics import restore_topics

#: Batches in flight at once, each to another partition, and their bytes.
WINDOW_MAX: Final = 32
WINDOW_BYTES_MAX: Final = 4 * limits.MIB
#: Number of queues named in one error.
_NAMES_MAX: Final = 10

#: Called with the number of batches and rows done, and the total.
Progress = Callable[[int, int], None]


@dataclass
class Contents:
    """The contents of a file, after reading all of it."""

    start: Start
    end: End
    queues: dict[str, Settings] = field(default_factory=dict)
    topics: list[TopicKept] = field(default_factory=list)


@dataclass
class Restored:
    """Result of a restore: batches and rows of the hash table, messages and queues."""

    #: "undo" or "copy", see the module docstring.
    mode: str = "copy"
    queues_made: int = 0
    batches: int = 0
    messages: int = 0
    #: Batches of which nothing was restored. In a copy: an earlier restore of this backup did so.
    #: In an undo: no purge removed any message of them.
    batches_known: int = 0
    #: Messages of the backup that were not restored, for the same reasons.
    messages_skipped: int = 0
    rows: int = 0
    #: Rows with an existing key.
    rows_kept: int = 0
    topics_made: int = 0
    #: Queues bound to topics.
    bindings_made: int = 0


def check_file(path: Path) -> Contents:
    """Checks the whole file."""
    start: Start | None = None
    queues: dict[str, Settings] = {}
    end = End(0, 0, 0, 0, "")
    batches = messages = rows = 0
    topics: list[TopicKept] = []
    for record in read(path):
        match record:
            case Start():
                start = record
            case QueueKept():
                queues[record.name] = stored_settings(record.settings)
            case Batches():
                batches += len(record.batches)
                messages += sum(p.count for kept in record.batches for p in kept.parts)
            case Rows():
                rows += len(record.rows)
            case TopicKept():
                topics.append(record)
            case End():
                end = record
    assert start is not None, "read() gives one"
    found = (len(queues), batches, messages, rows, len(topics))
    if found != (end.queues, end.batches, end.messages, end.rows, end.topics):
        raise BackupDamaged(f"{path} does not have what its end says: {end}")
    return Contents(start, end, queues, topics)


@dataclass(frozen=True)
class Selection:
    """The queues to restore, and the mode. `into` requires exactly one queue."""

    queues: frozenset[str] | None = None
    into: str | None = None
    again: bool = False

    def check(self, path: Path, contents: Contents) -> None:
        """Raises before anything is changed."""
        if self.into is not None:
            limits.check_queue_name(self.into)
            if self.queues is None or len(self.queues) != 1:
                raise InvalidArgument("--into takes the messages of one queue: name it by --queue")
            if self.into in self.queues:
                raise InvalidArgument(
                    f"--into names {self.into}, the queue itself: leave --into out to undo a purge "
                    "of it, or name another queue"
                )
        unknown = sorted((self.queues or frozenset()) - contents.queues.keys())
        if unknown:
            raise QueueNotFound(
                f"{path} has no queue {', '.join(unknown)}; it has "
                f"{', '.join(sorted(contents.queues)[:_NAMES_MAX]) or 'none'}"
            )

    def targets(self, contents: Contents) -> dict[str, Settings]:
        """Returns the queues to restore into, with their settings from the backup."""
        if self.into is not None and self.queues is not None:
            (queue,) = self.queues
            return {self.into: contents.queues[queue]}
        wanted = self.queues
        return {n: s for n, s in contents.queues.items() if wanted is None or n in wanted}


async def put_back(
    session: ClientSession, path: Path, contents: Contents, selection: Selection, progress: Progress
) -> Restored:
    selection.check(path, contents)
    cluster = (await AdminCore(session).view()).cluster
    undo = cluster == contents.start.cluster and selection.into is None and not selection.again
    done = Restored("undo" if undo else "copy")
    existing = await _make_queues(session, contents, selection, done, undo=undo)
    if selection.queues is None:
        done.topics_made, done.bindings_made = await restore_topics(session, contents.topics)
    total = contents.end.batches + (contents.end.rows if selection.queues is None else 0)
    plan = _Plan(session, contents, selection, existing, undo=undo)
    for window in _windows(plan.requests(read(path))):
        await _put(session, window, done)
        progress(min(total, plan.batches), total)
    return done


_Name = tuple[int, int]
_Window = list[tuple[int, Asked]]


def _windows(
    requests: Iterator[tuple[int, wire.Restore | wire.Put]],
) -> Iterator[_Window]:
    """Groups requests of one type into windows without two requests to the same place."""
    size, places = 0, set[int]()
    window: _Window = []
    for place, request in requests:
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


class _Plan:
    """The requests of a restore, made from the records of a file."""

    def __init__(
        self, session: ClientSession, contents: Contents, selection: Selection,
        existing: dict[str, Settings], *, undo: bool,
    ) -> None:  # fmt: skip
        self._session = session
        self._router = session.router
        self._existing = existing
        self._selection = selection
        self._undo = undo
        #: A new id also restores messages that this cluster has restored before.
        self._id = secrets.token_bytes(16) if selection.again else contents.start.id
        self._numbers: Counter[str] = Counter()
        #: Number of batches and rows of the file processed so far.
        self.batches = 0

    def requests(self, records: Iterator[Record]) -> Iterator[tuple[int, wire.Restore | wire.Put]]:
        for record in records:
            if isinstance(record, Batches):
                for kept in record.batches:
                    for request in self._of(kept):
                        yield self._place(request), request
                    self.batches += 1
            elif isinstance(record, Rows) and self._selection.queues is None:
                ttls_ms = record.ttls_ms or [0] * len(record.rows)
                for (key, value), ttl_ms in zip(record.rows, ttls_ms, strict=True):
                    number = next(self._session.batches)
                    yield (
                        self._router.of_text(key),
                        wire.Put(key, value, self._session.producer, number, ttl_ms, if_version=0),
                    )
                    self.batches += 1

    def _of(self, kept: wire.Kept) -> Iterator[wire.Restore]:
        """Yields one request for the batch; with a selection, one for each selected queue."""
        wanted, whole = self._selection.queues, self.batches
        names = dict.fromkeys(part.queue for part in kept.parts)
        chosen = [name for name in names if wanted is None or name in wanted]
        numbers = {name: self._numbers[name] for name in names}
        self._numbers.update(names.keys())
        if wanted is None:
            first = next(iter(names))
            also = (*self._name(first), numbers[first])
            yield self._request(kept, _halves(self._id), whole, also)
            return
        for name in chosen:
            parts = [part for part in kept.parts if part.queue == name]
            only = msgspec.structs.replace(kept, parts=parts)
            into = self._selection.into
            if into is not None:
                parts = [msgspec.structs.replace(part, queue=into) for part in parts]
                only = msgspec.structs.replace(kept, queue=into, parts=parts)
            also = (0, 0, 0) if into is not None else (*_halves(self._id), whole)
            yield self._request(only, self._name(name), numbers[name], also)

    def _request(
        self, kept: wire.Kept, name: _Name, number: int, also: tuple[int, int, int]
    ) -> wire.Restore:
        # The queue to which the batch was pushed decides the partition. If that queue no longer
        # exists, the queue that now has the messages takes its place.
        queue = kept.queue if kept.queue in self._existing else kept.parts[0].queue
        waits = any(part.waits for part in kept.parts)
        kind = wire.RestoreWaiting if waits else wire.Restore
        if not self._undo:
            return kind(queue, name, number, kept, also=also)
        self._numbers[""] += 1
        return kind(queue, name, -self._numbers[""], kept, purged_only=True)

    def _place(self, request: wire.Restore) -> int:
        kept = request.kept
        if kept.group is not None:
            return self._router.of_text(kept.group)
        push = wire.Push(
            request.queue, kept.producer, kept.batch, kept.count, dedup_key=kept.dedup_key
        )
        return self._router.of_push(self._existing[request.queue].ordered, push)

    def _name(self, queue: str) -> _Name:
        """Returns the id by which the cluster remembers the restore of one queue."""
        target = self._selection.into or ""
        return _halves(hashlib.sha256(f"{self._id.hex()}/{queue}/{target}".encode()).digest())


def _halves(name: bytes) -> _Name:
    return int.from_bytes(name[:8], "big"), int.from_bytes(name[8:16], "big")


async def _put(session: ClientSession, window: _Window, done: Restored) -> None:
    if isinstance(window[0][1][0], wire.Restore):
        deadline = time.monotonic() + session.timeout_ms / 1000
        for (_, (request, _)), end in zip(
            window, await ask_all(session.router, window, wire.Pushed, deadline), strict=True
        ):
            if isinstance(end, Exception):
                raise end
            assert isinstance(request, wire.Restore)
            offered = sum(part.count for part in request.kept.parts)
            back = offered
            if end.duplicate:
                back = 0
            elif request.purged_only:
                back = end.count
            done.batches += not end.duplicate
            done.batches_known += end.duplicate
            done.messages += back
            done.messages_skipped += offered - back
        return
    await _put_rows(session, window, done)


async def _put_rows(session: ClientSession, window: _Window, done: Restored) -> None:
    deadline = time.monotonic() + session.timeout_ms / 1000
    for end in await ask_all(session.router, window, wire.KeyWritten, deadline):
        if isinstance(end, Exception):
            raise end
        done.rows += end.done
        done.rows_kept += not end.done


async def _make_queues(
    session: ClientSession, contents: Contents, selection: Selection, done: Restored, *, undo: bool
) -> dict[str, Settings]:
    """Creates missing queues, dead-letter queues first; returns the queues that exist now."""
    wanted = selection.targets(contents)
    everything = selection.queues is None and contents.start.asked is None
    asked = None if everything else {*wanted, *(contents.queues if undo else ())}
    there = await AdminCore(session).settings_of(asked)
    differ = [difference for name in wanted if (difference := _differ(name, wanted, there, undo))]
    if differ:
        named = "; ".join(sorted(differ)[:_NAMES_MAX])
        raise QueueExists(
            f"exists with other settings than in the backup: {named}"
            ". Update or delete the queue, or restore into another one (--queue NAME --into OTHER)"
        )
    for name in _in_order(wanted):
        if name not in there:
            request = wire.create_request(name, wanted[name])
            await session.ask(request, wire.Created, None)
            done.queues_made += 1
    return wanted | there


def _differ(
    name: str, wanted: dict[str, Settings], there: dict[str, Settings], undo: bool
) -> str:  # fmt: skip
    """Returns the settings that prevent a restore into the queue; empty if there are none.

    An undo keeps the queue's settings: only `ordered` and `grouped` decide the place of its
    messages.
    """
    if name not in there:
        return ""
    now, then = (msgspec.structs.asdict(each[name]) for each in (there, wanted))
    decide = ("ordered", "grouped")
    names = [each for each in then if now[each] != then[each] and (each in decide or not undo)]
    settings = ", ".join(f"{each} is {now[each]!r}, not {then[each]!r}" for each in names)
    return f"{name} ({settings})" if names else ""


def _in_order(wanted: dict[str, Settings]) -> list[str]:
    """Orders each queue after its dead-letter queue, which otherwise gets other settings."""
    order: dict[str, None] = {}

    def visit(name: str, above: frozenset[str]) -> None:
        letter = wanted[name].dead_letter
        if letter in wanted and letter not in above and letter not in order:
            visit(letter, above | {name})
        order.setdefault(name)

    for name in sorted(wanted):
        visit(name, frozenset())
    return list(order)
