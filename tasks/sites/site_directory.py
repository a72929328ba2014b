"""The knowledge of a worker about other sites: their workers, from the heartbeats, and their load.

Rows are read again after `ROWS_S`, the length of a queue after `LOAD_S`; in between, a worker adds
its own moves to the length. An error leaves the last knowledge.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from weft.client.consumer.message import BaseMessage
from weft.client.kv_core import KvCore
from weft.client.queue_core import QueueCore
from weft.client.routing.session import ClientSession
from weft.errors import QueueNotFound, WeftError
from weft.tasks.heartbeat import WorkerBeat, beat_prefix

from .site import site_of, site_prefix, site_queue

ROWS_S: Final = 2.0
LOAD_S: Final = 0.05
#: Rows are not read more often for an unknown site.
FRESH_S: Final = 0.05


class _Load:
    def __init__(self) -> None:
        self.read_at = float("-inf")
        self.waiting = 0


class SiteDirectory:
    """Coroutines over a session of an app."""

    def __init__(self, session: ClientSession, app: str) -> None:
        self._session = session
        self._app = app
        self._beats: list[WorkerBeat] = []
        self._read_at = float("-inf")
        self._loads: dict[str, _Load] = {}

    async def workers(self, *, fresh: bool = False) -> list[WorkerBeat]:
        """The live workers of the app."""
        now = time.monotonic()
        if fresh or now - self._read_at > ROWS_S:
            try:
                page = await KvCore(self._session).scan(beat_prefix(self._app))
                self._beats = [msgspec.msgpack.decode(e.value, type=WorkerBeat) for e in page]
                self._read_at = now
            except WeftError:
                pass
        return self._beats

    async def processes(self, queue: str, site: str) -> int:
        """The worker processes of a site that take tasks of the queue."""
        for fresh in (False, True):  # a site that is unknown may have started just now
            beats = await self.workers(fresh=fresh)
            found = [each for each in beats if each.site == site and queue in each.queues]
            if found or time.monotonic() - self._read_at < FRESH_S:
                break
        return sum(each.concurrency for each in found)

    async def addresses(self, store: str, *, fresh: bool = False) -> list[str]:
        """The block servers of a spill folder."""
        beats = await self.workers(fresh=fresh)
        return [each.blocks for each in beats if each.store == store and each.blocks]

    async def waiting(self, queue: str, site: str) -> int:
        """The tasks that wait for a site."""
        load = self._loads.setdefault(site_queue(queue, site), _Load())
        now = time.monotonic()
        if now - load.read_at > LOAD_S:
            try:
                core = QueueCore(self._session, site_queue(queue, site), BaseMessage)
                load.waiting = (await core.stats()).ready
            except QueueNotFound:
                load.waiting = 0
            load.read_at = now
        return load.waiting

    def moved(self, queue: str, site: str, count: int) -> None:
        """This worker has moved tasks to a site."""
        self._loads.setdefault(site_queue(queue, site), _Load()).waiting += count

    async def fullest(self, queue: str, but: str, *, orphans: bool = False) -> str:
        """The site with the most waiting tasks, but one; "" for none. With `orphans` only sites
        without a live worker."""
        found = await _list_queues(self._session, site_prefix(queue))
        live = {each.site for each in await self.workers() if queue in each.queues}
        best, most = "", 0
        for name, ready in found:
            site = site_of(name)
            if site != but and ready > most and not (orphans and site in live):
                best, most = site, ready
        return best


async def _list_queues(session: ClientSession, prefix: str) -> list[tuple[str, int]]:
    from weft.client.admin.queues import AdminCore

    return [(each.name, each.ready) for each in await AdminCore(session).list_queues(prefix)]


async def site_queues(session: ClientSession, queues: list[str]) -> list[str]:
    """The queues of all sites, beside some queues of an app."""
    return [name for each in queues for name, _ in await _list_queues(session, site_prefix(each))]
