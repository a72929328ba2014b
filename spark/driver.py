"""The driver's side of a stream: an open subscription and the progress of the query."""

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
    from weft.client.pipeline.reservation import Reservation
    from weft.client.pipeline.sync_subscription import Subscription

log = logging.getLogger(__name__)

#: An idle query asks for offsets a hundred times a second; the driver pauses longer and longer
#: between queries to the cluster, up to this time.
IDLE_S_MIN: Final = 0.01
IDLE_S_MAX: Final = 0.1
#: Heartbeat interval for a subscription with an empty queue.
HEARTBEAT_S: Final = 60.0
_NO_LIMIT: Final = 1 << 62


class Driver:
    """An open subscription and the progress of this run of the query."""

    def __init__(self, options: StreamRead) -> None:
        self._options = options
        client = options.access.client()
        self.subscription: Subscription = client.subscription(options.queue, options.subscription)
        self.subscription.open()
        stats = self.subscription.stats()
        self.acked_through: int = stats.acked_through
        self._reserved_through: int = stats.reserved_through
        #: With `availableNow`: the number of messages that may still be reserved.
        self._left: int | None = None
        self._idle_s = 0.0
        self._heard = time.monotonic()
        #: The last logged loss: an idle query would log the same loss repeatedly.
        self._told: set[str] = set()

    def only_what_waits(self) -> None:
        """Limits all later reservations to the number of messages that wait now."""
        self._left = self.subscription.stats().backlog_messages

    def advance(self, start: Offset, everything: bool) -> Offset | None:
        """Acks finished reservations and reserves the next batch; None if there are no messages."""
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
            # Numbers that this offset excludes are known to be lost.
            self.subscription.ack_through(number, skip_lost=offset.begin is not None)
        except ReservationLost as error:
            self._lost(
                f"reservation {number} or an earlier one was returned before its ack: the messages "
                f"are delivered again ({error.message})"
            )
            self.subscription.ack_through(number, skip_lost=True)
        self.acked_through = number

    def reservations(self, numbers: range) -> Iterator[Reservation]:
        """Yields the reservations to read; a missing one is an error if failOnDataLoss is true."""
        self.subscription.heartbeat()  # raises Fenced in a replaced driver
        for number in numbers:
            try:
                yield self.subscription.describe(number)
            except (InvalidArgument, ReservationLost) as error:  # acked or unknown; given back
                self._lost(f"reservation {number} of the checkpoint no longer exists: {error}")

    # --- inside -----------------------------------------------------------------------------

    def _settled(self, start: Offset) -> int:
        """Returns the number after which the next batch begins."""
        number = start.number
        if self.acked_through <= number <= self._reserved_through:
            self.ack(start)
            return number
        name = self._options.subscription
        if number > self._reserved_through:
            why = (
                f"the checkpoint is at reservation {number}, and subscription {name} is at "
                f"{self._reserved_through}: the subscription was deleted and created again"
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
        """Reserves until a limit is reached or no messages are left.

        Returns the number after which the batch begins, and its last number.
        """
        number = begin
        messages, size = self._options.messages_max, self._options.bytes_max
        if everything:  # the messages of this moment: producers may never stop
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
                # A reservation of an earlier driver, returned before any checkpoint named it: only
                # its number is lost.
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
                break  # the queue is empty; later messages go to the next batch
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
                f"{why}. The query stops because failOnDataLoss is true; with false it continues "
                "with the messages of the subscription"
            )
        if why not in self._told:
            log.warning("%s; failOnDataLoss is false: the query continues", why)
        self._told = {why}


def _is_full(reservation: Reservation) -> bool:
    """True if the limits of a reservation cut it off, so that there may be more messages."""
    return (
        reservation.messages >= limits.RESERVE_MESSAGES_MAX
        or reservation.bytes >= limits.RESERVE_BYTES_MAX // 2
    )
