"""Schedules: a chain of ticks without a process that keeps time.

A tick is a delayed call of the task `weft.tick` on the queue of the scheduled task. Its run submits
the scheduled task and the next tick in its own transaction, so each tick happens once, over deaths
of workers and failovers of nodes. A chain has a *generation*; the schedule's record in the hash
table names the valid one:

| found | then |
|---|---|
| at a worker's start: no record, or other settings | one transaction begins a generation |
| at a worker's start: the next tick is long overdue | likewise: a purge has ended the chain |
| a tick of the record's generation | submits the task and the next tick |
| a tick of another generation, or without a record | ends its chain |
| a tick unknown to the worker's code | goes back to the queue, uncounted |

**Daylight saving time**, as in Debian's cron: a time inside the gap of a day is replaced by the end
of the gap; a repeated fixed time happens once; a time with a `*` in the hours happens twice.

**Missed ticks** (no node or no worker was there): `missed="once"` makes up for all with one
run, `"skip"` with none, `"all"` with each.
"""

from __future__ import annotations

import datetime
import secrets
import time
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft import limits
from weft.client.kv_core import KvCore
from weft.client.routing.session import ClientSession
from weft.client.transaction.async_transaction import AsyncTransaction
from weft.client.transaction.home_numbers import HomeNumbers
from weft.errors import InvalidArgument, MissingExtra, QueueNotFound, VersionMismatch

from . import graph_reaper
from .call import BodyFrame
from .signature import encode
from .submission import create_queue

if TYPE_CHECKING:
    from .app import App
    from .task import AppTask

MISSED: Final = ("once", "skip", "all")
TICK: Final = "weft.tick"
#: A later tick is a missed one.
LATE_S: Final = 60.0
#: A chain whose next tick is overdue for so long is begun again by the next worker that starts.
LOST_S: Final = 600.0
#: A message cannot be delayed for longer: a far tick comes early, and is sent on.
_DELAY_S_MAX: Final = limits.DELAY_MS_MAX / limits.SECOND_MS / 2


class ScheduleRecord(msgspec.Struct, array_like=True, frozen=True):
    """The row of a schedule, written by begin and end alone: a tick that wrote the row could
    bring back an ended schedule. New fields are added at the end, with defaults."""

    generation: str
    settings: str
    task: str


class DueRecord(msgspec.Struct, array_like=True, frozen=True):
    """The row written by each tick."""

    generation: str
    #: When the next tick is due, in seconds since 1970.
    next_due: float


class UnknownSchedule(Exception):
    """A tick without a schedule in the worker's code."""


