"""Cancelled tasks: a mark in the hash table, the end of a waiting task, a watch for workers.

| the task | cancel |
|---|---|
| waits or is delayed | removes the message and stores the outcome: `TaskCancelled` |
| is at a worker | leaves the mark; workers watch the marks, and interrupt or skip the task |
| has ended | changes nothing |

A message is acknowledged only together with an outcome. So a task without a message and without an
outcome was removed by an earlier cancel with a lost answer, and the next cancel stores the outcome.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from weft.client.consumer.message import BaseMessage
from weft.client.key_group import KeyGroup
from weft.client.kv_core import KvCore
from weft.client.queue_core import QueueCore
from weft.client.routing.session import ClientSession, pause_s
from weft.client.sync_client import Client
from weft.client.transaction.graph_commit import arrival, commit_graph
from weft.errors import (
    InvalidArgument,
    MessageLeased,
    QueueNotFound,
    TaskCancelled,
    VersionMismatch,
    WeftError,
)
from weft.ids import MessageId

from .call import result_prefix
from .graph_links import CANCELLED_REASON
from .outcome import RESULT_TTL_S, TaskError, blocks_of, outcomes_in

log = logging.getLogger("weft.tasks")

#: The life of a mark: longer than a task waits for its next attempt.
MARK_TTL_MS: Final = 24 * 3600 * 1000
#: Marks that a worker remembers; the oldest are dropped.
MARKS_MAX: Final = 100_000
#: How long an interrupted task may clean up before its process is killed.
CANCEL_GRACE_S: Final = 5.0
_WAIT_S: Final = 0.5
#: Marks written together.
_MARKED: Final = 1_000
CANCELLED: Final = TaskError(TaskCancelled.code, TaskCancelled.__name__, "cancelled")


def mark_prefix(app: str) -> str:
    return f"tasks/{app}/k/"


async def cancel_task(
    session: ClientSession, app: str, number: MessageId, queues: Iterable[str]
) -> bool:
    """Cancels a task in one of the queues; True if the task waited and is cancelled now."""
    kv = KvCore(session)
    await kv.insert(mark_prefix(app) + str(number), b"", ttl_ms=MARK_TTL_MS)
    try:
        for queue in queues:
            try:
                if await QueueCore(session, queue, BaseMessage).cancel(number):
                    break
            except QueueNotFound:
                continue
    except MessageLeased:
        # The worker of the task sees the mark. A task of a graph that waits goes to a worker now.
        await _release(session, queue, number)
        return False
    return await _store_outcome(session, app, number)


async def mark_tasks(session: ClientSession, app: str, numbers: Sequence[MessageId]) -> None:
    """Leaves the marks of tasks that are, or will be, at a worker."""
    keys = {mark_prefix(app) + str(number): b"" for number in numbers}
    for some in batched_keys(keys):
        await KvCore(session).insert_many(some, ttl_ms=MARK_TTL_MS)


def batched_keys(keys: dict[str, bytes]) -> Iterator[dict[str, bytes]]:
    names = list(keys)
    for start in range(0, len(names), _MARKED):
        yield {name: keys[name] for name in names[start : start + _MARKED]}


async def _release(session: ClientSession, queue: str, number: MessageId) -> None:
    """Has a waiting task of a graph delivered, as cancelled; changes nothing for other tasks."""
    partitions = session.router.partitions
    ended = arrival(
        queue, number.producer, number.batch, partitions, (), [(number.index, 1)], CANCELLED_REASON
    )
    try:
        await commit_graph(session, number.partition, arrivals=[ended])
    except InvalidArgument:
        pass  # a node of a version without graphs: the task is of none


async def _store_outcome(session: ClientSession, app: str, number: MessageId) -> bool:
    group = KeyGroup(session, result_prefix(app, number), number.partition)
    ((index, data),) = blocks_of([(number.index, CANCELLED)])
    for entry in await group.scan():
        if number.index in outcomes_in(entry.value):
            return False
    try:
        ttl_ms = int(RESULT_TTL_S * 1000)
        await KvCore(session).insert(group.key(f"{index:x}"), data, ttl_ms=ttl_ms, if_version=0)
    except VersionMismatch:
        return False
    return True


class Marks:
    """The marks that a worker knows. Any thread may read."""

    def __init__(self) -> None:
        #: Only this class changes them.
        self.numbers: dict[int, None] = {}
        #: All marks ever added: a reader sees by it that there are new ones.
        self.added = 0

    def add(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.numbers[number] = None
            self.added += 1
            if len(self.numbers) > MARKS_MAX:
                del self.numbers[next(iter(self.numbers))]

    def __contains__(self, number: int) -> bool:
        return number in self.numbers

    def __bool__(self) -> bool:
        return bool(self.numbers)

    def all(self) -> list[int]:
        return list(self.numbers)


class MarkWatch:
    """A thread with a watch of an app's marks."""

    def __init__(self, client: Client, app: str, report: Callable[[list[int]], None]) -> None:
        self._client = client
        self._prefix = mark_prefix(app)
        self._report = report
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft-cancel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        failures = 0
        while not self._ended.is_set():
            try:
                self._watch()
            except WeftError as error:
                if self._ended.is_set():
                    return
                log.warning("cancelled tasks are not seen for now: %s", error.message)
                self._ended.wait(pause_s(failures))
                failures += 1

    def _watch(self) -> None:
        with self._client.kv.watch(self._prefix) as watch:
            self._scan()
            while not self._ended.is_set():
                changes = watch.next_batch(_WAIT_S)
                if any(change.resync for change in changes):
                    self._scan()
                self._take([each.key for each in changes if each.value is not None])

    def _scan(self) -> None:
        page = self._client.kv.scan(self._prefix)
        while True:
            self._take([entry.key for entry in page])
            if not page.more:
                return
            page = self._client.kv.scan(self._prefix, after=page.after)

    def _take(self, keys: Sequence[str]) -> None:
        numbers = []
        for key in keys:
            try:
                numbers.append(int(MessageId.parse(key.removeprefix(self._prefix))))
            except InvalidArgument:
                continue  # written by another program
        if numbers:
            self._report(numbers)
