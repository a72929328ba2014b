"""Placement: which tasks a worker runs, and where the others go (paper 4, figures 49 and 50).

The queue of the app is the *pool*; each site has a queue of its own. A worker takes tasks from the
queue of its site first, then from the pool, and, when both have been empty for `STEAL_S`, from the
fullest other site, if its tasks wait for `STEAL_S` more. Its choice for a task:

| the task is from | its data are | its site has room | the worker |
|---|---|---|---|
| any queue | here, or anywhere | | runs it (`local`) |
| the pool | elsewhere | yes | moves it to the queue of that site (`moved`) |
| the pool | elsewhere | no | moves it to the queue of its own site (`kept`) |
| the queue of its site | elsewhere | yes | moves it to the queue of that site: the second try |
| the queue of its site | elsewhere | no | runs it, and fetches the data (`fetched`) |
| the queue of another site | elsewhere | | runs it, and fetches the data (`stolen`, `fetched`) |

A move changes the queue of the message in one log entry, so the task keeps its id, its deliveries
and its place by age, and is in one queue at any time. The paper's locality engine is a thread of
each server that sorts the whole main queue in advance; here a worker sorts its own pops, so
nothing is sorted before it is needed, and a site with dead workers keeps few tasks. A queue of a
site without live workers is emptied by the others.

Paper 4 leaves open when a site is overloaded. Here a site has room while fewer tasks wait for it
than its processes run in `ROOM_S`, by the measured time of this worker's tasks, and at least
`ROOM_MIN` for each process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final, Generic

from weft.client.admin.queues import AdminCore
from weft.client.consumer.message import M
from weft.client.lease_ticket import move
from weft.client.queue_core import QueueCore
from weft.client.routing.session import ClientSession
from weft.errors import QueueExists, QueueNotFound, WeftError
from weft.tasks.heartbeat import PlacementCounts
from weft.tasks.submission import LEASE_MS

from .site import QUEUE_IDLE_MS, site_queue
from .site_directory import SiteDirectory
from .task_location import Locate

log = logging.getLogger("weft.tasks")

#: A worker looks for tasks of other sites after so long without one, and takes some after as long.
STEAL_S: Final = 0.1
#: The tasks that wait for a site, by the time that its processes need, and at least.
ROOM_S: Final = 0.5
ROOM_MIN: Final = 4
#: The work of one pop (`lease_loop.BUDGET_S`).
POP_S: Final = 0.05
#: How often a worker looks for tasks at sites without workers.
ORPHANS_S: Final = 5.0
#: The wait at one of the two queues.
WAIT_MS: Final = 50
POP_MAX: Final = 4_096
#: Of a popped batch only one share in the number of sites is local, so more is popped.
POP_FACTOR_MAX: Final = 8
#: The pause between looks for a site to steal from is doubled so often, to 3.2 s.
_POLLS_MAX: Final = 5


class Placement(Generic[M]):
    """The pops of one queue of an app for one worker loop; coroutines over its session."""

    def __init__(
        self,
        session: ClientSession,
        queue: str,
        make: type[M],
        site: str,
        directory: SiteDirectory,
        locate: Locate,
    ) -> None:
        self._session = session
        self._queue = queue
        self._make = make
        self._site = site
        self._own = site_queue(queue, site)
        self._directory = directory
        self._locate = locate
        self._factor = 1
        self._steal_at = time.monotonic() + STEAL_S
        #: The site to steal from, and the looks without one.
        self._victim = ""
        self._searches = 0
        self._orphan = ""
        self._orphans_at = time.monotonic() + ORPHANS_S
        self._turn = False
        self._local = self._moved = self._kept = self._fetched = self._stolen = 0

    @property
    def counts(self) -> PlacementCounts:
        return PlacementCounts(self._local, self._moved, self._kept, self._fetched, self._stolen)

    async def pop(self, limit: int, wait_ms: int) -> list[M]:
        """Up to `limit` tasks to run here. Returns nothing if none came within `wait_ms`, or if
        all tasks were moved. Raises QueueNotFound for the pool, and the errors of a pop."""
        if time.monotonic() >= self._orphans_at:
            await self._find_orphans()
        found = await self._from_own(limit, 0) or await self._from_pool(limit, 0)
        if not found and self._orphan:
            found = await self._from_site(self._orphan, limit)
            self._orphan = self._orphan if found else ""
        if found or wait_ms == 0:
            return found
        found = await self._steal(limit)
        if found:
            return found
        self._turn = not self._turn
        source = self._from_own if self._turn else self._from_pool
        return await source(limit, min(wait_ms, WAIT_MS))

    # --- sources ---

    async def _from_own(self, limit: int, wait_ms: int) -> list[M]:
        """From the queue of the site: a remote task there was kept before."""
        messages = await self._popped(self._own, limit, wait_ms)
        remote = self._remote(messages)
        gone: set[M] = set()
        for site, some in remote.items():
            gone.update(await self._move(some, site, await self._room(site, limit)))
        return self._taken(messages, remote, gone)

    async def _from_pool(self, limit: int, wait_ms: int) -> list[M]:
        core = QueueCore(self._session, self._queue, self._make)
        messages = list(await core.pop_many(min(POP_MAX, limit * self._factor), wait_ms=wait_ms))
        remote = self._remote(messages)
        gone: set[M] = set()
        kept: list[M] = []
        for site, some in remote.items():
            if await self._directory.processes(self._queue, site):
                moved = await self._move(some, site, await self._room(site, limit))
                gone.update(moved)
                kept += some[len(moved) :]
            # Without a worker there, the task runs here and its data come from elsewhere.
        if kept and await self._transfer(self._queue, kept, self._own):
            self._kept += len(kept)
            gone.update(kept)
        here = [each for each in messages if each not in gone]
        self._adapt(len(messages), len(here), limit)
        if len(here) > limit and await self._transfer(self._queue, here[limit:], self._own):
            gone.update(here[limit:])
        return self._taken(messages, remote, gone)

    def _adapt(self, popped: int, here: int, limit: int) -> None:
        """Sets the factor so that one pop has about `limit` tasks for here."""
        if popped:
            wanted = self._factor * 2 if here * 2 <= limit else self._factor // 2
            self._factor = max(1, min(POP_FACTOR_MAX, wanted))

    async def _from_site(self, site: str, limit: int) -> list[M]:
        """From the queue of another site: half of what waits, and no task moves again."""
        waiting = await self._directory.waiting(self._queue, site)
        count = max(1, min(limit, waiting // 2))
        messages = await self._popped(site_queue(self._queue, site), count, 0)
        self._stolen += len(messages)
        return self._taken(messages, self._remote(messages, stolen=True), set())

    async def _steal(self, limit: int) -> list[M]:
        """After `STEAL_S` without a task, chooses the fullest site; takes tasks from there if some
        still wait after another `STEAL_S`: its own workers had the first choice.

        A failed look doubles the pause before the next one: an idle app costs little.
        """
        now = time.monotonic()
        if now < self._steal_at:
            return []
        site = self._victim
        if site and (found := await self._from_site(site, limit)):
            self._victim, self._steal_at = site, now  # more may wait there
            return found
        self._victim = await self._directory.fullest(self._queue, self._site)
        self._searches = 0 if self._victim else min(self._searches + 1, _POLLS_MAX)
        self._steal_at = now + STEAL_S * (1 << self._searches)
        return []

    async def _find_orphans(self) -> None:
        self._orphans_at = time.monotonic() + ORPHANS_S
        try:
            self._orphan = await self._directory.fullest(self._queue, self._site, orphans=True)
        except WeftError as error:
            log.info("queues of sites were not read: %s", error.message)

    async def _popped(self, queue: str, limit: int, wait_ms: int) -> list[M]:
        try:
            return list(
                await QueueCore(self._session, queue, self._make).pop_many(limit, wait_ms=wait_ms)
            )
        except QueueNotFound:
            await self._create(queue)
            return []

    def _remote(self, messages: Sequence[M], *, stolen: bool = False) -> dict[str, list[M]]:
        """The tasks with data at other sites, by site."""
        if messages and not stolen:
            self._victim, self._searches = "", 0
            self._steal_at = time.monotonic() + STEAL_S
        remote: dict[str, list[M]] = {}
        for message in messages:
            site = self._locate(message.body)
            if site == self._site:
                self._local += 1
            elif site:
                remote.setdefault(site, []).append(message)
        return remote

    def _taken(self, messages: list[M], remote: dict[str, list[M]], gone: set[M]) -> list[M]:
        """The tasks for here, in the order of the queue, which a worker's columns rest on."""
        self._fetched += sum(each not in gone for some in remote.values() for each in some)
        if not gone:
            return messages
        self._local -= sum(self._locate(each.body) == self._site for each in gone)
        return [each for each in messages if each not in gone]

    # --- moves ---

    async def _room(self, site: str, limit: int) -> int:
        """How many more tasks may wait for a site."""
        processes = await self._directory.processes(self._queue, site)
        most = processes * max(ROOM_MIN, int(limit * ROOM_S / POP_S))
        return max(0, most - await self._directory.waiting(self._queue, site))

    async def _move(self, messages: Sequence[M], site: str, room: int) -> Sequence[M]:
        """Moves the first tasks to a site; returns those that were moved."""
        some = messages[:room]
        to = site_queue(self._queue, site)
        if not some or not await self._transfer(some[0].queue, some, to):
            return ()
        self._directory.moved(self._queue, site, len(some))
        self._moved += len(some)
        return some

    async def _transfer(self, queue: str, messages: Sequence[M], to: str) -> bool:
        """Moves tasks between two queues; False if they stay at this worker.

        After an error some may have been moved: this worker's run of such a task cannot commit.
        """
        core = QueueCore(self._session, queue, self._make)
        for attempt in range(2):
            try:
                await move(core, messages, to)
            except QueueNotFound:
                if attempt:
                    return False
                await self._create(to)
            except WeftError as error:
                log.info("%d tasks stay at this worker: %s", len(messages), error.message)
                return False
            else:
                return True
        return False

    async def _create(self, queue: str) -> None:
        settings = {"lease_ms": LEASE_MS, "expire_idle_ms": QUEUE_IDLE_MS}
        try:
            await AdminCore(self._session).create_queue(queue, settings)
        except QueueExists:
            pass
