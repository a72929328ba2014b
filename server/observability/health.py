"""Health: liveness and readiness of the node.

*Live* means that the node's thread makes rounds: a check goes through the node's inbox and must be
answered. A process that is not live is of no use any more and may be killed. *Ready* means that a
client would be served: the queues are rebuilt, pushes are not refused for lack of disk, the node is
not stopping, and no partition waits for a dead node (`weft.dht.safety`). Do not kill a node that is
live and not ready. Do not make the start of one node wait until another one is ready: after a stop
of the whole cluster no node is ready before a majority runs.

All readers within `FRESH_S` share one check, so no number of readers can keep the node busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Final, NamedTuple, Protocol

from weft.errors import Unavailable

from .node_stats import NodeStats

#: A round may wait for a slow disk; a round that takes longer counts as hung.
POLL_S_MAX: Final = 5.0
FRESH_S: Final = 1.0

STARTING: Final = "starting"
SERVING: Final = "serving"
DRAINING: Final = "draining"


class Looked(Protocol):
    """The interface needed of a node: see `server/node/node.py`."""

    def look(self, look: Callable[[], None]) -> bool: ...

    def node_stats(self, *, queues: bool) -> Generator[None, None, NodeStats]: ...


class HealthVerdict(NamedTuple):
    good: bool
    why: str


class Health:
    """Used from one event loop; the owner of the node sets the phase."""

    def __init__(self, node: Looked) -> None:
        self._node = node
        self.phase = STARTING
        self._reads: dict[bool, asyncio.Task[NodeStats | None]] = {}
        self._read_at: dict[bool, float] = {}

    async def node_stats(self, *, queues: bool) -> NodeStats | None:
        """The node's stats, at most `FRESH_S` old; None if the node does not answer."""
        now = time.monotonic()
        task = self._reads.get(queues)
        if task is None or (task.done() and now - self._read_at[queues] > FRESH_S):
            task = self._reads[queues] = asyncio.ensure_future(self._read_stats(queues))
            self._read_at[queues] = now
        return await asyncio.shield(task)

    async def live(self) -> HealthVerdict:
        if self.phase == STARTING:
            return HealthVerdict(True, "starting: the queues are being rebuilt")
        if await self.node_stats(queues=False) is None:
            return HealthVerdict(
                False, f"the node's thread has not made a round in {POLL_S_MAX:.0f} s"
            )
        return HealthVerdict(True, self.phase)

    async def ready(self) -> HealthVerdict:
        if self.phase != SERVING:
            return HealthVerdict(False, self.phase)
        node_stats = await self.node_stats(queues=False)
        if node_stats is None:
            return HealthVerdict(
                False, f"the node's thread has not made a round in {POLL_S_MAX:.0f} s"
            )
        if node_stats.full:
            return HealthVerdict(False, "the disk is at its reserve: pushes are refused")
        if node_stats.outage:
            return HealthVerdict(False, f"unavailable: {node_stats.outage}")
        return HealthVerdict(True, SERVING)

    async def _read_stats(self, queues: bool) -> NodeStats | None:
        work = self._node.node_stats(queues=queues)
        try:
            while True:
                found = await asyncio.wait_for(self._step(work), POLL_S_MAX)
                if found is not None:
                    return found
        except (TimeoutError, Unavailable):
            return None

    async def _step(self, work: Generator[None, None, NodeStats]) -> NodeStats | None:
        """Runs one step of gathering in the node's thread; returns the stats after the last."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[NodeStats | None] = loop.create_future()

        def tell(found: NodeStats | None) -> None:
            if not done.done():
                done.set_result(found)

        def look() -> None:
            found = None
            try:
                next(work)
            except StopIteration as end:
                found = end.value
            try:
                loop.call_soon_threadsafe(tell, found)
            except RuntimeError:
                return  # the reader's event loop is closed

        if not self._node.look(look):
            raise Unavailable("the node has ended")
        return await done
