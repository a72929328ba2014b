"""Batches the acks of a consumer.

The application has continued when an ack fails. The batcher therefore counts the failure, logs the
first one, and passes the message ids to `on_lost`. Without `on_lost` the batcher keeps the failure,
and `flush`, `drain` and `close` raise it. Any thread may ack messages: a set and a deque take them
in one atomic step each. The order of two steps prevents a forgotten ack: `add` appends the message
and then checks whether the loop is awake; the loop declares that it sleeps and then checks for
messages.

A request gathers the next acks while it is under way. A partition without a primary keeps its
request waiting until the client's timeout. After `PATIENCE_S` the batcher sends the next acks
beside such a request: nothing renews the leases of acked messages, so they must not wait as long.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic

from weft.client.producer.accumulator import Post
from weft.client.queue_core import QueueCore
from weft.errors import AlreadySettled, UsageError, WeftError
from weft.ids import MessageId
from weft.proto import wire

from . import lease as leases
from .lease import Claim, ClientLease
from .message import M

log = logging.getLogger("weft.client")

#: How long the next acks wait for the answer to a request.
PATIENCE_S: Final = 1.0

#: Called with the ids of messages that lost their lease before the ack arrived.
OnLost = Callable[[list[MessageId]], None]


class Losses:
    """Messages of a consumer that the queue delivers again."""

    def __init__(self, queue: str, on_lost: OnLost | None) -> None:
        self.count = 0
        self._queue = queue
        self._on_lost = on_lost
        self._failed: WeftError | None = None

    def fail(self, lost: list[Claim], error: WeftError) -> None:
        """Records failed acks: the next flush raises the error, unless `on_lost` is set."""
        if self._on_lost is None and self._failed is None:
            self._failed = error
        self.add(lost, error.message)

    def raise_failed(self) -> None:
        """Raises the first failure since the last call, if any."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def add(self, lost: list[Claim], why: str) -> None:
        ids = [claim.lease.id(index) for claim in lost for index in claim.indexes]
        if not ids:
            return
        if not self.count:
            log.warning(
                "a consumer of %s lost %d messages, the first is %s: %s. They are delivered "
                "again. Further losses are only counted",
                self._queue, len(ids), ids[0], why,
            )  # fmt: skip
        self.count += len(ids)
        if self._on_lost is not None:
            try:
                self._on_lost(ids)
            except Exception:
                # on_lost is application code: an exception in it must not stop the other acks.
                log.exception("on_lost of a consumer of %s failed", self._queue)


class AckBatcher(Generic[M]):
    def __init__(
        self,
        queue: QueueCore[M],
        linger_s: float,
        post: Post,
        losses: Losses,
        on_done: Callable[[ClientLease], None],
    ) -> None:
        self._queue = queue
        self._linger_s = linger_s
        self._post = post
        self._losses = losses
        self._on_done = on_done
        self._gathered: deque[M] = deque()
        self._awake = False
        self._task: asyncio.Task[None] | None = None
        #: Requests under way, each for at most the client's timeout.
        self._requests: set[asyncio.Task[None]] = set()

    # --- from any thread ---

    def add(self, messages: Sequence[M]) -> None:
        for message in messages:
            lease, index = message._lease, message._index
            settled = lease.settled
            if index in settled:
                raise AlreadySettled(f"{message.id} was acked or nacked before; nothing was sent")
            if lease.queue != self._queue.name:
                raise UsageError(f"a message of {lease.queue} is not this consumer's to ack")
            if lease.lost:
                raise leases.lost_error([Claim(lease, [index])])
            assert isinstance(settled, set), "one that is settled as a whole has all indexes"
            settled.add(index)
            self._gathered.append(message)
        if not self._awake:
            self._awake = True
            self._post(self._wake)

    def take(self) -> list[M]:
        """Removes and returns the gathered messages; the caller sends their acks."""
        taken: list[M] = []
        while self._gathered:
            try:
                taken.append(self._gathered.popleft())
            except IndexError:  # another thread took the last one
                break
        return taken

    # --- on the event loop ---

    def _wake(self) -> None:
        asyncio.get_running_loop().call_later(self._linger_s, self.send)

    def send(self) -> None:
        """Sends the gathered acks without waiting for the linger time or the answer."""
        if self._task is None and self._gathered:
            self._task = asyncio.ensure_future(self._send())
        elif self._task is None:
            self._awake = False
            if self._gathered:
                self.send()

    async def flush(self) -> None:
        """Returns when all gathered acks have been sent and answered."""
        while self._gathered or self._task is not None or self._requests:
            self.send()
            if self._task is not None:
                await self._task
            elif self._requests:
                await asyncio.wait(self._requests)

    async def _send(self) -> None:
        try:
            while True:
                while self._gathered:
                    if self._queue.alone:
                        await self._send_once()
                        continue
                    request = asyncio.ensure_future(self._send_once())
                    self._requests.add(request)
                    request.add_done_callback(self._requests.discard)
                    await asyncio.wait([request], timeout=PATIENCE_S)
                self._awake = False
                if not self._gathered:
                    return
        finally:
            self._task = None

    async def _send_once(self) -> None:
        claims = leases.group(self.take())
        name = self._queue.name
        try:
            lost = await self._queue.send_claims(claims, lambda r: wire.Ack(name, r), None)
        except WeftError as error:
            # The node did not say whether the acks were done: count the messages as lost.
            self._losses.fail(claims, error)
        else:
            if lost:
                self._losses.fail(lost, leases.lost_error(lost))
        for claim in claims:
            if not claim.lease.open:
                self._on_done(claim.lease)
