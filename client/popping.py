"""pop: at the only node with its wait, or by the search over many nodes (dht/search.py).

A node gives what it holds itself, so with several nodes a pop goes from one to the next, and waits
at the queue's metadata list when all have nothing. A node that does not answer is no error while
there is time: the others are asked, the view is looked at, and the search begins anew with the
nodes that lead now. "Nothing" is said only when every node said so.
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
from weft.dht.search import Ask, Search, Trail, Wait
from weft.errors import DeadlineExceeded, Unavailable, WeftError
from weft.proto import wire

from . import retry
from .link import Link
from .router import ANY, PAUSE_S_MAX, Router
from .view import View

log = logging.getLogger("weft.client")

#: A longer wait is made of several: each ends with a look at all nodes, should the list be wrong.
WAIT_MS_SLICE: Final = 2_000
#: How long a pop that was broken off tries to give back what it has.
GIVE_BACK_S: Final = 1.0
#: Queues whose last finds are remembered; the ones used longest ago are forgotten first.
TRAILS_MAX: Final = 1_024

Lent = tuple[list[wire.Lent], list[wire.Frame]]


class Trails:
    """What a client remembers of its queues."""

    def __init__(self) -> None:
        self._trails: OrderedDict[str, Trail] = OrderedDict()

    def of(self, queue: str) -> Trail:
        trail = self._trails.get(queue)
        if trail is None:
            # Two threads may both make one: the one that is forgotten cost a hop.
            trail = self._trails[queue] = Trail()
            if len(self._trails) > TRAILS_MAX:
                self._trails.popitem(last=False)
        return trail


async def pop(
    router: Router, trail: Trail, request: wire.Pop, wait_ms: int, deadline: float
) -> Lent:
    """Up to `request.limit` messages, as soon as there are any; none after `wait_ms`."""
    until = time.monotonic() + wait_ms / 1000
    left_ms, tries = wait_ms, 0
    while True:
        await router.keep_fresh(deadline)
        if not router.alone:
            return await Popping(router, trail, request, until, deadline).run()
        seen, link = router.view, router.link(ANY)
        asked = wire.Pop(
            request.queue, request.limit, min(left_ms, limits.WAIT_MS_MAX), request.lease_ms
        )
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
            # it is not the only one any more.
            await router.carrier.sleep(min(left_ms / 1000, pause_s))


@dataclass
class Popping:
    """One pop over several nodes."""

    router: Router
    trail: Trail
    request: wire.Pop
    until: float
    deadline: float
    lent: list[wire.Lent] = field(default_factory=list)
    frames: list[wire.Frame] = field(default_factory=list)
    #: Waits that failed, for the pauses; and attempts without an answer, for their length.
    tries: int = 0
    silences: int = 0
    failure: WeftError | None = None

    async def run(self) -> Lent:
        while not await self._walk(self.router.view):
            pass
        return self.lent, self.frames

    async def _walk(self, view: View) -> bool:
        """One search. Whether the pop has ended; if not, it begins anew, with the nodes of now."""
        up, down = self.router.leaders()
        search = Search(up or down, self.router.local, self.trail, random.getrandbits(64))
        while self.router.view.same_places(view):
            step = search.next()
            if isinstance(step, Ask):
                await self._ask(search, step.node, view)
                if self.lent:
                    await self._gather(search, view)
                    return True
            elif not isinstance(step, Wait):
                search.told(await self._where(0, view) or [])
            elif self._left_ms() > 0:
                await self.router.carrier.sleep(min(step.pause_ms, self._left_ms()) / 1000)
                search.told(await self._wait(view))
            elif search.unsure or (up and down):
                await self._doubt(view)
                return False
            else:
                return True
        return False

    async def _ask(self, search: Search, node: str, view: View) -> None:
        link = self.router.link_to(node)
        if link is None:  # it has just left
            search.failed(node)
            return
        limit = self.request.limit - sum(one.count for one in self.lent)
        request = wire.Pop(self.request.queue, limit, 0, self.request.lease_ms, self.trail.heeded)
        end = await retry.attempt(
            self.router, link, request, wire.Popped, self.deadline, self.silences
        )
        if isinstance(end, WeftError):
            search.failed(node)
            await self._failed(link, end, view)
            return
        self.trail.fell(node, end[0].fell)
        if end[0].lent:
            self.lent += end[0].lent
            self.frames += end[1]
            search.found(node, end[0].left)
        else:
            search.empty(node)

    async def _gather(self, search: Search, view: View) -> None:
        """What else is there, at nodes that are known to have some."""
        try:
            while (
                sum(one.count for one in self.lent) < self.request.limit
                and sum(map(len, self.frames)) < limits.POP_BYTES_MAX
                and (step := search.more()) is not None
            ):
                await self._ask(search, step.node, view)
        except WeftError as error:
            # What is lent already counts for more; a later pop meets the failure again.
            log.debug("no more of %s: %s", self.request.queue, error.message)
        except BaseException:  # cancelled, or a signal's exception: nobody takes what is lent
            await self._give_back()
            raise

    async def _give_back(self) -> None:
        for one in self.lent:
            link = self.router.link(self.router.of_partition(one.partition))
            receipt = wire.Receipt(one.partition, one.lsn, one.nonce)
            request = wire.Nack(self.request.queue, [receipt], counted=False)
            deadline = time.monotonic() + GIVE_BACK_S
            await retry.attempt(self.router, link, request, wire.Settled, deadline)

    async def _where(self, wait_ms: int, view: View) -> Sequence[str] | None:
        """The nodes of the metadata list; None if it cannot be had."""
        queue = self.request.queue
        link = self.router.link(self.router.of_text(queue))
        request = wire.Where(queue, wait_ms, self.trail.fallen())
        end = await retry.attempt(
            self.router, link, request, wire.Nodes, self.deadline, self.silences
        )
        if isinstance(end, WeftError):
            await self._failed(link, end, view)
            return None
        self.trail.heeded = end[0].heeds
        return end[0].nodes

    async def _wait(self, view: View) -> Sequence[str]:
        wait_ms = min(self._left_ms(), WAIT_MS_SLICE)
        began = time.monotonic()
        nodes = await self._where(wait_ms, view)
        early_s = began + wait_ms / 1000 - time.monotonic()
        if not nodes and early_s > 0 and self.router.view.same_places(view):
            # It failed, or its node is draining: not to be asked again at once.
            await self.router.carrier.sleep(min(early_s, PAUSE_S_MAX, retry.pause_s(self.tries)))
            self.tries += 1
        return nodes or []

    async def _failed(self, link: Link, failure: WeftError, view: View) -> None:
        """A node did not answer: looks at the view, or raises what does not pass."""
        if not failure.retriable or time.monotonic() >= self.deadline:
            raise failure
        self.failure = failure
        self.silences += isinstance(failure, DeadlineExceeded)
        await self.router.look_after(link, failure, view, self.deadline)

    async def _doubt(self, view: View) -> None:
        """Some node did not answer, so that nobody knows whether there is something."""
        await self.router.look(None, self.deadline)
        if not self.router.view.same_places(view):
            return
        pause_s = min(PAUSE_S_MAX, retry.pause_s(self.tries))
        if time.monotonic() + pause_s >= self.deadline:
            raise self.failure or Unavailable("some nodes did not answer; no others had messages")
        self.tries += 1
        await self.router.carrier.sleep(pause_s)

    def _left_ms(self) -> int:
        """Never less than nothing: a node refuses a wait that ends before it begins."""
        return max(0, int((self.until - time.monotonic()) * 1000))
