"""Renews the leases of running tasks, and returns the tasks of dead workers.

A task may hold the interpreter's lock for minutes, so the leases of a worker process are renewed by
its supervisor. A lease is renewed after a third of its time: two renewals may fail. Renewal ends
with the process of the lease, so a dead worker's tasks come back at once and there is no
second, longer timeout to configure.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from weft.client.kv_core import KvCore
from weft.client.lease_ticket import LeaseTicket, TicketDesk
from weft.client.routing.session import ClientSession
from weft.client.transport.blocking_link import run
from weft.errors import WeftError

log = logging.getLogger("weft.tasks")

#: Renewals due within this time go together.
_TOGETHER_S: Final = 1.0
_PAUSE_S_MIN: Final = 0.05
#: A task is delivered again long before.
LOSS_TTL_MS: Final = 3600 * 1000
#: The thread looks once a second by itself; a shorter lease wakes the thread.
_SHORT_LEASE_MS: Final = 6_000


class Keeper(Protocol):
    """Renews the leases of a loop: a `LeaseKeeper` here, or the supervisor."""

    def hold(self, held: Sequence[LeaseTicket]) -> None: ...

    def drop(self, nonces: Sequence[int]) -> None: ...


class RunningTask(NamedTuple):
    """A running task of a dead worker process."""

    nonce: int
    place: int


class _Return(NamedTuple):
    held: list[LeaseTicket]
    running: Sequence[RunningTask]
    delay_ms: int
    reason: str
    loss_keys: Sequence[str]


class LeaseKeeper:
    """A thread with a client's session. All methods may be called from any thread."""

    def __init__(self, session: ClientSession) -> None:
        self._kv = KvCore(session)
        self._desk = TicketDesk(session)
        self._due: dict[int, tuple[float, LeaseTicket]] = {}
        self._returns: list[_Return] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="weft-leases", daemon=True)
        self._thread.start()

    def hold(self, held: Iterable[LeaseTicket]) -> None:
        """Renews these leases from now on."""
        now = time.monotonic()
        with self._changed:
            for ticket in held:
                self._due[ticket.nonce] = (now + ticket.lease_ms / 3000, ticket)
                if ticket.lease_ms < _SHORT_LEASE_MS:
                    self._changed.notify()

    def drop(self, nonces: Iterable[int]) -> None:
        """Ends the renewal of settled leases."""
        with self._changed:
            for nonce in nonces:
                self._due.pop(nonce, None)

    def give_back(
        self,
        nonces: Sequence[int],
        running: Sequence[RunningTask] = (),
        delay_ms: int = 0,
        reason: str = "",
        loss_keys: Sequence[str] = (),
    ) -> None:
        """Returns the tasks of a dead worker: unended ones uncounted, and the running
        ones as failed attempts with a pause. The reason is stored at the `loss_keys`."""
        with self._changed:
            held = [entry[1] for each in nonces if (entry := self._due.pop(each, None))]
            if held:
                self._returns.append(_Return(held, running, delay_ms, reason, loss_keys))
                self._changed.notify()

    def close(self) -> None:
        """Returns the last tasks, and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._returns and not self._closed:
                    self._changed.wait(self._pause_s())
                returns, self._returns = self._returns, []
                closed = self._closed
                soon = time.monotonic() + _TOGETHER_S
                due = [ticket for when, ticket in self._due.values() if when <= soon]
            for each in returns:
                self._give_back(each)
            if closed:
                return
            if due:
                self._renew(due)

    def _pause_s(self) -> float:
        soonest = min((when for when, _ in self._due.values()), default=time.monotonic() + 1)
        return min(1.0, max(_PAUSE_S_MIN, soonest - time.monotonic()))

    def _renew(self, due: list[LeaseTicket]) -> None:
        try:
            lost = {ticket.nonce for ticket in run(self._desk.renew(due))}
        except WeftError as error:
            log.warning("%d leases were not renewed: %s", len(due), error.message)
            return
        now = time.monotonic()
        with self._changed:
            for ticket in due:
                if ticket.nonce in lost:
                    if self._due.pop(ticket.nonce, None) is not None:
                        log.warning("a lease of %s is lost: its tasks run again", ticket.queue)
                elif ticket.nonce in self._due:
                    self._due[ticket.nonce] = (now + ticket.lease_ms / 3000, ticket)

    def _give_back(self, each: _Return) -> None:
        if each.loss_keys:
            try:  # first, so that the next worker of the task finds the reason
                reasons = dict.fromkeys(each.loss_keys, each.reason.encode())
                run(self._kv.insert_many(reasons, ttl_ms=LOSS_TTL_MS))
            except WeftError as error:
                log.info("the reason of a death was not stored: %s", error.message)
        for ticket in each.held:
            begun = [one.place for one in each.running if one.nonce == ticket.nonce]
            try:
                if begun:
                    run(self._desk.nack(ticket, begun, each.delay_ms, each.reason))
                run(self._desk.give_back(ticket, begun))
            except WeftError as error:
                log.warning("tasks of a dead worker come back later: %s", error.message)
