"""Weft: a durable message queue woven over all your machines.

`weft.connect` is the entry point; `weft.aio` has the same names for asyncio. The client's modules
are loaded on first use, so that importing weft is quick, and a node never loads the client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from weft.errors import (
    AlreadySettled,
    BackupDamaged,
    BlockLost,
    Busy,
    CallerGone,
    CallTimedOut,
    ConnectionLost,
    DeadlineExceeded,
    Fenced,
    GatewayFailed,
    InvalidArgument,
    JobFailed,
    LeaseLost,
    MessageLeased,
    MissingExtra,
    NotPrimary,
    Overloaded,
    PermissionDenied,
    ProtocolError,
    QueueExists,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    QuotaExceeded,
    RankLost,
    RateLimited,
    Refused,
    ReplyQueueLost,
    ReservationLost,
    ShuttingDown,
    StorageError,
    StorageFull,
    StoreDamaged,
    StoreLocked,
    StoreVersion,
    SubscriptionNotFound,
    TaskCancelled,
    TaskFailed,
    TaskTimedOut,
    TlsError,
    TooLarge,
    TopicNotFound,
    Unauthenticated,
    Unavailable,
    UpstreamFailed,
    UsageError,
    VersionMismatch,
    WeftError,
    WorkerLost,
)
from weft.ids import MessageId

if TYPE_CHECKING:
    from weft import aio, tasks
    from weft.client.consumer.sync_consumer import Consumer
    from weft.client.consumer.sync_message import Message
    from weft.client.kv_entry import KvChange, KvEntry, KvPage
    from weft.client.pipeline.reservation import Reservation, ReservedBatch, Slice
    from weft.client.pipeline.stage import Published
    from weft.client.pipeline.subscription import SubscriptionStats
    from weft.client.pipeline.sync_subscription import Stage, Subscription
    from weft.client.producer.sync_producer import Producer
    from weft.client.producer.sync_topic import Topic
    from weft.client.reply_queue import CallAnswer
    from weft.client.stats import QueueStats
    from weft.client.sync_client import Client, connect
    from weft.client.sync_queue import Queue
    from weft.client.transaction.lots import lots
    from weft.client.transaction.sync_transaction import Transaction
    from weft.client.transport.credentials import Tls
    from weft.client.worker.retry_policy import Reject, Retry, RetryLater, expo
    from weft.client.worker.sync_worker import Worker
    from weft.client.worker.worker_stats import WorkerStats

    __version__: str

__all__ = [
    "AlreadySettled",
    "BackupDamaged",
    "BlockLost",
    "Busy",
    "CallAnswer",
    "CallTimedOut",
    "CallerGone",
    "Client",
    "ConnectionLost",
    "Consumer",
    "DeadlineExceeded",
    "Fenced",
    "GatewayFailed",
    "InvalidArgument",
    "JobFailed",
    "KvChange",
    "KvEntry",
    "KvPage",
    "LeaseLost",
    "Message",
    "MessageId",
    "MessageLeased",
    "MissingExtra",
    "NotPrimary",
    "Overloaded",
    "PermissionDenied",
    "Producer",
    "ProtocolError",
    "Published",
    "Queue",
    "QueueExists",
    "QueueFull",
    "QueueInUse",
    "QueueNotFound",
    "QueueStats",
    "QuotaExceeded",
    "RankLost",
    "RateLimited",
    "Refused",
    "Reject",
    "ReplyQueueLost",
    "Reservation",
    "ReservationLost",
    "ReservedBatch",
    "Retry",
    "RetryLater",
    "ShuttingDown",
    "Slice",
    "Stage",
    "StorageError",
    "StorageFull",
    "StoreDamaged",
    "StoreLocked",
    "StoreVersion",
    "Subscription",
    "SubscriptionNotFound",
    "SubscriptionStats",
    "TaskCancelled",
    "TaskFailed",
    "TaskTimedOut",
    "Tls",
    "TlsError",
    "TooLarge",
    "Topic",
    "TopicNotFound",
    "Transaction",
    "Unauthenticated",
    "Unavailable",
    "UpstreamFailed",
    "UsageError",
    "VersionMismatch",
    "WeftError",
    "Worker",
    "WorkerLost",
    "WorkerStats",
    "__version__",
    "aio",
    "connect",
    "expo",
    "lots",
    "tasks",
]

#: The modules of the names that are loaded on first use.
_LAZY = {
    "CallAnswer": "weft.client.reply_queue",
    "Client": "weft.client.sync_client",
    "Consumer": "weft.client.consumer.sync_consumer",
    "KvChange": "weft.client.kv_entry",
    "KvEntry": "weft.client.kv_entry",
    "KvPage": "weft.client.kv_entry",
    "Message": "weft.client.consumer.sync_message",
    "Producer": "weft.client.producer.sync_producer",
    "Queue": "weft.client.sync_queue",
    "QueueStats": "weft.client.stats",
    "Published": "weft.client.pipeline.stage",
    "Reservation": "weft.client.pipeline.reservation",
    "ReservedBatch": "weft.client.pipeline.reservation",
    "Slice": "weft.client.pipeline.reservation",
    "Stage": "weft.client.pipeline.sync_subscription",
    "Subscription": "weft.client.pipeline.sync_subscription",
    "SubscriptionStats": "weft.client.pipeline.subscription",
    "Topic": "weft.client.producer.sync_topic",
    "Tls": "weft.client.transport.credentials",
    "Transaction": "weft.client.transaction.sync_transaction",
    "Reject": "weft.client.worker.retry_policy",
    "Retry": "weft.client.worker.retry_policy",
    "RetryLater": "weft.client.worker.retry_policy",
    "expo": "weft.client.worker.retry_policy",
    "lots": "weft.client.transaction.lots",
    "Worker": "weft.client.worker.sync_worker",
    "WorkerStats": "weft.client.worker.worker_stats",
    "connect": "weft.client.sync_client",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("weft")
    elif name in ("aio", "tasks"):
        value = importlib.import_module(f"weft.{name}")
    elif name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
