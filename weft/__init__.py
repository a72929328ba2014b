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
    ShuttingDown,
    StorageError,
    StorageFull,
    StoreDamaged,
    StoreLocked,
    StoreVersion,
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
    from weft.client.stats import QueueStats
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
    "Queue",
    "QueueExists",
    "QueueFull",
    "QueueInUse",
    "QueueNotFound",
    "QueueStats",
    "QuotaExceeded",
    "RateLimited",
    "Refused",
    "ShuttingDown",
    "StorageError",
    "StorageFull",
    "StoreDamaged",
    "StoreLocked",
    "StoreVersion",
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
