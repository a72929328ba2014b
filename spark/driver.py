"""The driver's side of a stream: an open subscription, and how far the query has come with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.errors import InvalidArgument, ReservationLost

from .offset import Offset
from .options import StreamRead

if TYPE_CHECKING:
    from weft.client.reservation import Reservation
    from weft.client.subscription_sync import Subscription

log = logging.getLogger(__name__)

#: With nothing to do Spark asks a hundred times a second; the cluster is asked less and less often,
#: down to once in this time.
IDLE_S_MIN: Final = 0.01
IDLE_S_MAX: Final = 0.1
#: A sign of life for a subscription whose queue stays empty.
HEARTBEAT_S: Final = 60.0
_NO_LIMIT: Final = 1 << 62


class Driver:
    """An open subscription, and how far this run of the query has come with it."""

    def __init__(self, options: StreamRead) -> None:
        self._options = options
        client = options.access.client()
        self.subscription: Subscription = client.subscription(options.queue, options.subscription)
        self.subscription.open()
        stats = self.subscription.stats()
        self.acked_through: int = stats.acked_through
        self._reserved_through: int = stats.reserved_through
        #: With `availableNow`: how many messages may still be reserved.
        self._left: int | None = None
        self._idle_s = 0.0
        self._heard = time.monotonic()
        #: The last loss that was logged: an idle query would say it over and over.
        self._told: set[str] = set()

    def only_what_waits(self) -> None:
        """From now on no more is reserved than waits at this moment."""
        self._left = self.subscription.stats().backlog_messages

    def advance(self, start: Offset, everything: bool) -> Offset | None:
        """Acks what is done and reserves what comes next; None: there is nothing."""
        begin, number = self._reserve_from(self._settled(start), everything)
        if number == begin:
            self._rest()
            return None
        self._idle_s = 0.0
        return Offset(number, None if begin == start.number else begin)

    def ack(self, offset: Offset) -> None:
        number = offset.number
        if number <= self.acked_through:
            return
        try:
            # Numbers that this very offset leaves out are known to be lost.
            self.subscription.ack_through(number, skip_lost=offset.begin is not None)
        except ReservationLost as error:
            self._lost(
                f"reservation {number} or one before it was given back before it was acked: "
                f"its messages come again ({error.message})"
            )
            self.subscription.ack_through(number, skip_lost=True)
        self.acked_through = number

    def reservations(self, numbers: range) -> Iterator[Reservation]:
        """Those that are to be read; one that is gone is an error, unless told otherwise."""
        self.subscription.heartbeat()  # a driver that was replaced stops here
        for number in numbers:
            try:
                yield self.subscription.describe(number)
            except (InvalidArgument, ReservationLost) as error:  # acked or unknown; given back
                self._lost(f"reservation {number} is in the checkpoint and is gone: {error}")

    # --- inside -----------------------------------------------------------------------------

    def _settled(self, start: Offset) -> int:
        """After which number the next batch begins."""
        number = start.number
        if self.acked_through <= number <= self._reserved_through:
            self.ack(start)
            return number
        name = self._options.subscription
        if number > self._reserved_through:
            why = (
                f"the checkpoint is at reservation {number} and subscription {name} has come to "
                f"{self._reserved_through}: it was deleted and made anew"
            )
        else:
            why = (
                f"the checkpoint is at reservation {number} and subscription {name} is acked "
                f"through {self.acked_through}: the checkpoint is an older one, or another query "
                "uses this subscription"
            )
        self._lost(why)
        return self.acked_through

    def _reserve_from(self, begin: int, everything: bool) -> tuple[int, int]:
        """Reserves until a limit is met or nothing is left; after which number the batch begins,
        and with which it ends."""
        number = begin
        messages, size = self._options.messages_max, self._options.bytes_max
        if everything:  # of this moment: producers may never stop
            messages, size = self._all_there_is(), _NO_LIMIT
        while True:
            fresh = number >= self._reserved_through
            if fresh and self._left is not None:
                messages = min(messages, self._left)
            if messages <= 0 or size <= 0:
                break
            try:
                reservation = self.subscription.reserve(
                    number + 1,
                    max_messages=min(messages, limits.RESERVE_MESSAGES_MAX),
                    max_bytes=min(size, limits.RESERVE_BYTES_MAX),
                )
            except ReservationLost:
                # An earlier driver's, given back before any checkpoint named it: nothing is lost
                # but its number.
                if number > begin:
                    break
                begin = number = number + 1
                continue
            self._heard = time.monotonic()
            if reservation is None:
                break
            number += 1
            messages -= reservation.messages
            size -= reservation.bytes
            if fresh and self._left is not None:
                self._left -= reservation.messages
            self._reserved_through = max(self._reserved_through, number)
            if fresh and not everything and not _is_full(reservation):
                break  # that was all there was; what has come since is for the next batch
        return begin, number

    def _all_there_is(self) -> int:
        stats = self.subscription.stats()
        return stats.backlog_messages + stats.reserved_messages

    def _rest(self) -> None:
        if time.monotonic() - self._heard > HEARTBEAT_S:
            self.subscription.heartbeat()
            self._heard = time.monotonic()
        time.sleep(self._idle_s)
        self._idle_s = min(max(2 * self._idle_s, IDLE_S_MIN), IDLE_S_MAX)

    def _lost(self, why: str) -> None:
        if self._options.fail_on_data_loss:
            raise ReservationLost(
                f"{why}. The query stops because failOnDataLoss is true; with false it goes on "
                "with what the subscription has"
            )
        if why not in self._told:
            log.warning("%s; failOnDataLoss is false: going on", why)
        self._told = {why}


def _is_full(reservation: Reservation) -> bool:
    """Whether it was cut off by the limits of a reservation, so that there may be more."""
    return (
        reservation.messages >= limits.RESERVE_MESSAGES_MAX
        or reservation.bytes >= limits.RESERVE_BYTES_MAX // 2
    )
