"""The compared key-value servers."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import weft
from bench.peers import fetch
from bench.peers.redis_server import RedisAlways, RedisEverySecond
from bench.peers.server import Address, Server
from bench.peers.weft_server import WeftCluster, WeftDisk, WeftOs
from weft.client.cli.bench.table_phases import MeasuredTable
from weft.client.cli.bench.table_worker import WeftTable

from .etcd_server import EtcdCluster, EtcdServer


@dataclass(frozen=True)
class System:
    name: str
    server: type[Server]
    #: The durability of a confirmed write.
    durability: str
    open: Callable[[Address], Any]
    #: Debian package and program, if it is a peer.
    program: tuple[str, str] | None = None
    #: The Python package of its client, beyond those of Weft.
    library: str = ""

    def install(self, *, may_fetch: bool) -> None:
        """Raises `fetch.Missing` unless the program and the client library are there."""
        if self.program is not None:
            name, package = self.program
            fetch.program(name, package, fetch=may_fetch)
        if self.library and importlib.util.find_spec(self.library) is None:
            raise fetch.Missing(f"{self.library} is not installed (pip install -e '.[bench]')")


@asynccontextmanager
async def _weft(address: Address) -> AsyncIterator[MeasuredTable]:
    async with weft.aio.connect(address["servers"]) as client:
        yield WeftTable(client)


@asynccontextmanager
async def _redis(address: Address) -> AsyncIterator[MeasuredTable]:
    from . import redis_table

    table = await redis_table.connect(address["host"], address["port"])
    try:
        yield table
    finally:
        table.close()


@asynccontextmanager
async def _etcd(address: Address) -> AsyncIterator[MeasuredTable]:
    from . import etcd_table

    async with etcd_table.connect(address["target"]) as channel:
        yield etcd_table.EtcdTable(channel)


_REDIS: Final = ("redis-server", "redis-server")
_ETCD: Final = ("etcd", "etcd-server")
ALL: Final = (
    System("weft", WeftDisk, "fsynced", _weft),
    System("weft-os", WeftOs, "in the page cache", _weft),
    System("weft-3", WeftCluster, "fsynced on two of three nodes", _weft),
    System("redis-always", RedisAlways, "fsynced", _redis, _REDIS, "hiredis"),
    System(
        "redis-everysec", RedisEverySecond, "fsynced within a second", _redis, _REDIS, "hiredis"
    ),
    System("etcd", EtcdServer, "fsynced", _etcd, _ETCD),
    System("etcd-3", EtcdCluster, "fsynced on two of three nodes", _etcd, _ETCD),
)
BY_NAME: Final = {system.name: system for system in ALL}
