"""Hands prefetched messages to the application.

A delivery counts when the application gets the message. A prefetched message is leased uncounted.
The node records the hand-out before the application gets the message. So a message that kills a
worker is always charged with the delivery, and messages that were only prefetched are not.

One record covers a *chunk*: as many messages as the application processes in `CHUNK_S`. For slow
work a chunk is one message, and the count is exact. For fast work a call per message would cost
more than the work; there a crash also counts against the messages of the same few milliseconds. If
the application processes a whole batch in that time, the pop itself is the record (`Pop.handed`).

A message that the node marks `alone` has one delivery left and may have killed workers before. Such
a message is a chunk of its own: before it, and again after it, the client confirms every ack so far
(`quiet`), so that a crash on this message, or on the next one, does not count against a finished
message.

A partition without a primary must not stop a consumer that holds one of its messages. The nodes
record their parts of a chunk independently. If a node does not answer in `PATIENCE_S`, all held
messages of its partitions are *stalled*, and the other messages go on. Each stalled partition
returns by itself, when a primary has recorded its first message or has reported the lease as lost.

States of a message: waiting (in `_waiting`) -> being recorded (`_recording`) -> handed out (in the
prefetch buffer), or stalled (`_stalled`) -> resumed (`_resumed`, the first of a partition) or
waiting. `take_back` can withdraw messages at any time before the hand-out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Generic

from weft.client.queue_core import QueueCore
from weft.client.routing.session import pause_s
from weft.errors import WeftError

from . import lease as leases
from .lease import Claim, ClientLease
from .message import M
from .prefetch_buffer import PrefetchBuffer

log = logging.getLogger("weft.client")
_lease_of = attrgetter("_lease")

#: Target duration of the application's work on one chunk, in seconds.
CHUNK_S: Final = 0.01
#: Largest chunk: beyond this size the cost of a call per chunk is negligible.
CHUNK_MAX: Final = 1000
#: How long the application waits for the record of a part of a chunk.
PATIENCE_S: Final = 1.0
#: From this chunk size on, the next chunk is recorded while the application works on the last one.
#: Otherwise such a fast application would wait for the node a good part of the time.
AHEAD_MIN: Final = 64


class HandOut(Generic[M]):
    """Belongs to one event loop."""

    def __init__(
        self,
        queue: QueueCore[M],
        prefetch_buffer: PrefetchBuffer[M],
        quiet: Callable[[], Awaitable[None]],
        on_lost: Callable[[ClientLease], None],
        on_taken: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._prefetch_buffer = prefetch_buffer
        self._quiet = quiet
        self._on_lost = on_lost
        self._on_taken = on_taken
        self._waiting: deque[list[M]] = deque()
        self._recording: list[M] = []
        #: For each stalled partition its messages, one list per lease, in order.
        self._stalled: dict[int, deque[list[M]]] = {}
        #: First messages of partitions that were stalled, their hand-out recorded: each a chunk.
        self._resumed: deque[list[M]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 1
        #: Chunks that the application has not finished: size and time of the hand-out.
        self._out: deque[tuple[int, float]] = deque()
        self._wanted_at = 0.0
        self._after_alone = False
        self._wanted = self._ended = False
        self._last: WeftError | None = None
        self._wake = asyncio.Event()
        #: Number of messages that are prefetched and not handed out, without the stalled ones.
        self.held = 0

    def add(self, groups: Sequence[list[M]]) -> None:
        """Adds prefetched messages, one list per lease."""
        for group in groups:
            if self._stalled and not self._unless_stalled(group):
                continue
            self._waiting.append(group)
            self.held += len(group)
        self._wake.set()

    def want(self) -> None:
        """The application has finished its chunk and asks for the next message."""
        now = time.monotonic()
        if self._out:
            size, handed_at = self._out.popleft()
            took_s = max(now - max(handed_at, self._wanted_at), 1e-6)
            fits = int(size * CHUNK_S / took_s)
            self._size = max(1, min(fits, 2 * self._size, CHUNK_MAX))
        self._wanted, self._wanted_at = True, now
        self._wake.set()

    def takes_at_once(self, count: int) -> bool:
        """True if the application processes `count` messages in the time of a chunk.

        Then the pop of the messages counts as their hand-out, and no separate record is needed.
        """
        return self._size >= count >= AHEAD_MIN

    def end(self, last: WeftError | None) -> None:
        """Ends the iteration after the waiting messages; `last` is the error to raise, if any."""
        self._ended, self._last = True, last
        self._wake.set()

    def take_back(self) -> list[M]:
        """Removes and returns all messages that were not handed out."""
        for task in self._tasks:
            task.cancel()
        stalled = [group for groups in self._stalled.values() for group in groups]
        taken = list(self._recording)
        for group in (*self._resumed, *stalled, *self._waiting):
            taken += group
        self._resumed.clear()
        self._stalled.clear()
        self._waiting.clear()
        self._recording = []
        self.held = 0
        return taken

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._is_wanted() and (self._waiting or self._resumed or self._ended):
                chunk = self._recording = self._next_chunk()
                if not chunk:
                    self._on_taken()  # dropped lost leases: there is room for others
                    if self._ended and not self._waiting and not self._resumed:
                        self._prefetch_buffer.put(self._last)
                        return
                    continue
                await self._hand_out(chunk)

    def _is_wanted(self) -> bool:
        return self._wanted and len(self._out) < (2 if self._size >= AHEAD_MIN else 1)

    async def _hand_out(self, chunk: list[M]) -> None:
        alone = chunk[0]._lease.lent.alone
        if alone or self._after_alone:
            await self._quiet()
        if chunk[0]._index >= chunk[0]._lease.handed_to:  # otherwise the pop was the record
            await self._record(chunk)
        chunk = self._recording  # without messages that are stalled now
        self._recording = []
        self.held -= len(chunk)
        good = [message for message in chunk if not message._lease.lost]
        if good:
            self._after_alone = alone
            self._out.append((len(good), time.monotonic()))
            self._prefetch_buffer.put(good)
        self._on_taken()

    def _next_chunk(self) -> list[M]:
        """Returns messages to hand out together; an empty list if the remaining leases are lost."""
        if self._resumed:
            return self._resumed.popleft()
        chunk: list[M] = []
        while self._waiting and len(chunk) < self._size:
            group = self._waiting[0]
            lease = group[0]._lease
            if lease.lost:
                self._waiting.popleft()
                self.held -= len(group)
                continue
            if chunk and not _go_together(chunk[0]._lease, lease):
                break
            room = 1 if lease.lent.alone else self._size - len(chunk)
            chunk += group[:room]
            if room < len(group):
                self._waiting[0] = group[room:]
            else:
                self._waiting.popleft()
            if lease.lent.alone:
                break
        return chunk

    # --- the record of a hand-out ---

    async def _record(self, chunk: list[M]) -> None:
        """Returns when the nodes have recorded the hand-out or reported leases as lost, except for
        partitions that are stalled then."""
        claims, lease_ms = leases.group(chunk), chunk[0].lease_ms
        if self._queue.alone:
            await self._record_at_node(claims, lease_ms)
            return
        records = {
            self._start(self._record_at_node(part, lease_ms)): part
            for part in self._queue.by_node(claims)
        }
        done, slow = await asyncio.wait(records, timeout=PATIENCE_S)
        for record in done:
            record.result()
        for record in slow:
            record.cancel()
        if slow:
            self._stall([claim for record in slow for claim in records[record]])

    async def _record_at_node(self, claims: list[Claim], lease_ms: int) -> None:
        tries = 0
        while True:
            try:
                lost = await self._queue.hand_out(claims, lease_ms)
                break
            except WeftError as error:
                if not error.retriable:
                    raise
                if not tries:
                    name = self._queue.name
                    log.warning("hand-out from %s is not recorded yet: %s", name, error.message)
                await asyncio.sleep(pause_s(tries))
                tries += 1
        for claim in lost:
            self._on_lost(claim.lease)
        for claim in claims:
            claim.lease.handed_to = max(claim.lease.handed_to, max(claim.indexes) + 1)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- stalled partitions ---

    def _stall(self, silent: list[Claim]) -> None:
        """Sets aside all messages of the nodes that did not answer, in their order."""
        held = [*silent, *(claim for group in self._waiting for claim in leases.group(group))]
        slow = _partitions(silent)
        parts = map(_partitions, self._queue.by_node(held))
        partitions = set[int]().union(*(part for part in parts if part & slow))
        log.warning(
            "a consumer of %s goes on without %d partitions, whose node does not answer",
            self._queue.name, len(partitions),
        )  # fmt: skip
        self._stalled |= {number: deque() for number in partitions}
        recording = [list(group) for _, group in groupby(self._recording, _lease_of)]
        self._recording = [m for group in recording for m in self._unless_stalled(group)]
        self._waiting = deque(group for group in self._waiting if self._unless_stalled(group))
        for number in partitions:
            self.held -= sum(map(len, self._stalled[number]))
            self._start(self._resume(number))

    def _unless_stalled(self, group: list[M]) -> list[M]:
        """The group of one lease; an empty list after the group joined its stalled partition."""
        stalled = self._stalled.get(group[0]._lease.lent.partition)
        if stalled is None:
            return group
        stalled.append(group)
        return []

    async def _resume(self, partition: int) -> None:
        """Ends the stall of a partition when a primary answers for its first message."""
        first = self._stalled[partition][0][:1]
        try:
            await self._record_at_node(leases.group(first), first[0].lease_ms)
        except WeftError as error:
            self.end(error)
            return
        groups = self._stalled.pop(partition)
        if rest := groups.popleft()[1:]:
            groups.appendleft(rest)
        self._resumed.append(first)
        self._waiting.extendleft(reversed(groups))
        self.held += len(first) + sum(map(len, groups))
        self._wake.set()


def _partitions(claims: Iterable[Claim]) -> set[int]:
    return {claim.lease.lent.partition for claim in claims}


def _go_together(one: ClientLease, other: ClientLease) -> bool:
    return (
        one.lent.lease_ms == other.lent.lease_ms
        and not one.lent.alone
        and not other.lent.alone
        and _is_handed(one) == _is_handed(other)
    )


def _is_handed(lease: ClientLease) -> bool:
    """True if the pop recorded the hand-out of all messages of the lease."""
    return lease.handed_to == lease.lent.first + lease.lent.count
