"""Every limit of the public API, with the reason. Exceeding a limit raises a defined error."""

from __future__ import annotations

import re
from typing import Final

from weft.errors import InvalidArgument

KIB: Final = 1024
MIB: Final = 1024 * KIB
SECOND_MS: Final = 1000
DAY_MS: Final = 24 * 3600 * SECOND_MS

#: One message's body. Store larger objects in a blob store, and the address in the message.
BODY_BYTES_MAX: Final = 4 * MIB
#: Messages in one batch: an index has 16 bits on the wire, and a lease's bit mask stays small.
BATCH_COUNT_MAX: Final = 4096
#: One batch as stored: one LevelDB value and one ZeroMQ frame, held in memory as a whole.
BATCH_BYTES_MAX: Final = 8 * MIB
#: Headers of one message, keys and values together.
HEADERS_BYTES_MAX: Final = 64 * KIB
#: A message's key.
KEY_BYTES_MAX: Final = 1 * KIB
#: A dedup key; the queue keeps the key for the whole dedup window.
DEDUP_KEY_BYTES_MAX: Final = 256
#: Priorities 0 (default) to 9 (first): each priority has a list in memory.
PRIORITY_MAX: Final = 9
#: The answer of one pop or peek: bounds a frame and the memory that a slow reader can pin.
POP_COUNT_MAX: Final = 65_536
POP_BYTES_MAX: Final = 8 * MIB
#: One gRPC message, both ways: tiny headers take twice their stored size as proto maps, and each
#: message of a pop includes an id and a receipt.
GRPC_BYTES_MAX: Final = 2 * POP_BYTES_MAX + 128 * POP_COUNT_MAX
#: The longest wait of a pop in one call; clients repeat the call.
WAIT_MS_MAX: Final = 60 * SECOND_MS
#: A longer lease should be renewed instead: a dead worker holds the lease until the end.
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 12 * 3600 * SECOND_MS
#: Delays, retention and dedup windows.
DELAY_MS_MAX: Final = 366 * DAY_MS
RETENTION_MS_MAX: Final = 3660 * DAY_MS
DEDUP_WINDOW_MS_MAX: Final = 7 * DAY_MS
#: (producer, batch) pairs and dedup keys remembered per queue; the oldest are dropped first.
DEDUP_IDS_MAX: Final = 1_000_000
#: Deliveries before a message moves to the dead letter queue.
MAX_DELIVERIES_MAX: Final = 10_000
#: The reason given with a nack, stored with a dead letter.
REASON_BYTES_MAX: Final = 1 * KIB
#: Queues in one cluster; a DHT lookup is flat, the listing is not.
QUEUES_MAX: Final = 100_000
#: Receipts in one ack, nack or extend.
RECEIPTS_MAX: Final = 65_536
#: Empty nodes that a caller reports to the owner of a queue's metadata list: a search seldom asks
#: more nodes.
FALLEN_MAX: Final = 64
#: ZHT's table: a key and a value.
TABLE_KEY_BYTES_MAX: Final = 1 * KIB
TABLE_VALUE_BYTES_MAX: Final = 1 * MIB

#: One reservation: one record lists the slices, and a few steps make the marks.
RESERVE_MESSAGES_MAX: Final = 1_000_000
RESERVE_BYTES_MAX: Final = 1024 * MIB
#: Unacked reservations of one subscription: a reader that is further behind has stopped.
RESERVATIONS_MAX: Final = 1_000
#: How long a subscription without a heartbeat keeps its reservations. A pipeline may pause over a
#: long week-end; after this time other consumers get the messages again.
SUBSCRIPTION_TTL_MS: Final = 7 * DAY_MS
SUBSCRIPTION_TTL_MS_MIN: Final = 60 * SECOND_MS
SUBSCRIPTION_TTL_MS_MAX: Final = 366 * DAY_MS
#: Records of subscriptions, and of publishing apps, that one node keeps in memory.
SUBSCRIPTIONS_MAX: Final = 100_000
APPS_MAX: Final = 100_000
#: A stage not published for this long is dropped.
STAGE_TTL_MS: Final = DAY_MS
#: Closed but unpublished stages of one app, and winners of one publish.
STAGES_MAX: Final = 100_000
#: The highest number of a batch, a part of a batch, an attempt or a reservation: 62 bits.
NUMBER_MAX: Final = (1 << 62) - 1

#: A name of dots alone would be a relative path wherever a name becomes a path.
_QUEUE_NAME = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,80}")


def check_queue_name(name: str) -> None:
    if not _QUEUE_NAME.fullmatch(name):
        raise InvalidArgument(
            "a queue name is 1 to 80 of A-Z a-z 0-9 . _ and -, and not dots alone, not "
            f"{name[:100]!r}"
        )


def check_name(what: str, name: str) -> None:
    """Check the name of a subscription or an app: the rules for a queue's name."""
    if not _QUEUE_NAME.fullmatch(name):
        raise InvalidArgument(
            f"a name of {what} is 1 to 80 of A-Z a-z 0-9 . _ and -, not {name[:100]!r}"
        )


def check_range(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidArgument(f"{what} must be {low} to {high}, not {value}")
