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
#: A group's name: stored with each batch, and in memory once for each group with messages.
GROUP_BYTES_MAX: Final = 256
#: A tenant's name: stored with each batch, and in memory once for each tenant with messages.
TENANT_BYTES_MAX: Final = 256
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
#: An idle queue is looked at once a second, and its users may pause for as long as a failover.
EXPIRE_IDLE_MS_MIN: Final = 5 * SECOND_MS
DEDUP_WINDOW_MS_MAX: Final = 7 * DAY_MS
#: (producer, batch) pairs and dedup keys remembered per queue; the oldest are dropped first.
DEDUP_IDS_MAX: Final = 1_000_000
#: A queue's `rate_limit`, in messages per second, and `max_in_flight`: more would be a mistake.
RATE_LIMIT_MAX: Final = 100_000_000
QUEUE_IN_FLIGHT_MAX: Final = 1_000_000_000
#: Deliveries before a message moves to the dead letter queue.
MAX_DELIVERIES_MAX: Final = 10_000
#: The reason given with a nack, stored with a dead letter.
REASON_BYTES_MAX: Final = 1 * KIB
#: Ready messages that a node holds of a stochastic queue: beyond it a bound protects nothing.
BUFFERS_MAX: Final = 1_000_000_000
#: Probes of one walk over the nodes of a stochastic queue: more cost messages and gain nothing.
MAX_HOPS_MAX: Final = 1_000
#: Producers that wait at one node for room in the buffer of a stochastic queue.
ROOM_WAITS_MAX: Final = 100_000
#: Queues in one cluster; a DHT lookup is flat, the listing is not.
QUEUES_MAX: Final = 100_000
#: Destinations of one multicast, and queues bound to one topic: one head lists them all.
MULTICAST_QUEUES_MAX: Final = 256
#: Topics in one cluster: every node has all of them in memory.
TOPICS_MAX: Final = 10_000
#: Topics in one answer, by default; a longer list takes several requests.
TOPICS_PAGE: Final = 1_000
#: The names and values of a binding's filter: part of the topic's record.
FILTER_BYTES_MAX: Final = 4 * KIB
#: Receipts in one ack, nack or extend.
RECEIPTS_MAX: Final = 65_536
#: Empty nodes that a caller reports to the owner of a queue's metadata list: a search seldom asks
#: more nodes.
FALLEN_MAX: Final = 64
#: ZHT's table: a key and a value. A value is one value of LevelDB, whose compactions copy it.
TABLE_KEY_BYTES_MAX: Final = 1 * KIB
TABLE_VALUE_BYTES_MAX: Final = 4 * MIB
#: Keys, and bytes of keys and values, of one batch: one frame on the wire, one round of a node.
TABLE_BATCH_KEYS_MAX: Final = 10_000
TABLE_BATCH_BYTES_MAX: Final = BATCH_BYTES_MAX
#: A key's time to live.
TABLE_TTL_MS_MAX: Final = 366 * DAY_MS
#: Keys of one page of a scan, and by default: a round of a node reads one page.
TABLE_SCAN_MAX: Final = 10_000
TABLE_SCAN_DEFAULT: Final = 1_000
#: Changes of a watched partition that its primary keeps, and their bytes, but at least one change.
#: A watcher that falls further behind gets a resync event: it has missed changes.
TABLE_CHANGES_MAX: Final = 4_096
TABLE_CHANGES_BYTES_MAX: Final = 512 * KIB
#: Waiting watches of one node.
TABLE_WATCHERS_MAX: Final = 100_000
#: How long a partition remembers the name of a write, as the default dedup window of a queue, and
#: how many names; the oldest are dropped first. A new primary reads them all.
TABLE_NAME_MS: Final = 300 * SECOND_MS
TABLE_NAMES_MAX: Final = 4_096

#: One commit: bytes of bodies, keys and values; batches; table writes. It is one frame, and its
#: effects on one partition are one log entry.
COMMIT_BYTES_MAX: Final = BATCH_BYTES_MAX
COMMIT_PUSHES_MAX: Final = 1_024
COMMIT_WRITES_MAX: Final = 1_024
#: Batches of task graphs whose messages one commit may release.
COMMIT_ARRIVALS_MAX: Final = 4_096
#: Ranges of messages of one batch in an arrival: each message on its own.
GRAPH_RANGES_MAX: Final = BATCH_COUNT_MAX
#: Messages that one message may wait for.
GRAPH_PARENTS_MAX: Final = 100_000
#: Undelivered effects of commits that one partition keeps for other partitions; beyond them its
#: commits are refused with OVERLOADED. They wait while the other partition has no primary.
OUTBOX_ENTRIES_MAX: Final = 10_000
OUTBOX_BYTES_MAX: Final = 64 * MIB

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


def check_zone(zone: str) -> None:
    """Check the name of a zone; empty: none."""
    if zone and not _QUEUE_NAME.fullmatch(zone):
        raise InvalidArgument(
            f"a zone is 1 to 80 of A-Z a-z 0-9 . _ and -, or empty, not {zone[:100]!r}"
        )


def check_range(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidArgument(f"{what} must be {low} to {high}, not {value}")
