"""pop: at a single node with its wait, or by a search over many nodes (weft/pop_search.py).

A node returns only messages that it holds. With several nodes a pop asks one node after the other,
and waits at the queue's metadata list when all are empty. A node that does not answer is no error
while there is time: the pop asks the others, refreshes the view, and restarts the search with the
current leaders. A pop returns "nothing" only when every node said so.
"""

from __future__ import annotations

import logging
import random
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from weft import limits
from weft.client.routing import retry
from weft.client.routing.cluster_view import ClusterView
from weft.client.routing.router import ANY, PAUSE_S_MAX, Router
from weft.client.transport.link import Link
from weft.errors import DeadlineExceeded, Unavailable, WeftError
from weft.pop_search import AskNode, PopSearch, SearchMemory, WaitAtMetadataList
from weft.proto import wire

log = logging.getLogger("weft.client")

#: A longer wait is split into slices: each ends with a query to all nodes, in case the list is
#: wrong.
WAIT_MS_SLICE: Final = 2_000
#: How long an interrupted pop tries to return its leases.
GIVE_BACK_S: Final = 1.0
#: Queues with a remembered search memory; the oldest entries are dropped first.
TRAILS_MAX: Final = 1_024

Lent = tuple[list[wire.Lent], list[wire.Frame]]


class Trails:
    """The search memories of a client's queues."""

    def __init__(self) -> None:
        self._trails: OrderedDict[str, SearchMemory] = OrderedDict()

    def of(self, queue: str) -> SearchMemory:
        search_memory = self._trails.get(queue)
        if search_memory is None:
            # Two threads may both create one: losing one of them costs one hop.
            search_memory = self._trails[queue] = SearchMemory()
            if len(self._trails) > TRAILS_MAX:
                self._trails.popitem(last=False)
        return search_memory


async def pop(
    router: Router, search_memory: SearchMemory, request: wire.Pop, wait_ms: int, deadline: float
) -> Lent:
    """Returns up to `request.limit` messages as soon as there are any; none after `wait_ms`."""
    until = time.monotonic() + wait_ms / 1000
    left_ms, tries = wait_ms, 0
    while True:
        await router.keep_fresh(deadline)
        if not router.alone:
            return await Popper(router, search_memory, request, until, deadline).run()
        seen, link = router.view, router.link(ANY)
        asked = wire.Pop(
            request.queue, request.limit, min(left_ms, limits.WAIT_MS_MAX), request.lease_ms,
            prefetch=request.prefetch, handed=request.handed,
        )  # fmt: skip
        end = await retry.attempt(router, link, asked, wire.Popped, deadline)
        now, pause_s = time.monotonic(), retry.pause_s(tries)
        left_ms = max(0, int((until - now) * 1000))
        tries += 1
        if isinstance(end, WeftError):
            if not end.retriable or now + pause_s >= deadline:
                raise end
            await router.again(link, end, seen, pause_s, deadline)
        elif end[0].lent or not left_ms:
            return end[0].lent, list(end[1])
        else:
            # An early "nothing": the wait was longer than a node allows, the node is draining, or
            # the node is no longer the only one.
            await router.runtime.sleep(min(left_ms / 1000, pause_s))


