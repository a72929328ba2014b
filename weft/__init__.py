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
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    Fenced,
    GatewayFailed,
    InvalidArgument,
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
    ReservationLost,
    ShuttingDown,
    StorageError,
    StorageFull,
    StoreDamaged,
    StoreLocked,
    StoreVersion,
    SubscriptionNotFound,
    TlsError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UsageError,
    WeftError,
)
from weft.ids import MessageId

if TYPE_CHECKING:
    from weft import aio
    from weft.client.consumer.message import Message
    from weft.client.consumer.sync_consumer import Consumer
    from weft.client.pipeline.reservation import Reservation, ReservedBatch, Slice
    from weft.client.pipeline.stage import Published
    from weft.client.pipeline.subscription import SubscriptionStats
    from weft.client.pipeline.sync_subscription import Stage, Subscription
    from weft.client.producer.sync_producer import Producer
    from weft.client.stats import QueueStats
    from weft.client.sync_client import Client, connect
    from weft.client.sync_queue import Queue
    from weft.client.transport.credentials import Tls
    from weft.client.worker.retry_policy import Reject, Retry, RetryLater, expo
    from weft.client.worker.sync_worker import Worker
    from weft.client.worker.worker_stats import WorkerStats

    __version__: str

__all__ = [
    "AlreadySettled",
    "BackupDamaged",
    "Busy",
    "Client",
    "ConnectionLost",
    "Consumer",
    "DeadlineExceeded",
    "Fenced",
    "GatewayFailed",
    "InvalidArgument",
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
    "Tls",
    "TlsError",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "UsageError",
    "WeftError",
    "Worker",
    "WorkerStats",
    "__version__",
    "aio",
    "connect",
    "expo",
]

#: The modules of the names that are loaded on first use.
_LAZY = {
    "Client": "weft.client.sync_client",
    "Consumer": "weft.client.consumer.sync_consumer",
    "Message": "weft.client.consumer.message",
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
    "Tls": "weft.client.transport.credentials",
    "Reject": "weft.client.worker.retry_policy",
    "Retry": "weft.client.worker.retry_policy",
    "RetryLater": "weft.client.worker.retry_policy",
    "expo": "weft.client.worker.retry_policy",
    "Worker": "weft.client.worker.sync_worker",
    "WorkerStats": "weft.client.worker.worker_stats",
    "connect": "weft.client.sync_client",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("weft")
    elif name == "aio":
        value = importlib.import_module("weft.aio")
    elif name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
