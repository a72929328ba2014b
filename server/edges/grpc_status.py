"""Weft's error codes as gRPC status codes: one table, complete over the error tree.

Generic clients, proxies and retry policies understand the status; the exact code travels in the
trailing metadata ``weft-code``. UNAVAILABLE is reserved for calls that may be retried unchanged,
because gRPC's own retry policies treat it so.
"""

from __future__ import annotations

from typing import Any, Never

import grpc

from weft.errors import WeftError

_Code = grpc.StatusCode

STATUS: dict[str, grpc.StatusCode] = {
    "WEFT": _Code.INTERNAL,
    "USAGE": _Code.INVALID_ARGUMENT,
    "INVALID_ARGUMENT": _Code.INVALID_ARGUMENT,
    "TOO_LARGE": _Code.INVALID_ARGUMENT,
    "QUEUE_NOT_FOUND": _Code.NOT_FOUND,
    "QUEUE_EXISTS": _Code.ALREADY_EXISTS,
    "QUEUE_IN_USE": _Code.FAILED_PRECONDITION,
    "SUBSCRIPTION_NOT_FOUND": _Code.NOT_FOUND,
    "MESSAGE_LEASED": _Code.FAILED_PRECONDITION,
    "MISSING_EXTRA": _Code.UNIMPLEMENTED,
    "REFUSED": _Code.PERMISSION_DENIED,
    "UNAUTHENTICATED": _Code.UNAUTHENTICATED,
    "PERMISSION_DENIED": _Code.PERMISSION_DENIED,
    "QUOTA_EXCEEDED": _Code.RESOURCE_EXHAUSTED,
    "LEASE_LOST": _Code.FAILED_PRECONDITION,
    "ALREADY_SETTLED": _Code.FAILED_PRECONDITION,
    "FENCED": _Code.FAILED_PRECONDITION,
    "RESERVATION_LOST": _Code.DATA_LOSS,
    "BUSY": _Code.RESOURCE_EXHAUSTED,
    "QUEUE_FULL": _Code.RESOURCE_EXHAUSTED,
    "STORAGE_FULL": _Code.RESOURCE_EXHAUSTED,
    "OVERLOADED": _Code.RESOURCE_EXHAUSTED,
    "RATE_LIMITED": _Code.RESOURCE_EXHAUSTED,
    "UNAVAILABLE": _Code.UNAVAILABLE,
    "CONNECTION_LOST": _Code.UNAVAILABLE,
    "DEADLINE_EXCEEDED": _Code.DEADLINE_EXCEEDED,
    "SHUTTING_DOWN": _Code.UNAVAILABLE,
    "NOT_PRIMARY": _Code.UNAVAILABLE,
    "GATEWAY_FAILED": _Code.INTERNAL,
    "TLS": _Code.FAILED_PRECONDITION,
    "RANK_LOST": _Code.INTERNAL,
    "PROTOCOL": _Code.UNIMPLEMENTED,
    "STORAGE": _Code.INTERNAL,
    "STORE_LOCKED": _Code.INTERNAL,
    "STORE_VERSION": _Code.INTERNAL,
    "STORE_DAMAGED": _Code.DATA_LOSS,
    "BACKUP_DAMAGED": _Code.DATA_LOSS,
}


async def refuse(
    context: grpc.aio.ServicerContext[Any, Any], error: WeftError, *trailing: tuple[str, str]
) -> Never:
    """Ends the call with a gRPC status and the matching Weft code."""
    retriable = "true" if error.retriable else "false"
    await context.abort(
        STATUS[error.code],
        error.message,
        trailing_metadata=(("weft-code", error.code), ("weft-retriable", retriable), *trailing),
    )
