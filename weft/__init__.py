"""Weft: a durable message queue woven over all your machines.

`weft.connect` is the way in; `weft.aio` has the same names, awaited. The client's parts are loaded
when they are first used, so that importing weft is quick, and a node never loads them.
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
    TooLarge,
    Unauthenticated,
    Unavailable,
    UsageError,
    WeftError,
)
from weft.ids import MessageId

if TYPE_CHECKING:
    from weft import aio
    from weft.client.consumer_sync import Consumer
    from weft.client.credentials import Tls
    from weft.client.message import Message
    from weft.client.producer_sync import Producer
    from weft.client.queue_sync import Queue
    from weft.client.reservation import Reservation, ReservedBatch, Slice
    from weft.client.staging import Published
    from weft.client.stats import QueueStats
    from weft.client.subscription import SubscriptionStats
    from weft.client.subscription_sync import Stage, Subscription
    from weft.client.sync import Client, connect

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
    "RateLimited",
    "Refused",
    "Reservation",
    "ReservationLost",
    "ReservedBatch",
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
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "UsageError",
    "WeftError",
    "__version__",
    "aio",
    "connect",
]

#: Where the names live that are loaded when they are first used.
_LAZY = {
    "Client": "weft.client.sync",
    "Consumer": "weft.client.consumer_sync",
    "Message": "weft.client.message",
    "Producer": "weft.client.producer_sync",
    "Queue": "weft.client.queue_sync",
    "QueueStats": "weft.client.stats",
    "Published": "weft.client.staging",
    "Reservation": "weft.client.reservation",
    "ReservedBatch": "weft.client.reservation",
    "Slice": "weft.client.reservation",
    "Stage": "weft.client.subscription_sync",
    "Subscription": "weft.client.subscription_sync",
    "SubscriptionStats": "weft.client.subscription",
    "Tls": "weft.client.credentials",
    "connect": "weft.client.sync",
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
