"""Health: whether the process lives, and whether it should be given work.

*Live* means that the node's thread makes rounds: it is asked through its inbox and must answer. A
process that is not live is of no use any more and may be killed. *Ready* means that a client would
be served: the queues are rebuilt, pushes are not refused for lack of disk, and the node is not
stopping. A node that is live and not ready is to be left alone.

A look at the node is shared by everyone who asks within `FRESH_S`, so that no number of readers
can keep the node busy with being read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Final, NamedTuple, Protocol

from weft.errors import Unavailable

from .figures import Figures

#: A round may wait for a slow disk; one that takes longer than this is not coming back.
LOOK_S_MAX: Final = 5.0
FRESH_S: Final = 1.0

STARTING: Final = "starting"
SERVING: Final = "serving"
DRAINING: Final = "draining"


class Looked(Protocol):
    """What is needed of a node: see `server/node.py`."""

    def look(self, look: Callable[[], None]) -> bool: ...

    def figures(self, *, queues: bool) -> Generator[None, None, Figures]: ...


class Verdict(NamedTuple):
    good: bool
    why: str


class Health:
    """Asked from one event loop; the phase is set by whoever runs the node."""

    def __init__(self, node: Looked) -> None:
        self._node = node
        self.phase = STARTING
        self._looking: dict[bool, asyncio.Task[Figures | None]] = {}
        self._looked_at: dict[bool, float] = {}

    async def figures(self, *, queues: bool) -> Figures | None:
        """The node's figures, at most `FRESH_S` old; None when it does not answer."""
        now = time.monotonic()
        task = self._looking.get(queues)
        if task is None or (task.done() and now - self._looked_at[queues] > FRESH_S):
            task = self._looking[queues] = asyncio.ensure_future(self._look(queues))
            self._looked_at[queues] = now
        return await asyncio.shield(task)

    async def live(self) -> Verdict:
        if self.phase == STARTING:
            return Verdict(True, "starting: the queues are being rebuilt")
        if await self.figures(queues=False) is None:
            return Verdict(False, f"the node's thread has not made a round in {LOOK_S_MAX:.0f} s")
        return Verdict(True, self.phase)

    async def ready(self) -> Verdict:
        if self.phase != SERVING:
            return Verdict(False, self.phase)
        figures = await self.figures(queues=False)
        if figures is None:
            return Verdict(False, f"the node's thread has not made a round in {LOOK_S_MAX:.0f} s")
        if figures.full:
            return Verdict(False, "the disk is at its reserve: pushes are refused")
        return Verdict(True, SERVING)

    async def _look(self, queues: bool) -> Figures | None:
        work = self._node.figures(queues=queues)
        try:
            while True:
                found = await asyncio.wait_for(self._step(work), LOOK_S_MAX)
                if found is not None:
                    return found
        except (TimeoutError, Unavailable):
            return None

    async def _step(self, work: Generator[None, None, Figures]) -> Figures | None:
        """One step of gathering, in the node's thread; the figures when it was the last one."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Figures | None] = loop.create_future()

        def tell(found: Figures | None) -> None:
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
                return  # the reader's loop is closed: nobody is left to tell

        if not self._node.look(look):
            raise Unavailable("the node has ended")
        return await done
