"""Every limit of the public face, with its reason. Past a limit there is a defined error."""

from __future__ import annotations

import re
from typing import Final

from weft.errors import InvalidArgument

KIB: Final = 1024
MIB: Final = 1024 * KIB
SECOND_MS: Final = 1000
DAY_MS: Final = 24 * 3600 * SECOND_MS

#: One message's body. Larger things belong in a blob store, their address in the message.
BODY_BYTES_MAX: Final = 4 * MIB
#: Messages in one batch: an index is 16 bits on the wire, and a lease's bit mask stays small.
BATCH_COUNT_MAX: Final = 4096
#: One batch as it is stored: it is one LevelDB value and one ZeroMQ frame, held in memory whole.
BATCH_BYTES_MAX: Final = 8 * MIB
#: Headers of one message, keys and values together.
HEADERS_BYTES_MAX: Final = 64 * KIB
#: A message's key.
KEY_BYTES_MAX: Final = 1 * KIB
#: A dedup key; it is kept for the whole dedup window.
DEDUP_KEY_BYTES_MAX: Final = 256
#: Priorities 0 (default) to 9 (first): each has its own list in memory.
PRIORITY_MAX: Final = 9
#: What one pop or peek may answer with: it bounds a frame and what a slow reader can pin.
POP_COUNT_MAX: Final = 65_536
POP_BYTES_MAX: Final = 8 * MIB
#: One gRPC message, both ways: tiny headers take twice their stored size as proto maps, and each
#: message of a pop comes with its id and its receipt.
GRPC_BYTES_MAX: Final = 2 * POP_BYTES_MAX + 128 * POP_COUNT_MAX
#: A pop waits this long at most in one call; clients ask again.
WAIT_MS_MAX: Final = 60 * SECOND_MS
#: A lease that lasts longer than this should be renewed instead: a dead worker holds it.
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 12 * 3600 * SECOND_MS
#: Delays, retention and dedup windows.
DELAY_MS_MAX: Final = 366 * DAY_MS
RETENTION_MS_MAX: Final = 3660 * DAY_MS
DEDUP_WINDOW_MS_MAX: Final = 7 * DAY_MS
#: (producer, batch) pairs and dedup keys remembered per queue; the oldest go first.
DEDUP_IDS_MAX: Final = 1_000_000
#: Deliveries before a message is moved to its dead letter.
MAX_DELIVERIES_MAX: Final = 10_000
#: The reason given with a nack, kept with a dead letter.
REASON_BYTES_MAX: Final = 1 * KIB
#: Queues on one cluster; a DHT lookup is flat, the listing is not.
QUEUES_MAX: Final = 100_000
#: Receipts in one ack, nack or extend.
RECEIPTS_MAX: Final = 65_536
#: Nodes that a caller tells the keeper of a queue's list to be empty: a search seldom asks more.
FALLEN_MAX: Final = 64
#: ZHT's table: a key and a value.
TABLE_KEY_BYTES_MAX: Final = 1 * KIB
TABLE_VALUE_BYTES_MAX: Final = 1 * MIB

#: One reservation: its slices are listed in one record, its marks made in a few steps.
RESERVE_MESSAGES_MAX: Final = 1_000_000
RESERVE_BYTES_MAX: Final = 1024 * MIB
#: Reservations of one subscription that are not acked: a reader that far behind has stopped.
RESERVATIONS_MAX: Final = 1_000
#: How long a subscription without a sign of life keeps what it reserved. A pipeline may stand
#: still over a long week-end; past that its messages are for others again.
SUBSCRIPTION_TTL_MS: Final = 7 * DAY_MS
SUBSCRIPTION_TTL_MS_MIN: Final = 60 * SECOND_MS
SUBSCRIPTION_TTL_MS_MAX: Final = 366 * DAY_MS
#: Subscriptions, and apps that publish, whose records one node keeps in memory.
SUBSCRIPTIONS_MAX: Final = 100_000
APPS_MAX: Final = 100_000
#: A stage that nobody published for so long is dropped.
STAGE_TTL_MS: Final = DAY_MS
#: Stages of one app that are closed and not published, and winners of one publish.
STAGES_MAX: Final = 100_000
#: Batches, parts of a batch, attempts and reservations are counted with this many bits.
NUMBER_MAX: Final = (1 << 62) - 1

#: Names of dots alone are steps in a path wherever a name becomes one.
_QUEUE_NAME = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,80}")


def check_queue_name(name: str) -> None:
    if not _QUEUE_NAME.fullmatch(name):
        raise InvalidArgument(
            "a queue name is 1 to 80 of A-Z a-z 0-9 . _ and -, and not dots alone, not "
            f"{name[:100]!r}"
        )


def check_name(what: str, name: str) -> None:
    """The name of a subscription or an app: the letters and the length of a queue's."""
    if not _QUEUE_NAME.fullmatch(name):
        raise InvalidArgument(
            f"a name of {what} is 1 to 80 of A-Z a-z 0-9 . _ and -, not {name[:100]!r}"
        )


def check_range(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidArgument(f"{what} must be {low} to {high}, not {value}")
