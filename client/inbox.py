"""What a consumer has in hand: messages fetched ahead, leases kept alive, acks gathered.

It lives on an event loop. A batch is popped whenever there is room for one, so that the next is
there before it is asked for. Failures that pass (the node restarts, the network breaks) are waited
out; others end the consumer and are raised to whoever iterates. Batches go to a shelf, from which
the consumer's front takes them, perhaps in another thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Generic

from weft import limits
from weft.errors import WeftError

from . import lease as leases
from . import retry
from .acks import Acks, Losses, OnLost
from .lease import Claim
from .message import M
from .outbox import Post
from .queue import QueueCore
from .renewal import Renewal
from .shelf import Shelf

log = logging.getLogger("weft.client")

PREFETCH_MAX: Final = limits.POP_COUNT_MAX
ACK_LINGER_MS_MAX: Final = 60_000
RENEW_FOR_MS_MAX: Final = 7 * limits.DAY_MS


@dataclass(frozen=True)
class ConsumerOptions:
    """How a consumer fetches, and when it ends."""

    prefetch: int = 1000
    batch: int = 500
    wait_ms: int = 5_000
    lease_ms: int = 0
    ack_linger_ms: float = 10
    #: Ends the iteration when nothing came for so long; None: never.
    idle_ms: int | None = None
    #: A message that is held for longer than this is not renewed any more: its holder forgot it.
    renew_for_ms: int = 3600 * limits.SECOND_MS
    on_lost: OnLost | None = None

    def __post_init__(self) -> None:
        limits.check_range("prefetch", self.prefetch, 1, PREFETCH_MAX)
        limits.check_range("batch", self.batch, 1, limits.POP_COUNT_MAX)
        limits.check_range("wait_ms", self.wait_ms, 1, limits.WAIT_MS_MAX)
        if self.lease_ms:
            limits.check_range("lease_ms", self.lease_ms, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        if not 0 <= self.ack_linger_ms <= ACK_LINGER_MS_MAX:
            limits.check_range("ack_linger_ms", int(self.ack_linger_ms), 0, ACK_LINGER_MS_MAX)
        if self.idle_ms is not None:
            limits.check_range("idle_ms", self.idle_ms, 0, limits.DAY_MS)
        limits.check_range("renew_for_ms", self.renew_for_ms, 0, RENEW_FOR_MS_MAX)


class Inbox(Generic[M]):
    """Takes the acks of its messages (Settler): gathered while it is open, at once when closed."""

    def __init__(
        self,
        queue: QueueCore[M],
        direct: QueueCore[M],
        options: ConsumerOptions,
        post: Post,
        shelf: Shelf[M],
        on_close: Callable[[Inbox[M]], None],
    ) -> None:
        self._queue = queue
        self._direct = direct
        self._options = options
        self._shelf = shelf
        self._on_close = on_close
        self._batch = min(options.batch, options.prefetch)
        self._held = 0
        self._room = asyncio.Event()
        self._room.set()
        self.closed = False
        self.losses = Losses(queue.name, options.on_lost)
        self._renewal = Renewal(queue, options.renew_for_ms / 1000, self.losses)
        linger_s = options.ack_linger_ms / 1000
        self._acks = Acks(queue, linger_s, post, self.losses, self._renewal.drop)
        self._closing: asyncio.Task[None] | None = None
        self._work = [
            asyncio.ensure_future(self._fetch()),
            asyncio.ensure_future(self._renewal.run()),
        ]

    # --- the messages' side, from any thread ---

    async def ack_many(self, messages: Sequence[M]) -> None:
        if self.closed:
            await self._direct.ack_many(messages)
            return
        self._acks.add(messages)
        if self.closed:  # it closed in between: nobody else will send these
            claims = leases.group(self._acks.take())
            await self._direct.ack_claims(claims)

    async def nack_many(
        self, messages: Sequence[M], *, delay_ms: int = 0, reason: str = ""
    ) -> None:
        await self._direct.nack_many(messages, delay_ms=delay_ms, reason=reason)

    async def extend_many(self, messages: Sequence[M], lease_ms: int) -> None:
        await self._direct.extend_many(messages, lease_ms)

    # --- the front's side, on the event loop ---

    def taken(self, count: int) -> None:
        """The front has begun with a batch; what it acked of the last one can go."""
        self._held -= count
        if self._held <= self._options.prefetch - self._batch:
            self._room.set()
        self._acks.send()

    async def close(self) -> None:
        """Sends the acks, gives back what was not looked at. Raises nothing that passes."""
        if self.closed:
            return
        self.closed = True
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        try:
            await self._acks.flush()
            claims = [c for c in leases.group(self._shelf.unseen()) if not c.lease.lost]
            await self._queue.give_back([_open(claim) for claim in claims if claim.lease.open])
        except WeftError as error:
            log.warning(
                "a consumer of %s could not give back its messages, which come again when their "
                "leases end: %s", self._queue.name, error.message,
            )  # fmt: skip
        finally:
            self._shelf.put(None)
            self._on_close(self)

    def abandon(self) -> None:
        """Closes it with nobody waiting for that."""
        self._closing = asyncio.ensure_future(self.close())

    # --- inside ---

    async def _fetch(self) -> None:
        try:
            await self._fetch_on()
        except WeftError as error:
            self._shelf.put(error)
        except Exception as error:
            log.exception("a consumer of %s ends", self._queue.name)
            self._shelf.put(WeftError(f"the consumer failed: {error!r}"))
        else:
            self._shelf.put(None)

    async def _fetch_on(self) -> None:
        """Ends when it has been idle for long enough; raises what does not pass."""
        since = time.monotonic()
        breaks, tries = self._queue.breaks, 0
        while True:
            await self._room.wait()
            try:
                groups = await self._pop(since)
                tries = 0
            except WeftError as error:
                if not error.retriable:
                    raise
                log.warning("a consumer of %s waits: %s", self._queue.name, error.message)
                since = time.monotonic()  # no answer does not mean that nothing is there
                await asyncio.sleep(retry.pause_s(tries))
                tries += 1
                continue
            if breaks != self._queue.breaks:
                breaks = self._queue.breaks
                self._renewal.all_now()
            if groups:
                since = time.monotonic()
                self._take_in(groups)
            elif self._idle_left_s(since) <= 0:
                return

    def _idle_left_s(self, since: float) -> float:
        if self._options.idle_ms is None:
            return float("inf")
        return since + self._options.idle_ms / 1000 - time.monotonic()

    async def _pop(self, since: float) -> list[list[M]]:
        options = self._options
        wait_ms = int(max(0.0, min(options.wait_ms, self._idle_left_s(since) * 1000)))
        return await self._queue.pop_groups(self._batch, wait_ms, options.lease_ms, None, self)

    def _take_in(self, groups: list[list[M]]) -> None:
        batch = groups[0] if len(groups) == 1 else list(chain.from_iterable(groups))
        self._held += len(batch)
        if self._held > self._options.prefetch - self._batch:
            self._room.clear()
        self._renewal.add(group[0]._lease for group in groups)
        self._shelf.put(batch)


def _open(claim: Claim) -> Claim:
    """Without what was settled meanwhile."""
    settled = claim.lease.settled
    return Claim(claim.lease, [index for index in claim.indexes if index not in settled])
