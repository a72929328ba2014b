"""Every error that Weft raises, as one class tree.

Each class has a machine-readable ``code`` (the same word on the wire, in gRPC details and in
``--json`` output), and ``retriable`` says if the same call may succeed when simply repeated. The
branch tells which side must act:

WeftError
├── UsageError                the caller must change the call
│   ├── InvalidArgument       a value outside its documented range
│   ├── TooLarge              a body, batch, value or frame over a named limit
│   ├── QueueNotFound         no queue of that name
│   ├── QueueExists           the queue exists, with other settings
│   ├── QueueInUse            another queue, or a topic, refers to the queue
│   ├── TopicNotFound         no topic of that name
│   ├── SubscriptionNotFound  no subscription of that name
│   ├── MessageLeased         a consumer holds the message, so no client can cancel the message
│   └── MissingExtra          the command needs an extra that is not installed
├── Refused                   the caller lacks the permission
│   ├── Unauthenticated       no token, or an unknown, revoked or expired token
│   ├── PermissionDenied      the token does not grant the call
│   └── QuotaExceeded         the token, or the cluster, has reached the limit of queues
├── LeaseLost                 the receipt is stale: the message was, or will be, delivered again
│   └── AlreadySettled        the same message was acked or nacked before
├── Fenced                    a newer holder has taken over: the older holder must stop
├── VersionMismatch           the key of the table does not have the version that the call names
├── CallerGone                the reply queue of a question is gone: no caller waits for the answer
├── ReservationLost           the reserved messages are gone: released, purged, or acked
├── Busy                      the node refuses for now; nothing was changed
│   ├── QueueFull             the queue holds max_messages
│   ├── StorageFull           the disk is at its free-space reserve; acks still work
│   ├── Overloaded            too many waiting calls, leases or connections
│   └── RateLimited           more calls per second than the node, or the token, allows
├── Unavailable               the node did not answer
│   ├── ConnectionLost        no node could be reached
│   ├── DeadlineExceeded      the call's deadline has passed; a push may or may not be stored
│   │   └── CallTimedOut      a question was not answered in time; it may still be answered
│   ├── ReplyQueueLost        the reply queue of this client is gone: no answer can arrive
│   ├── ShuttingDown          the node is draining
│   └── NotPrimary            another node leads this partition now
├── TaskFailed                a task ended without a result: the function raised an exception
│   ├── WorkerLost            the worker ended while it ran the task, at every attempt
│   ├── TaskTimedOut          the task ran longer than its time limit
│   └── TaskCancelled         the task was cancelled before it ended
├── JobFailed                 a map-reduce run cannot complete: a full disk, a changed input
├── BlockLost                 no worker has a block of data, and it cannot be made again
├── GatewayFailed             the gateway of an MPI job stopped; messages not yet stored are lost
├── TlsError                  the TLS settings of both sides do not match, or a certificate fails
├── RankLost                  a rank of an MPI job is dead, and the rank's memory is unreachable
├── ProtocolError             the other side speaks another protocol
└── StorageError              the node's own disk
    ├── StoreLocked           another process has the data directory open
    ├── StoreVersion          written by a newer Weft
    ├── StoreDamaged          a checksum does not match, or a file is missing
    └── BackupDamaged         the backup is truncated or changed, or the file is no backup
"""

from __future__ import annotations

from typing import ClassVar


class WeftError(Exception):
    """The root: catch this class to catch every error that Weft raises on purpose."""

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


class TopicNotFound(UsageError):
    """No topic of that name."""

    code = "TOPIC_NOT_FOUND"


class QueueExists(UsageError):
    """The queue exists, with other settings."""

    code = "QUEUE_EXISTS"


class QueueInUse(UsageError):
    """Another queue has this queue as its dead letter queue."""

    code = "QUEUE_IN_USE"


class SubscriptionNotFound(UsageError):
    """No subscription of that name."""

    code = "SUBSCRIPTION_NOT_FOUND"


class MessageLeased(UsageError):
    """A consumer or a subscription holds the message, so no client can cancel the message."""

    code = "MESSAGE_LEASED"


class MissingExtra(UsageError):
    """The command needs an extra that is not installed."""

    code = "MISSING_EXTRA"


class Refused(WeftError):
    """The caller lacks the permission."""

    code = "REFUSED"


class Unauthenticated(Refused):
    """No token, or an unknown, revoked or expired token."""

    code = "UNAUTHENTICATED"


class PermissionDenied(Refused):
    """The token does not grant the call."""

    code = "PERMISSION_DENIED"


class QuotaExceeded(Refused):
    """The token, or the cluster, has reached the limit of queues."""

    code = "QUOTA_EXCEEDED"


