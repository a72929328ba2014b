"""The phases of a benchmark of a hash table, for one client process and any key-value server.

Every phase writes or reads all keys of the process, with a fixed number of calls in flight, and
waits for the start line of the benchmark first. The reads check every value.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from weft.errors import ProtocolError

from .child import ready, say

INSERT_MANY: Final = "insert_many"
LOOKUP_MANY: Final = "lookup_many"
INSERT: Final = "insert"
LOOKUP: Final = "lookup"
#: In the order of a run: the lookups read what the inserts wrote.
PHASES: Final = (INSERT_MANY, LOOKUP_MANY, INSERT, LOOKUP)
#: Calls of a client process at one time: single calls, and calls of many keys.
IN_FLIGHT: Final = 128
BATCHES_IN_FLIGHT: Final = 4

_Call = TypeVar("_Call")


class TableTask(msgspec.Struct, frozen=True):
    """The work of one client process."""

    servers: str
    #: All keys of the process start with it.
    prefix: str
    #: Keys of the phases with many keys a call.
    keys: int
    #: Keys of the phases with one key a call.
    singles: int
    size: int
    batch: int


class MeasuredTable(Protocol):
    """The calls of a key-value server that are measured. A lookup gives the values as bytes."""

    async def insert_many(self, items: Mapping[str, bytes]) -> object: ...

    async def lookup_many(self, keys: Sequence[str]) -> Iterable[bytes | None]: ...

    async def insert(self, key: str, value: bytes) -> object: ...

    async def lookup(self, key: str) -> bytes | None: ...


async def run(task: TableTask, table: MeasuredTable) -> None:
    """Runs all phases and reports each to the benchmark, which removes the keys."""
    value = os.urandom(task.size)
    keys = [f"{task.prefix}/{number}" for number in range(task.keys)]
    lots = [keys[first : first + task.batch] for first in range(0, len(keys), task.batch)]
    items = [dict.fromkeys(lot, value) for lot in lots]
    singles = keys[: task.singles]

    async def lookup_many(lot: Sequence[str]) -> None:
        found = list(await table.lookup_many(lot))
        if found.count(value) != len(lot):
            raise ProtocolError(f"{len(lot) - found.count(value)} of {len(lot)} values are missing")

    async def lookup(key: str) -> None:
        if await table.lookup(key) != value:
            raise ProtocolError(f"the value of {key} is missing")

    await _phase(len(keys), items, table.insert_many, BATCHES_IN_FLIGHT)
    await _phase(len(keys), lots, lookup_many, BATCHES_IN_FLIGHT)
    await _phase(len(singles), singles, lambda key: table.insert(key, value), IN_FLIGHT)
    await _phase(len(singles), singles, lookup, IN_FLIGHT)


async def _phase(
    count: int, calls: Sequence[_Call], call: Callable[[_Call], Awaitable[object]], in_flight: int
) -> None:
    await asyncio.to_thread(ready)
    left = iter(calls)

    async def caller() -> None:
        for one in left:
            await call(one)

    cpu, start = _cpu_us(), time.monotonic_ns()
    async with asyncio.TaskGroup() as callers:
        for _ in range(min(in_flight, len(calls))):
            callers.create_task(caller())
    end = time.monotonic_ns()
    result: dict[str, Any] = {
        "keys": count,
        "start_ns": start,
        "end_ns": end,
        "cpu_us": _cpu_us() - cpu,
    }
    say(result)


def _cpu_us() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e6)
