"""A client process of `weft bench --kv`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec

import weft
from weft.errors import WeftError

from . import table_phases
from .child import say_error
from .table_phases import TableTask


class WeftTable:
    def __init__(self, client: weft.aio.Client) -> None:
        self._kv = client.kv
        self.insert = client.kv.insert
        self.lookup = client.kv.lookup

    async def insert_many(self, items: Mapping[str, bytes]) -> None:
        await self._kv.insert_many(items)

    async def lookup_many(self, keys: Sequence[str]) -> Iterable[bytes | None]:
        return (await self._kv.lookup_many(keys)).values()


async def _run(task: TableTask) -> None:
    async with weft.aio.connect(task.servers) as client:
        await client.status()
        await table_phases.run(task, WeftTable(client))


def main() -> None:
    task = msgspec.convert(json.loads(sys.argv[1]), TableTask)
    try:
        asyncio.run(_run(task))
    except* WeftError as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        assert isinstance(first, WeftError)
        say_error(first)
        sys.exit(1)


if __name__ == "__main__":
    main()
