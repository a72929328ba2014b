"""Keeps leases alive while somebody works on their messages.

Every lease with unsettled messages is extended at a third of its time, so two renewals may fail
before it ends; all that is due goes in one call. After a broken connection everything is renewed at
once, because a restarted node has forgotten its leases, and the sooner that is known, the fewer
messages are worked on twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any, Final

from weft.errors import WeftError
from weft.proto import wire

from . import lease as leases
from .acks import Losses
from .lease import Claim, Lease
from .queue import QueueCore

log = logging.getLogger("weft.client")

#: The shortest pause between two rounds: a very short lease must not keep the loop busy.
ROUND_S_MIN: Final = 0.02
#: After a round that failed, the next is tried so soon.
AGAIN_S: Final = 0.5


class Renewal:
    """Belongs to one event loop."""

    def __init__(self, queue: QueueCore[Any], renew_for_s: float, losses: Losses) -> None:
        self._queue = queue
        self._renew_for_s = renew_for_s
        self._losses = losses
        #: When each lease is due to be renewed, and when it is given up.
        self._due: dict[Lease, tuple[float, float]] = {}
        self._look = asyncio.Event()

    def add(self, new: Iterable[Lease]) -> None:
        now = time.monotonic()
        for lease in new:
            self._due[lease] = (now + lease.lent.lease_ms / 3000, now + self._renew_for_s)
        self._look.set()

    def drop(self, lease: Lease) -> None:
        self._due.pop(lease, None)

    def all_now(self) -> None:
        """The connection broke: see what is left."""
        self._due = {lease: (0.0, end) for lease, (_, end) in self._due.items()}
        self._look.set()

    async def run(self) -> None:
        while True:
            self._look.clear()
            if not self._due:
                await self._look.wait()
                continue
            pause = min(due for due, _ in self._due.values()) - time.monotonic()
            if pause > 0:
                # Not `wait_for`: before Python 3.12 it can swallow a cancellation.
                alarm = asyncio.get_running_loop().call_later(
                    max(pause, ROUND_S_MIN), self._look.set
                )
                await self._look.wait()
                alarm.cancel()
                continue
            try:
                await self._round()
            except WeftError as error:
                log.warning("leases of %s were not renewed: %s", self._queue.name, error.message)
                await asyncio.sleep(AGAIN_S)

    async def _round(self) -> None:
        now = time.monotonic()
        due: dict[int, list[Claim]] = {}
        for lease, (when, end) in list(self._due.items()):
            lease_ms = lease.lent.lease_ms
            # What is due soon goes along: few large calls, not many small ones.
            if when - lease_ms / 12_000 > now:
                continue
            claim = leases.unsettled(lease)
            if not claim.indexes:
                del self._due[lease]
            elif now >= end:
                del self._due[lease]
                self._losses.add([claim], "held for longer than renew_for_ms without an ack")
            else:
                due.setdefault(lease_ms, []).append(claim)
        for lease_ms, claims in due.items():
            await self._extend(claims, lease_ms)

    async def _extend(self, claims: list[Claim], lease_ms: int) -> None:
        name = self._queue.name
        lost = await self._queue.send_claims(
            claims, lambda receipts: wire.Extend(name, receipts, lease_ms), None
        )
        next_due = time.monotonic() + lease_ms / 3000
        for claim in claims:
            if claim.lease in self._due:
                self._due[claim.lease] = (next_due, self._due[claim.lease][1])
        for claim in lost:
            claim.lease.lost = True
            self.drop(claim.lease)
        # Acked while the call was under way: the ack itself finds out.
        gone = [leases.unsettled(claim.lease) for claim in lost]
        self._losses.add(gone, "the lease was gone when it was to be renewed")
