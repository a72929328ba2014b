"""Renews the leases of messages in progress.

Every lease with unsettled messages is extended after a third of its duration, so two renewals may
fail before the lease ends. All due renewals of a node go in one call. Calls to different nodes are
independent: a partition without a primary must not end the leases of the others. After a broken
connection all leases are renewed at once, because a restarted node has forgotten its leases: the
sooner the client knows, the fewer messages are processed twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any, Final

from weft.client.queue_core import QueueCore
from weft.errors import WeftError
from weft.proto import wire

from . import lease as leases
from .ack_batcher import Losses
from .lease import Claim, ClientLease

log = logging.getLogger("weft.client")

#: Shortest pause between two rounds: a very short lease must not keep the loop busy.
ROUND_S_MIN: Final = 0.02
#: Pause after a failed round.
AGAIN_S: Final = 0.5


class LeaseRenewal:
    """Belongs to one event loop."""

    def __init__(self, queue: QueueCore[Any], renew_for_s: float, losses: Losses) -> None:
        self._queue = queue
        self._renew_for_s = renew_for_s
        self._losses = losses
        #: Per lease: the time of the next renewal, and the time to stop renewing.
        self._due: dict[ClientLease, tuple[float, float]] = {}
        self._wake = asyncio.Event()
        self._finishing = False
        #: Calls under way, and their leases: no second call begins for these.
        self._calls: set[asyncio.Task[None]] = set()
        self._calling: set[ClientLease] = set()

    def add(self, new: Iterable[ClientLease]) -> None:
        now = time.monotonic()
        for lease in new:
            self._due[lease] = (now + lease.lent.lease_ms / 3000, now + self._renew_for_s)
        self._wake.set()

    def drop(self, lease: ClientLease) -> None:
        self._due.pop(lease, None)

    def lose(self, lease: ClientLease) -> None:
        """The node no longer knows the lease."""
        self.drop(lease)
        if not lease.lost:
            lease.lost = True
            why = "the lease was gone when it was to be renewed"
            self._losses.add([leases.in_hand(lease)], why)

    @property
    def in_hand(self) -> int:
        """Number of messages that the application has and has not settled."""
        return sum(len(leases.in_hand(lease).indexes) for lease in self._due)

    def leases_of(self, group: str | None) -> set[int]:
        """The nonces of the leases of a group; None: of all."""
        return {
            lease.lent.nonce for lease in self._due if group is None or lease.lent.group == group
        }

    def finish(self) -> None:
        """No lease is added from now on: `run` ends with the last lease."""
        self._finishing = True
        self._wake.set()

    def all_now(self) -> None:
        """The connection broke: renew all leases now to find the lost ones."""
        self._due = {lease: (0.0, end) for lease, (_, end) in self._due.items()}
        self._wake.set()

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            if not self._due:
                if self._finishing:
                    return
                await self._wake.wait()
                continue
            idle = [due for lease, (due, _) in self._due.items() if lease not in self._calling]
            if not idle:
                await self._wake.wait()
                continue
            pause = min(idle) - time.monotonic()
            if pause > 0:
                # Not `wait_for`: before Python 3.12 `wait_for` can swallow a cancellation.
                alarm = asyncio.get_running_loop().call_later(
                    max(pause, ROUND_S_MIN), self._wake.set
                )
                await self._wake.wait()
                alarm.cancel()
                continue
            try:
                self._round()
            except WeftError as error:  # the client is closing
                log.warning("leases of %s were not renewed: %s", self._queue.name, error.message)
                await asyncio.sleep(AGAIN_S)

    def _round(self) -> None:
        now = time.monotonic()
        due: dict[int, list[Claim]] = {}
        for lease, (when, end) in list(self._due.items()):
            lease_ms = lease.lent.lease_ms
            # Include leases that are due soon: few large calls instead of many small ones.
            if when - lease_ms / 12_000 > now or lease in self._calling:
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
            for part in self._queue.by_node(claims):
                self._calling.update(claim.lease for claim in part)
                call = asyncio.ensure_future(self._extend(part, lease_ms))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)

    async def _extend(self, claims: list[Claim], lease_ms: int) -> None:
        name, lost, pause_s = self._queue.name, list[Claim](), AGAIN_S
        try:
            lost = await self._queue.send_claims(
                claims, lambda receipts: wire.Extend(name, receipts, lease_ms), None
            )
            pause_s = lease_ms / 3000
        except WeftError as error:
            log.warning("leases of %s were not renewed: %s", name, error.message)
        finally:
            next_due = time.monotonic() + pause_s
            for claim in claims:
                self._calling.discard(claim.lease)
                if claim.lease in self._due:
                    self._due[claim.lease] = (next_due, self._due[claim.lease][1])
            self._wake.set()
        # Messages acked during the call are not in hand: the ack itself reports their loss.
        for claim in lost:
            self.lose(claim.lease)
