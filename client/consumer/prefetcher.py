"""A consumer's state on the event loop: prefetched messages, leases in renewal, unsent acks.

The prefetcher pops a batch whenever there is room, so that messages are present before the
application asks for them. The prefetcher waits out transient failures (node restart, network
break); any other failure ends the consumer and is raised from its iterator. Chunks of messages
that are handed out (`hand_out`) go to the prefetch buffer. The consumer's front takes the chunks
from there, perhaps in another thread.

| state | fetches, hands out | renews leases | an ack is |
|---|---|---|---|
| open | yes | yes | gathered |
| stopped (`stop`, the first step of `drain` and `close`) | no | yes | gathered |
| closed | no | of messages in hand | sent at once |
| ended (`end`, by the client) | no | no | sent at once |
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic

from weft import limits
from weft.client import arguments
from weft.client.producer.accumulator import Post
from weft.client.producer.batch import Body, Headers
from weft.client.queue_core import QueueCore
from weft.client.routing.session import pause_s
from weft.errors import WeftError

from . import lease as leases
from .ack_batcher import AckBatcher, Losses, OnLost
from .hand_out import HandOut
from .lease import Claim
from .lease_renewal import LeaseRenewal
from .message import M
from .pop import GIVE_BACK_S
from .prefetch_buffer import PrefetchBuffer

log = logging.getLogger("weft.client")

PREFETCH_MAX: Final = limits.POP_COUNT_MAX
ACK_LINGER_MS_MAX: Final = 60_000
RENEW_FOR_MS_MAX: Final = 7 * limits.DAY_MS
#: Poll interval of a drain: are all messages in hand settled?
DRAIN_POLL_S: Final = 0.01
#: How long a stop waits for partitions without a primary to take their messages back: the
#: application may have little time for the rest of its stop.
GIVE_BACK_MS: Final = 5_000
#: Poll interval after a cancelled pop: has the node answered?
QUIET_POLL_S: Final = 0.001


@dataclass(frozen=True)
class ConsumerOptions:
    """How a consumer fetches, and when it ends."""

    #: Number of messages that the client holds in addition to those handed out.
    prefetch: int = 1000
    batch: int = 500
    wait_ms: int = 5_000
    lease_ms: int = 0
    ack_linger_ms: float = 10
    #: Ends the iteration after this time without a message; None: never.
    idle_ms: int | None = None
    #: Renewal of a message's lease stops after this time: the application has forgotten it.
    renew_for_ms: int = 3600 * limits.SECOND_MS
    on_lost: OnLost | None = None

    def __post_init__(self) -> None:
        arguments.check_integer("prefetch", self.prefetch, 1, PREFETCH_MAX)
        arguments.check_integer("batch", self.batch, 1, limits.POP_COUNT_MAX)
        arguments.check_integer("wait_ms", self.wait_ms, 1, limits.WAIT_MS_MAX)
        arguments.check_lease_ms(self.lease_ms)
        arguments.check_number("ack_linger_ms", self.ack_linger_ms, 0, ACK_LINGER_MS_MAX)
        if self.idle_ms is not None:
            arguments.check_integer("idle_ms", self.idle_ms, 0, limits.DAY_MS)
        arguments.check_integer("renew_for_ms", self.renew_for_ms, 0, RENEW_FOR_MS_MAX)
        arguments.check_callback("on_lost", self.on_lost)


class Prefetcher(Generic[M]):
    """Takes the acks of its messages (Settler): in batches while open, at once when closed."""

    def __init__(
        self,
        queue: QueueCore[M],
        direct: QueueCore[M],
        options: ConsumerOptions,
        post: Post,
        prefetch_buffer: PrefetchBuffer[M],
        on_close: Callable[[Prefetcher[M]], None],
    ) -> None:
        self._queue = queue
        self._direct = direct
        self._options = options
        self._prefetch_buffer = prefetch_buffer
        self._on_close = on_close
        self._batch = max(1, min(options.batch, options.prefetch))
        #: The most messages held, not handed out, when the next batch is fetched.
        self._held_max = options.prefetch - self._batch
        self._room = asyncio.Event()
        self._room.set()
        self.closed = False
        self.losses = Losses(queue.name, options.on_lost)
        self._renewal = LeaseRenewal(queue, options.renew_for_ms / 1000, self.losses)
        linger_s = options.ack_linger_ms / 1000
        self._acks = AckBatcher(queue, linger_s, post, self.losses, self._renewal.drop)
        #: Awaited around a message that is handed out alone, before the acks are confirmed.
        self.idle: Callable[[], Awaitable[None]] | None = None
        self.hand_out = HandOut(
            queue, prefetch_buffer, self._quiet, self._renewal.lose, self._make_room
        )
        self._closing: asyncio.Task[None] | None = None
        self._stopping: asyncio.Future[None] | None = None
        self._renewing = asyncio.ensure_future(self._renewal.run())
        self._work = [
            asyncio.ensure_future(self._fetch()),
            asyncio.ensure_future(self._hand_out()),
        ]

    # --- the messages' side, from any thread ---

    async def ack_many(self, messages: Sequence[M]) -> None:
        if self.closed:
            await self._direct.ack_many(messages)
            return
        self._acks.add(messages)
        if self.closed:  # closed in between: nothing else sends these acks
            claims = leases.group(self._acks.take())
            await self._direct.ack_claims(claims)

    async def confirm_acks(self, messages: Sequence[M]) -> None:
        await self._direct.ack_many(messages)

    async def nack_many(
        self, messages: Sequence[M], *, delay_ms: int = 0, reason: str = "", final: bool = False
    ) -> None:
        await self._direct.nack_many(messages, delay_ms=delay_ms, reason=reason, final=final)

    async def extend_many(self, messages: Sequence[M], lease_ms: int) -> None:
        await self._direct.extend_many(messages, lease_ms)

    async def push_reply(
        self, message: M, body: Body, headers: Headers | None, ack: bool, timeout_ms: int | None
    ) -> None:
        await self._direct.push_reply(message, body, headers, ack, timeout_ms)

    # --- the front's side, on the event loop ---

    def want(self) -> None:
        """The front asks for the next chunk; acks of the last chunk can be sent."""
        self._acks.send()
        self.hand_out.want()

    def leases_of(self, group: str | None) -> set[int]:
        """The nonces of the unsettled leases of a group (None: of all), handed out or not."""
        return self._renewal.leases_of(group)

    @property
    def in_hand(self) -> int:
        """Number of messages that the application has and has not settled."""
        return self._renewal.in_hand

    async def flush(self) -> None:
        """Returns when every ack is confirmed; raises the first failure since the last call."""
        await self._acks.flush()
        self.losses.raise_failed()

    async def stop(self) -> None:
        """Ends the iteration and returns messages that were not handed out, uncounted."""
        if self._stopping is not None:
            await asyncio.shield(self._stopping)
            return
        self._stopping = asyncio.get_running_loop().create_future()
        try:
            for task in self._work:
                task.cancel()
            await asyncio.gather(*self._work, return_exceptions=True)
            unseen = self.hand_out.take_back() + self._prefetch_buffer.unseen()
            self._prefetch_buffer.put(None)
            claims = [claim for claim in leases.group(unseen) if not claim.lease.lost]
            unused = [_open(claim) for claim in claims if claim.lease.open]
            await self._queue.give_back(unused, timeout_ms=GIVE_BACK_MS)
            await self._nothing_lent()
        except WeftError as error:
            log.warning(
                "a consumer of %s could not give back its messages, which come again when their "
                "leases end: %s", self._queue.name, error.message,
            )  # fmt: skip
        finally:
            self._stopping.set_result(None)

    async def _nothing_lent(self) -> None:
        """Waits until the cancelled pop is answered and its messages are returned."""
        deadline = time.monotonic() + GIVE_BACK_S
        while not self._queue.quiet and time.monotonic() < deadline:  # noqa: ASYNC110 - briefly
            await asyncio.sleep(QUIET_POLL_S)

    async def drain(self, timeout_s: float) -> int:
        """Stops, waits for messages in hand, closes; returns the number still in hand."""
        deadline = time.monotonic() + timeout_s
        await self.stop()
        # Messages are settled in any thread without notice to the drain, so the drain polls.
        while self.in_hand and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(min(DRAIN_POLL_S, max(0.0, deadline - time.monotonic())))
        left = self.in_hand
        await self.close()
        return left

    async def close(self) -> None:
        """Stops and sends the acks.

        Renewal of messages in hand goes on until they are settled, `renew_for_ms` has passed, or
        the client closes.
        """
        if self.closed:
            return
        await self.stop()
        self.closed = True
        try:
            await self._acks.flush()
        finally:
            self._renewal.finish()
            self._renewing.add_done_callback(lambda _: self._on_close(self))
        self.losses.raise_failed()

    def abandon(self) -> None:
        """Closes in the background; no caller waits for the result."""
        self._closing = asyncio.ensure_future(self._close_quietly())

    async def _close_quietly(self) -> None:
        try:
            await self.close()
        except WeftError as error:
            log.warning("a consumer of %s was closed: %s", self._queue.name, error.message)

    async def end(self) -> None:
        """The client closes: stops the renewal of leases in hand."""
        try:
            await self.close()
        finally:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    # --- inside ---

    async def _quiet(self) -> None:
        if self.idle is not None:
            await self.idle()
        await self._acks.flush()

    def _make_room(self) -> None:
        if self.hand_out.held <= self._held_max:
            self._room.set()

    async def _hand_out(self) -> None:
        try:
            await self.hand_out.run()
        except WeftError as error:
            self._prefetch_buffer.put(error)

    async def _fetch(self) -> None:
        try:
            await self._fetch_on()
        except WeftError as error:
            self.hand_out.end(error)
        except Exception as error:
            log.exception("a consumer of %s ends", self._queue.name)
            self.hand_out.end(WeftError(f"the consumer failed: {error!r}"))
        else:
            self.hand_out.end(None)

    async def _fetch_on(self) -> None:
        """Fetches until idle for `idle_ms`; raises permanent failures."""
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
                since = time.monotonic()  # no answer does not mean that the queue is empty
                await asyncio.sleep(pause_s(tries))
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
        handed = self.hand_out.takes_at_once(self._batch)
        groups = await self._queue.pop_groups(
            self._batch, wait_ms, options.lease_ms, None, self, prefetch=True, handed=handed
        )
        for group in groups:
            lease = group[0]._lease
            if lease.lent.alone or not handed:
                lease.handed_to = lease.lent.first
        return groups

    def _take_in(self, groups: list[list[M]]) -> None:
        self._renewal.add(group[0]._lease for group in groups)
        self.hand_out.add(groups)
        if groups[0][0].group is not None:
            self._held_max = 0  # a waiting message holds up its group: fetch when all are out
        if self.hand_out.held > self._held_max:
            self._room.clear()


def _open(claim: Claim) -> Claim:
    """Returns the claim without messages that were settled meanwhile."""
    settled = claim.lease.settled
    return Claim(claim.lease, [index for index in claim.indexes if index not in settled])
