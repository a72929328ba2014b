"""Every error that Weft raises, as one tree.

Each class has a machine-readable ``code`` (the same word on the wire, in gRPC details and in
``--json`` output) and says with ``retriable`` whether the same call may succeed if it is simply
made again. The branch says whose turn it is:

WeftError
├── UsageError                the caller must change the call
│   ├── InvalidArgument       a value outside its documented range
│   ├── TooLarge              a body, batch, value or frame over a named limit
│   ├── QueueNotFound         no queue of that name
│   ├── QueueExists           it exists, with other settings
│   ├── QueueInUse            another queue names it as its dead letter
│   ├── SubscriptionNotFound  no subscription of that name
│   └── MissingExtra          this command needs an extra that is not installed
├── Refused                   the caller may not do this
│   ├── Unauthenticated       no token, or one that is unknown, revoked or expired
│   ├── PermissionDenied      the token does not grant it
│   └── QuotaExceeded         the token, or the cluster, has as many queues as it may have
├── LeaseLost                 the receipt is stale: the message was, or will be, delivered again
│   └── AlreadySettled        this very message was acked or nacked before
├── Fenced                    somebody newer has taken over: this one must stop
├── ReservationLost           what was reserved is gone: given back, purged, or acked
├── Busy                      the node refuses for now; nothing was changed
│   ├── QueueFull             the queue holds max_messages
│   ├── StorageFull           the disk is at its free-space reserve; acks still work
│   ├── Overloaded            too many waiting calls, leases or connections
│   └── RateLimited           more a second than the node, or the token, may take
├── Unavailable               the node did not answer
│   ├── ConnectionLost        no node could be reached
│   ├── DeadlineExceeded      the call's time is over; a push may or may not have been stored
│   ├── ShuttingDown          the node is draining
│   └── NotPrimary            another node leads this partition now
├── GatewayFailed             the gateway of an MPI job stopped; what it had not stored is lost
├── ProtocolError             the other side speaks something else
└── StorageError              the node's own disk
    ├── StoreLocked           another process has the data directory open
    ├── StoreVersion          written by a newer Weft
    ├── StoreDamaged          a checksum does not match, or a file is missing
    └── BackupDamaged         a backup that is cut off, changed, or none at all
"""

from __future__ import annotations

from typing import ClassVar


class WeftError(Exception):
    """The root: catch this to catch everything that Weft raises on purpose."""

    code: ClassVar[str] = "WEFT"
    retriable: ClassVar[bool] = False

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.code)
        self.message = message or self.code


class UsageError(WeftError):
    """The caller must change the call."""

    code = "USAGE"


class InvalidArgument(UsageError):
    """A value outside its documented range."""

    code = "INVALID_ARGUMENT"


class TooLarge(UsageError):
    """A body, batch, value or frame over a named limit."""

    code = "TOO_LARGE"


class QueueNotFound(UsageError):
    """No queue of that name."""

    code = "QUEUE_NOT_FOUND"


class QueueExists(UsageError):
    """The queue exists, with other settings."""

    code = "QUEUE_EXISTS"


class QueueInUse(UsageError):
    """Another queue names this one as its dead letter."""

    code = "QUEUE_IN_USE"


class SubscriptionNotFound(UsageError):
    """No subscription of that name."""

    code = "SUBSCRIPTION_NOT_FOUND"


class MissingExtra(UsageError):
    """This command needs an extra that is not installed."""

    code = "MISSING_EXTRA"


class Refused(WeftError):
    """The caller may not do this."""

    code = "REFUSED"


class Unauthenticated(Refused):
    """No token, or one that is unknown, revoked or expired."""

    code = "UNAUTHENTICATED"


class PermissionDenied(Refused):
    """The token does not grant this."""

    code = "PERMISSION_DENIED"


class QuotaExceeded(Refused):
    """The token, or the cluster, has as many queues as it may have."""

    code = "QUOTA_EXCEEDED"


class LeaseLost(WeftError):
    """The receipt is stale: the message was, or will be, delivered again."""

    code = "LEASE_LOST"


class AlreadySettled(LeaseLost):
    """This very message was acked or nacked before."""

    code = "ALREADY_SETTLED"


class Fenced(WeftError):
    """Somebody newer has taken over: an older holder of a subscription, or an attempt at a batch
    that is published already, must stop."""

    code = "FENCED"


class ReservationLost(WeftError):
    """What was reserved is not there any more: it was given back to the queue, purged, or acked."""

    code = "RESERVATION_LOST"


class Busy(WeftError):
    """The node refuses for now; nothing was changed."""

    code = "BUSY"
    retriable = True


class QueueFull(Busy):
    """The queue holds as many messages as its ``max_messages`` allows."""

    code = "QUEUE_FULL"


class StorageFull(Busy):
    """The disk is at its free-space reserve; acks still work."""

    code = "STORAGE_FULL"


class Overloaded(Busy):
    """Too many waiting calls, leases or connections."""

    code = "OVERLOADED"


class RateLimited(Busy):
    """More a second than the node, or the token, may take."""

    code = "RATE_LIMITED"


class Unavailable(WeftError):
    """The node did not answer."""

    code = "UNAVAILABLE"
    retriable = True


class ConnectionLost(Unavailable):
    """No node could be reached."""

    code = "CONNECTION_LOST"


class DeadlineExceeded(Unavailable):
    """The call's time is over; a push may or may not have been stored."""

    code = "DEADLINE_EXCEEDED"


class ShuttingDown(Unavailable):
    """The node is draining; another attempt goes to it once it is back."""

    code = "SHUTTING_DOWN"


class NotPrimary(Unavailable):
    """Another node leads this partition now: look at the view again."""

    code = "NOT_PRIMARY"


class GatewayFailed(WeftError):
    """The gateway of an MPI job stopped; what it had not stored is lost."""

    code = "GATEWAY_FAILED"


class ProtocolError(WeftError):
    """The other side speaks something else."""

    code = "PROTOCOL"


class StorageError(WeftError):
    """The node's own disk failed it."""

    code = "STORAGE"


class StoreLocked(StorageError):
    """Another process has the data directory open."""

    code = "STORE_LOCKED"


class StoreVersion(StorageError):
    """The data directory was written by a newer Weft."""

    code = "STORE_VERSION"


class StoreDamaged(StorageError):
    """A checksum does not match, or a file is missing."""

    code = "STORE_DAMAGED"


class BackupDamaged(StorageError):
    """A backup that is cut off, changed, or none at all."""

    code = "BACKUP_DAMAGED"


def _tree(root: type[WeftError]) -> list[type[WeftError]]:
    return [root] + [leaf for child in root.__subclasses__() for leaf in _tree(child)]


BY_CODE: dict[str, type[WeftError]] = {error.code: error for error in _tree(WeftError)}


def from_code(code: str, message: str) -> WeftError:
    """The error that a node's answer names; an unknown code is a newer node's, kept as text."""
    error = BY_CODE.get(code)
    return error(message) if error else WeftError(f"{code}: {message}")
