"""A consumer's acks, gathered and sent together.

Whoever acked has gone on, so a lost lease cannot be raised to him: it is counted, logged once, and
told to `on_lost`. Messages may be acked from any thread: a set and a deque take them in one step
each. The order of two steps keeps every ack from being forgotten: `add` puts the message in and
then looks whether the loop is awake; the loop says that it sleeps and then looks for messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic

from weft.errors import AlreadySettled, UsageError, WeftError
from weft.ids import MessageId
from weft.proto import wire

from . import lease as leases
from .lease import Claim, Lease
from .message import M
from .outbox import Post
from .queue import QueueCore

log = logging.getLogger("weft.client")

#: Called with the ids of messages whose lease was lost before their ack got through.
OnLost = Callable[[list[MessageId]], None]


class Losses:
    """Messages of a consumer that others have, or will have, again."""

    def __init__(self, queue: str, on_lost: OnLost | None) -> None:
        self.count = 0
        self._queue = queue
        self._on_lost = on_lost

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
                # The caller's own function: its fault must not stop the acks of the others.
                log.exception("on_lost of a consumer of %s failed", self._queue)


class Acks(Generic[M]):
    def __init__(
        self,
        queue: QueueCore[M],
        linger_s: float,
        post: Post,
        losses: Losses,
        on_done: Callable[[Lease], None],
    ) -> None:
        self._queue = queue
        self._linger_s = linger_s
        self._post = post
        self._losses = losses
        self._on_done = on_done
        self._gathered: deque[M] = deque()
        self._awake = False
        self._task: asyncio.Task[None] | None = None

    # --- from any thread ---

    def add(self, messages: Sequence[M]) -> None:
        for message in messages:
            lease, index = message._lease, message._index
            settled = lease.settled
            if index in settled:
                raise AlreadySettled(f"{message.id} was acked or nacked before; nothing was sent")
            if lease.queue != self._queue.name:
                raise UsageError(f"a message of {lease.queue} is not this consumer's to ack")
            assert isinstance(settled, set), "one that is settled as a whole has all indexes"
            settled.add(index)
            self._gathered.append(message)
        if not self._awake:
            self._awake = True
            self._post(self._wake)

    def take(self) -> list[M]:
        """What is gathered, for somebody else to send."""
        taken: list[M] = []
        while self._gathered:
            try:
                taken.append(self._gathered.popleft())
            except IndexError:  # another thread was quicker
                break
        return taken

    # --- on the event loop ---

    def _wake(self) -> None:
        asyncio.get_running_loop().call_later(self._linger_s, self.send)

    def send(self) -> None:
        """Sends what is gathered, without waiting for the linger time or the answer."""
        if self._task is None and self._gathered:
            self._task = asyncio.ensure_future(self._send())
        elif self._task is None:
            self._awake = False
            if self._gathered:
                self.send()

    async def flush(self) -> None:
        """Returns when everything that is gathered has been sent and answered."""
        while self._gathered or self._task is not None:
            self.send()
            if self._task is not None:
                await self._task

    async def _send(self) -> None:
        try:
            while True:
                while self._gathered:
                    await self._send_once()
                self._awake = False
                if not self._gathered:
                    return
        finally:
            self._task = None

    async def _send_once(self) -> None:
        claims = leases.group(self.take())
        name = self._queue.name
        why = "the lease was over when the ack came"
        try:
            lost = await self._queue.send_claims(claims, lambda r: wire.Ack(name, r), None)
        except WeftError as error:
            # Acked or not, the node did not say: count them as lost rather than as done.
            lost, why = claims, error.message
        self._losses.add(lost, why)
        for claim in claims:
            if not claim.lease.open:
                self._on_done(claim.lease)
