"""gRPC status codes and the trailing metadata of a call's end, without a gRPC library.

One table gives each error code of Weft its gRPC status; the table is complete over the error tree.
Generic clients, proxies and retry policies understand the status; the exact code travels in the
trailing metadata ``weft-code``. UNAVAILABLE is reserved for calls that may be retried unchanged,
because gRPC's own retry policies treat it so. ``grpc_status`` has the same table for grpcio.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from weft.errors import WeftError


class GrpcCode(IntEnum):
    """The status codes of gRPC, by their numbers on the wire."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


CODES: Final[dict[str, GrpcCode]] = {
    "WEFT": GrpcCode.INTERNAL,
    "USAGE": GrpcCode.INVALID_ARGUMENT,
    "INVALID_ARGUMENT": GrpcCode.INVALID_ARGUMENT,
    "TOO_LARGE": GrpcCode.INVALID_ARGUMENT,
    "QUEUE_NOT_FOUND": GrpcCode.NOT_FOUND,
    "TOPIC_NOT_FOUND": GrpcCode.NOT_FOUND,
    "QUEUE_EXISTS": GrpcCode.ALREADY_EXISTS,
    "QUEUE_IN_USE": GrpcCode.FAILED_PRECONDITION,
    "SUBSCRIPTION_NOT_FOUND": GrpcCode.NOT_FOUND,
    "MESSAGE_LEASED": GrpcCode.FAILED_PRECONDITION,
    "MISSING_EXTRA": GrpcCode.UNIMPLEMENTED,
    "REFUSED": GrpcCode.PERMISSION_DENIED,
    "UNAUTHENTICATED": GrpcCode.UNAUTHENTICATED,
    "PERMISSION_DENIED": GrpcCode.PERMISSION_DENIED,
    "QUOTA_EXCEEDED": GrpcCode.RESOURCE_EXHAUSTED,
    "LEASE_LOST": GrpcCode.FAILED_PRECONDITION,
    "ALREADY_SETTLED": GrpcCode.FAILED_PRECONDITION,
    "FENCED": GrpcCode.FAILED_PRECONDITION,
    "VERSION_MISMATCH": GrpcCode.FAILED_PRECONDITION,
    "RESERVATION_LOST": GrpcCode.DATA_LOSS,
    "CALLER_GONE": GrpcCode.FAILED_PRECONDITION,
    "BUSY": GrpcCode.RESOURCE_EXHAUSTED,
    "QUEUE_FULL": GrpcCode.RESOURCE_EXHAUSTED,
    "STORAGE_FULL": GrpcCode.RESOURCE_EXHAUSTED,
    "OVERLOADED": GrpcCode.RESOURCE_EXHAUSTED,
    "RATE_LIMITED": GrpcCode.RESOURCE_EXHAUSTED,
    "UNAVAILABLE": GrpcCode.UNAVAILABLE,
    "CONNECTION_LOST": GrpcCode.UNAVAILABLE,
    "DEADLINE_EXCEEDED": GrpcCode.DEADLINE_EXCEEDED,
    "CALL_TIMED_OUT": GrpcCode.DEADLINE_EXCEEDED,
    "REPLY_QUEUE_LOST": GrpcCode.UNAVAILABLE,
    "SHUTTING_DOWN": GrpcCode.UNAVAILABLE,
    "NOT_PRIMARY": GrpcCode.UNAVAILABLE,
    "TASK_FAILED": GrpcCode.ABORTED,
    "UPSTREAM_FAILED": GrpcCode.ABORTED,
    "WORKER_LOST": GrpcCode.ABORTED,
    "TASK_TIMED_OUT": GrpcCode.ABORTED,
    "TASK_CANCELLED": GrpcCode.ABORTED,
    "JOB_FAILED": GrpcCode.ABORTED,
    "BLOCK_LOST": GrpcCode.DATA_LOSS,
    "GATEWAY_FAILED": GrpcCode.INTERNAL,
    "TLS": GrpcCode.FAILED_PRECONDITION,
    "RANK_LOST": GrpcCode.INTERNAL,
    "PROTOCOL": GrpcCode.UNIMPLEMENTED,
    "STORAGE": GrpcCode.INTERNAL,
    "STORE_LOCKED": GrpcCode.INTERNAL,
    "STORE_VERSION": GrpcCode.INTERNAL,
    "STORE_DAMAGED": GrpcCode.DATA_LOSS,
    "BACKUP_DAMAGED": GrpcCode.DATA_LOSS,
}


def trailing(error: WeftError) -> tuple[tuple[str, str], ...]:
    """The trailing metadata of a call that ends with an error."""
    return ("weft-code", error.code), ("weft-retriable", "true" if error.retriable else "false")
