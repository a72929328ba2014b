"""The asyncio client. It belongs to the event loop on which it was connected."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Final, Unpack

from weft import limits
from weft.proto import wire

from .admin import AdminCore, QueueSettings
from .discovery import Discovery, parse_servers
from .kv import KvCore
from .link_async import AsyncLink
from .message import AsyncMessage
from .queue import QueueCore
from .router import Router
from .session import TIMEOUT_MS, Session, check_timeout
from .stats import QueueStats

#: How long `connect` looks for a node: a typing error should not take half a minute to show.
CONNECT_MS: Final = 5_000


class Queue(QueueCore[AsyncMessage]):
    """A queue by name. Nothing is asked of the node until a verb is called."""


class Client:
    """One connection to Weft. Use it with `async with`, or close it."""

    def __init__(self, discovery: Discovery, timeout_ms: int) -> None:
        assert discovery.view is not None, "find first"
        self._link = AsyncLink(discovery)
        self._session = Session(Router(self._link, discovery.view.partitions), timeout_ms)
        self._admin = AdminCore(self._session)
        self.kv = KvCore(self._session)

    def queue(self, name: str) -> Queue:
        """A handle; the queue itself may not exist yet."""
        return Queue(self._session, name, AsyncMessage)

    async def create_queue(self, name: str, **settings: Unpack[QueueSettings]) -> bool:
        """Makes a queue. False if it was there with these settings; with others: QueueExists."""
        return await self._admin.create_queue(name, settings)

    async def update_queue(self, name: str, **changes: Unpack[QueueSettings]) -> None:
        """Changes the named settings; the others stay."""
        await self._admin.update_queue(name, changes)

    async def delete_queue(self, name: str) -> int:
        """Drops a queue with all its messages; says how many."""
        return await self._admin.delete_queue(name)

    async def list_queues(self, prefix: str = "") -> list[QueueStats]:
        return await self._admin.list_queues(prefix)

    async def view(self) -> wire.ViewInfo:
        """Who is in the cluster."""
        return await self._admin.view()

    async def status(self) -> wire.StatusInfo:
        """A node's own figures."""
        return await self._admin.status()

    async def close(self) -> None:
        self._link.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Connecting:
    """What `connect` gives: await it for a Client, or enter it with `async with`."""

    def __init__(
        self, servers: str | Sequence[str] | None, timeout_ms: int, connect_timeout_ms: int
    ) -> None:
        check_timeout(timeout_ms)
        limits.check_range("connect_timeout_ms", connect_timeout_ms, 0, limits.DAY_MS)
        self._discovery = Discovery(parse_servers(servers))
        self._timeout_ms = timeout_ms
        self._connect_s = connect_timeout_ms / 1000
        self._client: Client | None = None

    async def _connect(self) -> Client:
        await asyncio.to_thread(self._discovery.find, self._connect_s)
        return Client(self._discovery, self._timeout_ms)

    def __await__(self) -> Generator[None, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._client is not None, "entered before"
        await self._client.close()


def connect(
    servers: str | Sequence[str] | None = None,
    *,
    timeout_ms: int = TIMEOUT_MS,
    connect_timeout_ms: int = CONNECT_MS,
) -> Connecting:
    """Connects to a cluster through any of its nodes.

    `servers` are gRPC addresses, HOST:PORT: a list, or a text with commas; without them
    WEFT_SERVERS counts, then 127.0.0.1:7700. Every call ends within `timeout_ms` unless it is
    given its own.
    """
    return Connecting(servers, timeout_ms, connect_timeout_ms)