class LeaseLost(WeftError):
    """The receipt is stale: the message was, or will be, delivered again.

    `in_doubt` is true if an earlier attempt of the same call got no answer. That attempt may have
    been executed before its node failed; a message that it settled is not delivered again.
    """

    code = "LEASE_LOST"

    def __init__(self, message: str = "", *, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.in_doubt = in_doubt


class AlreadySettled(LeaseLost):
    """The same message was acked or nacked before."""

    code = "ALREADY_SETTLED"


class Fenced(WeftError):
    """A newer holder has taken over: an older holder of a subscription, or an attempt at a batch
    that is already published, must stop."""

    code = "FENCED"


class VersionMismatch(WeftError):
    """The key of the hash table does not have the version that the call names: read it again."""

    code = "VERSION_MISMATCH"


class ReservationLost(WeftError):
    """The reserved messages are gone: released to the queue, purged, or acked."""

    code = "RESERVATION_LOST"


class CallerGone(WeftError):
    """The reply queue of a question is gone, so the answer reaches no caller: drop the answer."""

    code = "CALLER_GONE"


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
    """More calls per second than the node, or the token, allows."""

    code = "RATE_LIMITED"


class Unavailable(WeftError):
    """The node did not answer."""

    code = "UNAVAILABLE"
    retriable = True


class ConnectionLost(Unavailable):
    """No node could be reached."""

    code = "CONNECTION_LOST"


class DeadlineExceeded(Unavailable):
    """The call's deadline has passed; a push may or may not be stored."""

    code = "DEADLINE_EXCEEDED"


class CallTimedOut(DeadlineExceeded):
    """A call got no answer in time. Its question may wait, be in work, or be answered too late."""

    code = "CALL_TIMED_OUT"


class ReplyQueueLost(Unavailable):
    """The reply queue of this client was deleted, or has expired: no answer can arrive there. The
    questions may be answered nevertheless. The next call makes a new reply queue."""

    code = "REPLY_QUEUE_LOST"


class ShuttingDown(Unavailable):
    """The node is draining; a retry reaches the node once the node is back."""

    code = "SHUTTING_DOWN"


class NotPrimary(Unavailable):
    """Another node leads the partition now: fetch the view again."""

    code = "NOT_PRIMARY"


class TaskFailed(WeftError):
    """The task ended without a result: its function raised an exception at the last attempt.

    `error` is the name of the exception's class, `text` its message, `trace` the traceback as text
    of the worker. Exceptions are never pickled.
    """

    code = "TASK_FAILED"

    def __init__(
        self, message: str = "", *, error: str = "", text: str = "", trace: str = ""
    ) -> None:
        super().__init__(message)
        self.error = error
        self.text = text
        self.trace = trace


class WorkerLost(TaskFailed):
    """The worker ended while it ran the task, at every attempt that the task has."""

    code = "WORKER_LOST"


class TaskTimedOut(TaskFailed):
    """The task ran longer than its time limit. Raised inside a task at its soft time limit, too."""

    code = "TASK_TIMED_OUT"


class TaskCancelled(TaskFailed):
    """The task was cancelled before it ended."""

    code = "TASK_CANCELLED"


class UpstreamFailed(TaskFailed):
    """A task of a graph was not run, as one before it failed: `text` names that one."""

    code = "UPSTREAM_FAILED"


class JobFailed(WeftError):
    """A map-reduce run cannot complete: a full disk, an input that changes, no workers."""

    code = "JOB_FAILED"


class BlockLost(WeftError):
    """No worker has a block of data, and it cannot be made again."""

    code = "BLOCK_LOST"


class GatewayFailed(WeftError):
    """The gateway of an MPI job stopped; messages not yet stored are lost."""

    code = "GATEWAY_FAILED"


class TlsError(WeftError):
    """TLS fails: one side has no TLS, or a certificate is of another authority or host, expired, or
    missing. The message names the cause and the setting to change; a retry does not help."""

    code = "TLS"


class RankLost(WeftError):
    """A rank's process ended, and MPI cannot reach the rank's memory any more: abandon the rank."""

    code = "RANK_LOST"

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class ProtocolError(WeftError):
    """The other side speaks another protocol."""

    code = "PROTOCOL"


class StorageError(WeftError):
    """The node's own disk failed."""

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
    """The backup is truncated or changed, or the file is no backup."""

    code = "BACKUP_DAMAGED"


def _tree(root: type[WeftError]) -> list[type[WeftError]]:
    return [root] + [leaf for child in root.__subclasses__() for leaf in _tree(child)]


BY_CODE: dict[str, type[WeftError]] = {error.code: error for error in _tree(WeftError)}


def from_code(code: str, message: str) -> WeftError:
    """The error for the code in a node's answer; keeps a newer node's unknown code as text."""
    error = BY_CODE.get(code)
    return error(message) if error else WeftError(f"{code}: {message}")