@dataclass
class Popper:
    """One pop over several nodes."""

    router: Router
    search_memory: SearchMemory
    request: wire.Pop
    until: float
    deadline: float
    lent: list[wire.Lent] = field(default_factory=list)
    frames: list[wire.Frame] = field(default_factory=list)
    #: Failed waits, which set the length of pauses; unanswered attempts, which set their timeout.
    tries: int = 0
    silences: int = 0
    failure: WeftError | None = None

    async def run(self) -> Lent:
        while not await self._walk(self.router.view):
            pass
        return self.lent, self.frames

    async def _walk(self, view: ClusterView) -> bool:
        """Runs one search. True: the pop has ended; False: restart with the current nodes."""
        up, down = self.router.leaders()
        search = PopSearch(
            up or down, self.router.local, self.search_memory, random.getrandbits(64)
        )
        while self.router.view.same_places(view):
            step = search.next()
            if isinstance(step, AskNode):
                await self._ask(search, step.node, view)
                if self.lent:
                    await self._gather(search, view)
                    return True
            elif not isinstance(step, WaitAtMetadataList):
                search.told(await self._where(0, view) or [])
            elif self._left_ms() > 0:
                await self.router.runtime.sleep(min(step.pause_ms, self._left_ms()) / 1000)
                search.told(await self._wait(view))
            elif search.unsure or (up and down):
                await self._doubt(view)
                return False
            else:
                return True
        return False

    async def _ask(self, search: PopSearch, node: str, view: ClusterView) -> None:
        link = self.router.link_to(node)
        if link is None:  # the node has just left
            search.failed(node)
            return
        limit = self.request.limit - sum(one.count for one in self.lent)
        request = wire.Pop(
            self.request.queue, limit, 0, self.request.lease_ms, self.search_memory.heeded,
            self.request.prefetch, self.request.handed,
        )  # fmt: skip
        end = await retry.attempt(
            self.router, link, request, wire.Popped, self.deadline, self.silences
        )
        if isinstance(end, WeftError):
            search.failed(node)
            await self._failed(link, end, view)
            return
        self.search_memory.fell(node, end[0].fell)
        if end[0].lent:
            self.lent += end[0].lent
            self.frames += end[1]
            search.found(node, end[0].left)
        else:
            search.empty(node)

    async def _gather(self, search: PopSearch, view: ClusterView) -> None:
        """Collects more messages from nodes that are known to have some."""
        try:
            while (
                sum(one.count for one in self.lent) < self.request.limit
                and sum(map(len, self.frames)) < limits.POP_BYTES_MAX
                and (step := search.more()) is not None
            ):
                await self._ask(search, step.node, view)
        except WeftError as error:
            # The messages leased so far matter more; a later pop reports the failure.
            log.debug("no more of %s: %s", self.request.queue, error.message)
        except BaseException:  # cancelled or interrupted by a signal: no caller takes the leases
            await self._give_back()
            raise

    async def _give_back(self) -> None:
        for one in self.lent:
            link = self.router.link(self.router.of_partition(one.partition))
            receipt = wire.Receipt(one.partition, one.lsn, one.nonce)
            request = wire.Nack(self.request.queue, [receipt], counted=False)
            deadline = time.monotonic() + GIVE_BACK_S
            await retry.attempt(self.router, link, request, wire.Settled, deadline)

    async def _where(self, wait_ms: int, view: ClusterView) -> Sequence[str] | None:
        """Returns the nodes of the metadata list; None if the query failed."""
        queue = self.request.queue
        link = self.router.link(self.router.of_text(queue))
        request = wire.Where(queue, wait_ms, self.search_memory.fallen())
        end = await retry.attempt(
            self.router, link, request, wire.Nodes, self.deadline, self.silences
        )
        if isinstance(end, WeftError):
            await self._failed(link, end, view)
            return None
        self.search_memory.heeded = end[0].heeds
        return end[0].nodes

    async def _wait(self, view: ClusterView) -> Sequence[str]:
        wait_ms = min(self._left_ms(), WAIT_MS_SLICE)
        began = time.monotonic()
        nodes = await self._where(wait_ms, view)
        early_s = began + wait_ms / 1000 - time.monotonic()
        if not nodes and early_s > 0 and self.router.view.same_places(view):
            # The query failed, or the node is draining: pause before the next query.
            await self.router.runtime.sleep(min(early_s, PAUSE_S_MAX, retry.pause_s(self.tries)))
            self.tries += 1
        return nodes or []

    async def _failed(self, link: Link, failure: WeftError, view: ClusterView) -> None:
        """A node did not answer: refreshes the view, or raises a permanent failure."""
        if not failure.retriable or time.monotonic() >= self.deadline:
            raise failure
        self.failure = failure
        self.silences += isinstance(failure, DeadlineExceeded)
        await self.router.look_after(link, failure, view, self.deadline)

    async def _doubt(self, view: ClusterView) -> None:
        """Some node did not answer, so the client cannot tell whether there are messages."""
        await self.router.look(None, self.deadline)
        if not self.router.view.same_places(view):
            return
        pause_s = min(PAUSE_S_MAX, retry.pause_s(self.tries))
        if time.monotonic() + pause_s >= self.deadline:
            raise self.failure or Unavailable("some nodes did not answer; no others had messages")
        self.tries += 1
        await self.router.runtime.sleep(pause_s)

    def _left_ms(self) -> int:
        """Returns the remaining wait, at least 0: a node refuses a negative wait."""
        return max(0, int((self.until - time.monotonic()) * 1000))