@dataclass(frozen=True)
class Schedule:
    """A task with the times of a cron expression."""

    name: str
    task: AppTask[Any, Any]
    cron: str
    tz: str
    missed: str
    body: bytes

    @classmethod
    def of(
        cls,
        name: str,
        task: AppTask[Any, Any],
        cron: str,
        tz: str,
        missed: str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Schedule:
        if missed not in MISSED:
            raise InvalidArgument(f"missed must be one of {', '.join(MISSED)}, not {missed!r}")
        # Never pickled: other bytes at each start would begin the schedule again.
        body = task.frame.body(*task.signature.pack(tuple(args), kwargs))
        schedule = cls(name, task, cron, tz, missed, body)
        schedule.after(time.time())  # checks the expression and the time zone
        return schedule

    @property
    def settings(self) -> str:
        """Changes with every setting."""
        return f"{self.cron} {self.tz} {self.missed} {self.task.name} {self.body.hex()}"

    def after(self, since: float) -> float:
        """Returns the first time after `since`; both in seconds since 1970."""
        try:
            from cronsim import CronSim, CronSimError
        except ModuleNotFoundError:
            raise MissingExtra("schedules need cronsim: pip install 'weft[tasks]'") from None
        try:
            zone = zoneinfo.ZoneInfo(self.tz)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            raise InvalidArgument(
                f"schedule {self.name}: there is no time zone {self.tz!r}; write it as "
                "Europe/Berlin or UTC"
            ) from None
        try:
            found = next(CronSim(self.cron, datetime.datetime.fromtimestamp(since, zone)))
        except (CronSimError, AttributeError, TypeError) as error:
            raise InvalidArgument(
                f"schedule {self.name}: {self.cron!r} is no cron expression: {error}"
            ) from None
        except StopIteration:
            raise InvalidArgument(
                f"schedule {self.name}: {self.cron!r} has no time within 50 years"
            ) from None
        return found.timestamp()


def record_key(app: str, name: str) -> str:
    return f"tasks/{app}/s/{name}"


def due_key(app: str, name: str) -> str:
    return f"tasks/{app}/d/{name}"


def tick_body(name: str, generation: str, due: float) -> bytes:
    return BodyFrame(TICK).body(encode([name, generation, due]), encode({}))


def delay_ms_to(due: float) -> int:
    return int(min(max(0.0, due - time.time()), _DELAY_S_MAX) * 1000)


def run_tick(app: App, name: str, generation: str, due: float) -> str:
    """The function of the task `weft.tick`; returns one word."""
    from .task_context import current

    key = record_key(app.name, name)
    data = app.client.kv.lookup(key)
    if data is None:
        return "removed"
    record = msgspec.msgpack.decode(data, type=ScheduleRecord)
    if record.generation != generation:
        return "replaced"
    schedule = app.schedules.get(name)
    if schedule is None:
        raise UnknownSchedule(name)
    context, now = current(), time.time()
    if now < due - 1:  # further away than a message can be delayed, or a clock that is behind
        context.push(
            schedule.task.queue, tick_body(name, generation, due), delay_ms=delay_ms_to(due)
        )
        return "early"
    missed = now > due + LATE_S
    if not (missed and schedule.missed == "skip"):
        context.push(schedule.task.queue, schedule.body)
    following = schedule.after(due if schedule.missed == "all" else max(due, now))
    context.push(
        schedule.task.queue, tick_body(name, generation, following),
        delay_ms=delay_ms_to(following),
    )  # fmt: skip
    context.kv.insert(due_key(app.name, name), encode(DueRecord(generation, following)))
    return "missed" if missed else "on time"


async def begin_schedules(app: App, session: ClientSession, queues: Sequence[str]) -> None:
    """Begins missing chains of the app's schedules, at the start of each worker."""
    graph_reaper.register(app, list(queues))
    for schedule in app.schedules.values():
        if schedule.task.queue in queues:
            await _begin(app, session, schedule)


async def _begin(app: App, session: ClientSession, schedule: Schedule) -> None:
    key, now = record_key(app.name, schedule.name), time.time()
    entry = await KvCore(session).lookup_entry(key)
    due = schedule.after(now)
    if entry is not None:
        record = msgspec.msgpack.decode(entry.value, type=ScheduleRecord)
        if record.settings == schedule.settings:
            data = await KvCore(session).lookup(due_key(app.name, schedule.name))
            row = None if data is None else msgspec.msgpack.decode(data, type=DueRecord)
            if row is not None and row.generation == record.generation:
                if row.next_due + LOST_S >= now:
                    return
                due = row.next_due  # a missed tick, treated as the schedule says
    generation = secrets.token_hex(8)
    begun = ScheduleRecord(generation, schedule.settings, schedule.task.name)
    while True:
        transaction = AsyncTransaction(session, HomeNumbers(session))
        version = 0 if entry is None else entry.version
        transaction.kv.insert(key, encode(begun), if_version=version)
        transaction.kv.insert(due_key(app.name, schedule.name), encode(DueRecord(generation, due)))
        body = tick_body(schedule.name, generation, due)
        transaction.push(schedule.task.queue, body, delay_ms=delay_ms_to(due))
        try:
            await transaction.commit()
        except QueueNotFound:
            await create_queue(session, schedule.task.queue)
            continue
        except VersionMismatch:
            pass  # another worker has begun the chain
        return
