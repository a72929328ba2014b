"""pop: the methods of a queue; at a single node with its wait, or by a search over many nodes.

The order of a search is in weft/pop_search.py.

A pop of a stochastic queue probes the nodes instead (weft/probe_walk.py). Answers tell which kind a
queue is, so the first pop of a stochastic queue begins as a search.

A node returns only messages that it holds. With several nodes a pop asks one node after the other,
and waits at the queue's metadata list when all are empty. A node that does not answer is no error
while there is time: the pop asks the others, refreshes the view, and restarts the search with the
current leaders. A pop returns "nothing" only when every node said so.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from weft import limits
from weft.client import arguments, tracing
from weft.client.routing.cluster_view import ClusterView
from weft.client.routing.router import ANY, PAUSE_S_MAX, REFRESH_EVERY_S, Router
from weft.client.routing.session import ask, attempt, pause_s
from weft.client.transport.link import Link
from weft.errors import DeadlineExceeded, Unavailable, WeftError
from weft.pop_search import AskNode, PopSearch, SearchMemory, WaitAtMetadataList
from weft.probe_walk import Probe, ProbeWalk
from weft.proto import wire

from .ack import QueueSettlement
from .lease import LeasedBatch, Settler
from .message import M, unpack

log = logging.getLogger("weft.client")

#: A longer wait is split into slices: each ends with a query to all nodes, in case the list is
#: wrong.
WAIT_MS_SLICE: Final = 2_000
#: How long an interrupted pop tries to return its leases.
GIVE_BACK_S: Final = 1.0

Lent = tuple[list[wire.Lent], list[wire.Frame]]


class QueuePops(QueueSettlement[M]):
    """The part of `QueueCore` that pops and peeks; the same queue settles the messages."""

    _make: type[M]

    async def pop(
        self, *, wait_ms: int = 0, lease_ms: int = 0, timeout_ms: int | None = None
    ) -> M | None:
        """Pops one message, leased for `lease_ms` milliseconds (0: the queue's own lease_ms).

            message = await orders.pop(wait_ms=1000)

        Returns None if no message came within `wait_ms` milliseconds. Raises like `pop_many`.
        """
        batch = await self.pop_many(1, wait_ms=wait_ms, lease_ms=lease_ms, timeout_ms=timeout_ms)
        return batch[0] if batch else None

    async def pop_many(
        self,
        limit: int,
        *,
        wait_ms: int = 0,
        lease_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> list[M]:
        """Pops up to `limit` messages, leased for `lease_ms` milliseconds (0: as the queue says).

            messages = await orders.pop_many(100, wait_ms=1000)

        The call returns as soon as there is any message, and may return fewer than `limit`: the
        ready messages of one node (a cluster has several), 8 MiB at most, one lot of an ordered
        queue. If no message is ready, the call waits up to `wait_ms` milliseconds for the first
        message; an empty list means that none came. To get more, call again. Raises InvalidArgument
        for bad arguments, QueueNotFound, and Unavailable if no node answers in time.
        """
        groups = await self.pop_groups(limit, wait_ms, lease_ms, timeout_ms, self)
        if len(groups) == 1:
            return groups[0]
        leases = [group[0]._lease for group in groups]
        return LeasedBatch(chain.from_iterable(groups), leases)

    async def pop_groups(
        self,
        limit: int,
        wait_ms: int,
        lease_ms: int,
        timeout_ms: int | None,
        owner: Settler,
        *,
        prefetch: bool = False,
        handed: bool = False,
    ) -> list[list[M]]:
        """Like pop_many, with one list per lease; `owner` takes the acks and nacks of the messages.

        With `prefetch` no delivery counts before `hand_out` has recorded it; with `handed` only
        messages that must be handed out alone are recorded that way.
        """
        arguments.check_integer("limit", limit, 1, limits.POP_COUNT_MAX)
        arguments.check_integer("wait_ms", wait_ms, 0, limits.DAY_MS)
        arguments.check_lease_ms(lease_ms)
        session = self._session
        lent, frames = await pop_ranges(
            session.router,
            session.trails.of(self.name),
            wire.Pop(self.name, limit, 0, lease_ms, False, prefetch, handed),
            wait_ms,
            session.deadline(timeout_ms, wait_ms),
        )
        groups = unpack(self._make, self.name, lent, frames, owner)
        # A trace travels in headers.
        traced = [lease for group in groups if (lease := group[0]._lease).headers is not None]
        if traced:
            tracing.delivered(traced)
        return groups

    async def peek(
        self, limit: int = 1, *, delayed: bool = False, timeout_ms: int | None = None
    ) -> list[M]:
        """Returns the next messages without a lease.

            waiting = await orders.peek(10)

        `delayed`: returns messages that are not due yet instead, earliest due first. The result may
        have fewer messages than the queue: 8 MiB at most. Raises InvalidArgument and QueueNotFound.
        """
        arguments.check_integer("limit", limit, 1, limits.POP_COUNT_MAX)
        deadline = self._session.deadline(timeout_ms)
        arguments.check_flag("delayed", delayed)
        request = wire.Peek(self.name, limit, delayed)
        answer, frames = await ask(self._session.router, ANY, request, wire.Peeked, deadline)
        groups = unpack(self._make, self.name, answer.lent, frames, self)
        return [message for group in groups for message in group]


async def pop_ranges(
    router: Router, search_memory: SearchMemory, request: wire.Pop, wait_ms: int, deadline: float
) -> Lent:
    """Returns up to `request.limit` messages as soon as there are any; none after `wait_ms`."""
    until = time.monotonic() + wait_ms / 1000
    left_ms, tries = wait_ms, 0
    while True:
        if time.monotonic() - router.refreshed_at >= REFRESH_EVERY_S:
            await router.refresh_view(None, deadline)
        if not router.alone:
            stochastic = search_memory.probes is not None
            popper = (Walker if stochastic else Popper)(
                router, search_memory, request, until, deadline
            )
            lent = await popper.run()
            if lent[0] or (search_memory.probes is not None) is stochastic:
                return lent
            continue  # the first answer of a stochastic queue, or of one that is none any more
        seen, link = router.view, router.table[ANY] or router.link(ANY)
        asked = wire.Pop(
            request.queue, request.limit, min(left_ms, limits.WAIT_MS_MAX), request.lease_ms,
            prefetch=request.prefetch, handed=request.handed,
        )  # fmt: skip
        end = await attempt(router, link, asked, wire.Popped, deadline)
        now, pause = time.monotonic(), pause_s(tries)
        left_ms = max(0, int((until - now) * 1000))
        tries += 1
        if isinstance(end, WeftError):
            if not end.retriable or now + pause >= deadline:
                raise end
            await router.again(link, end, seen, pause, deadline)
        elif end[0].lent or not left_ms:
            return end[0].lent, list(end[1])
        else:
            # An early "nothing": the wait was longer than a node allows, the node is draining, or
            # the node is no longer the only one.
            await router.runtime.sleep(min(left_ms / 1000, pause))


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
                if self.search_memory.probes is not None:
                    return True
                if self.lent:
                    await self._gather(search, view)
                    return True
            elif not isinstance(step, WaitAtMetadataList):
                await self._use_list(search, await self._where(0, view) or [], view)
            elif self._left_ms() > 0:
                await self.router.runtime.sleep(min(step.pause_ms, self._left_ms()) / 1000)
                await self._use_list(search, await self._wait(search, view), view)
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
        end = await attempt(self.router, link, request, wire.Popped, self.deadline, self.silences)
        if isinstance(end, WeftError):
            search.failed(node)
            await self._failed(link, end, view)
            return
        if end[0].probe is not None:
            self.search_memory.reported(node, end[0].probe)
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
            await attempt(self.router, link, request, wire.Settled, deadline)

    async def _where(self, wait_ms: int, view: ClusterView) -> Sequence[str] | None:
        """Returns the nodes of the metadata list; None if the query failed."""
        queue = self.request.queue
        link = self.router.link(self.router.of_text(queue))
        request = wire.Where(queue, wait_ms, self.search_memory.fallen())
        end = await attempt(self.router, link, request, wire.Nodes, self.deadline, self.silences)
        if isinstance(end, WeftError):
            await self._failed(link, end, view)
            return None
        self.search_memory.heeded = end[0].heeds
        return end[0].nodes

    async def _wait(self, search: PopSearch, view: ClusterView) -> Sequence[str]:
        wait_ms = min(self._left_ms(), WAIT_MS_SLICE)
        began = time.monotonic()
        nodes = await self._where(wait_ms, view) or []
        early_s = began + wait_ms / 1000 - time.monotonic()
        if not search.knows(nodes) and early_s > 0 and self.router.view.same_places(view):
            # The query failed, the node is draining, or the list names only nodes that this search
            # does not ask: pause before the next query.
            await self.router.runtime.sleep(min(early_s, PAUSE_S_MAX, pause_s(self.tries)))
            self.tries += 1
        return nodes

    async def _use_list(self, search: PopSearch, nodes: Sequence[str], view: ClusterView) -> None:
        """Passes the list to the search. A list that names a node without partitions in the view
        shows that the view is old: without a newer one, the node's messages would stay hidden."""
        search.use_list(nodes)
        leaders = {node.id for node in view.leaders()}
        if not leaders.issuperset(nodes):
            await self.router.refresh_view(None, self.deadline)

    async def _failed(self, link: Link, failure: WeftError, view: ClusterView) -> None:
        """A node did not answer: refreshes the view, or raises a permanent failure."""
        if not failure.retriable or time.monotonic() >= self.deadline:
            raise failure
        self.failure = failure
        self.silences += isinstance(failure, DeadlineExceeded)
        await self.router.refresh_after(link, failure, view, self.deadline)

    async def _doubt(self, view: ClusterView) -> None:
        """Some node did not answer, so the client cannot tell whether there are messages."""
        await self.router.refresh_view(None, self.deadline)
        if not self.router.view.same_places(view):
            return
        pause = min(PAUSE_S_MAX, pause_s(self.tries))
        if time.monotonic() + pause >= self.deadline:
            raise self.failure or Unavailable("some nodes did not answer; no others had messages")
        self.tries += 1
        await self.router.runtime.sleep(pause)

    def _left_ms(self) -> int:
        """Returns the remaining wait, at least 0: a node refuses a negative wait."""
        return max(0, int((self.until - time.monotonic()) * 1000))


class Walker(Popper):
    """One pop of a stochastic queue."""

    async def _walk(self, view: ClusterView) -> bool:
        memory = self.search_memory.probes
        assert memory is not None, "only a stochastic queue is probed"
        up, down = self.router.leaders()
        walk = ProbeWalk(up or down, memory, random.randrange, view.zone_of(self.router.local))
        while self.router.view.same_places(view):
            probe = walk.next(self._left_ms())
            if probe is not None:
                await self._probe(walk, probe, view)
                if self.lent or self.search_memory.probes is None:
                    return True
            elif walk.unsure or (up and down):
                await self._doubt(view)
                return False
            else:
                return True
        return False

    async def _probe(self, walk: ProbeWalk, probe: Probe, view: ClusterView) -> None:
        link = self.router.link_to(probe.node)
        if link is None:  # the node has just left
            walk.failed(probe.node)
            return
        request = wire.Pop(
            self.request.queue, self.request.limit, probe.wait_ms, self.request.lease_ms,
            prefetch=self.request.prefetch, handed=self.request.handed,
        )  # fmt: skip
        end = await attempt(self.router, link, request, wire.Popped, self.deadline, self.silences)
        if isinstance(end, WeftError):
            walk.failed(probe.node)
            await self._failed(link, end, view)
            return
        self.search_memory.reported(probe.node, end[0].probe)
        if end[0].lent:
            self.lent += end[0].lent
            self.frames += end[1]
        else:
            walk.empty(probe.node)
