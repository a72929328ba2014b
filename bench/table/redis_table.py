"""Redis on one connection, with as many commands under way as there are callers.

redis-py sends one command at a time on a connection; this client pipelines without waiting, with
the parser and the packer of hiredis, so that Redis is measured and not its client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import hiredis


class RedisTable(asyncio.Protocol):
    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not False:
            future = self._waiting.popleft()
            if isinstance(answer, hiredis.HiredisError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        for future in self._waiting:
            future.set_exception(ConnectionError("Redis closed the connection"))
        self._waiting.clear()

    def _send(self, *words: bytes | str) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._transport.write(hiredis.pack_command(words))
        return future

    async def insert(self, key: str, value: bytes) -> object:
        return await self._send("SET", key, value)

    async def lookup(self, key: str) -> bytes | None:
        found: bytes | None = await self._send("GET", key)
        return found

    async def insert_many(self, items: Mapping[str, bytes]) -> object:
        return await self._send("MSET", *(word for item in items.items() for word in item))

    async def lookup_many(self, keys: Sequence[str]) -> Iterable[bytes | None]:
        found: list[bytes | None] = await self._send("MGET", *keys)
        return found

    def close(self) -> None:
        self._transport.close()


async def connect(host: str, port: int) -> RedisTable:
    _, table = await asyncio.get_running_loop().create_connection(RedisTable, host, port)
    return table
