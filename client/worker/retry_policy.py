"""Retry policy of a worker: the number of attempts and the pause after a failure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from weft import limits
from weft.client import arguments

ATTEMPTS_MAX: Final = limits.MAX_DELIVERIES_MAX
#: Longest pause: a failed message is nacked with a delay.
DELAY_S_MAX: Final = limits.DELAY_MS_MAX // limits.SECOND_MS
FACTOR_MAX: Final = 1000

#: The pause in seconds after an attempt; the first attempt has number 1.
Backoff = Callable[[int], float]


def expo(first_s: float = 1, most_s: float = 60, *, factor: float = 2) -> Backoff:
    """Returns pauses that grow by `factor` from `first_s` to `most_s` seconds, with jitter.

    Jitter shortens each pause by up to a half, so that messages that failed together do not return
    together.

        weft.Retry(attempts=5, backoff=weft.expo(1, 60))    # about 1, 2, 4 and 8 seconds

    Raises InvalidArgument if `first_s` is negative or above `most_s`, `most_s` is longer than the
    longest delay of a message, or `factor` is not 1 to 1000.
    """
    arguments.check_number("most_s", most_s, 0, DELAY_S_MAX)
    arguments.check_number("first_s", first_s, 0, most_s)
    arguments.check_number("factor", factor, 1, FACTOR_MAX)

    def pause_s(attempt: int) -> float:
        # A float overflows near factor ** 1000; the pause reaches most_s long before.
        full = min(most_s, first_s * factor ** min(attempt - 1, 64))
        return full * random.uniform(0.5, 1)

    return pause_s


@dataclass(frozen=True)
class Retry:
    """The number of attempts for a message, and the pause after each failure.

    After `attempts` deliveries the message moves to the queue's dead-letter queue, with the error
    as its reason. A queue without a dead-letter queue keeps the message and retries it for ever,
    with the same pauses. The queue's own `max_deliveries` applies as well: the smaller number
    counts.
    Raises InvalidArgument for a value out of range.

        await orders.work(handle, retry=weft.Retry(attempts=5, backoff=weft.expo(1, 60)))
    """

    #: Deliveries of a message, the first one included.
    attempts: int = 5
    #: Returns the pause in seconds after an attempt; the first attempt has number 1.
    backoff: Backoff = field(default_factory=expo)

    def __post_init__(self) -> None:
        arguments.check_integer("attempts", self.attempts, 1, ATTEMPTS_MAX)
        arguments.check_function("backoff", self.backoff)

    def delay_ms(self, attempt: int) -> int:
        """Returns the pause after an attempt, in milliseconds."""
        pause_s = self.backoff(attempt)
        return max(0, min(int(pause_s * 1000), limits.DELAY_MS_MAX))


#: Default policy of a worker.
RETRY: Final = Retry()


class Reject(Exception):
    """Raised by a handler: the message can never be handled and becomes a dead letter at once.

    raise weft.Reject("no such customer")
    """


class RetryLater(Exception):
    """Raised by a handler: retry the message after `delay_s` seconds. The attempt counts.

        raise weft.RetryLater(30, "the service is down")

    The constructor raises InvalidArgument if `delay_s` is negative or above 366 days.
    """

    def __init__(self, delay_s: float, reason: str = "") -> None:
        arguments.check_number("delay_s", delay_s, 0, DELAY_S_MAX)
        arguments.check_text("reason", reason, 0, limits.REASON_BYTES_MAX)
        super().__init__(reason or f"again in {delay_s} s")
        self.delay_s = delay_s
