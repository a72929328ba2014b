from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Settings(_message.Message):
    __slots__ = ("lease_ms", "max_deliveries", "dead_letter", "retention_ms", "dedup_window_ms", "max_messages", "ordered")
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    max_deliveries: int
    dead_letter: str
    retention_ms: int
    dedup_window_ms: int
    max_messages: int
    ordered: bool
    def __init__(self, lease_ms: _Optional[int] = ..., max_deliveries: _Optional[int] = ..., dead_letter: _Optional[str] = ..., retention_ms: _Optional[int] = ..., dedup_window_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., ordered: bool = ...) -> None: ...

class CreateQueueRequest(_message.Message):
    __slots__ = ("queue", "settings")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    settings: Settings
    def __init__(self, queue: _Optional[str] = ..., settings: _Optional[_Union[Settings, _Mapping]] = ...) -> None: ...

class CreateQueueResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: bool = ...) -> None: ...

class UpdateQueueRequest(_message.Message):
    __slots__ = ("queue", "lease_ms", "max_deliveries", "dead_letter", "retention_ms", "dedup_window_ms", "max_messages")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    lease_ms: int
    max_deliveries: int
    dead_letter: str
    retention_ms: int
    dedup_window_ms: int
    max_messages: int
    def __init__(self, queue: _Optional[str] = ..., lease_ms: _Optional[int] = ..., max_deliveries: _Optional[int] = ..., dead_letter: _Optional[str] = ..., retention_ms: _Optional[int] = ..., dedup_window_ms: _Optional[int] = ..., max_messages: _Optional[int] = ...) -> None: ...

class UpdateQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "more")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueDescription]
    more: bool
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueDescription, _Mapping]]] = ..., more: bool = ...) -> None: ...

class DescribeQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class QueueDescription(_message.Message):
    __slots__ = ("name", "settings", "ready", "leased", "delayed", "bytes", "oldest_ms", "pushed", "delivered", "acked", "dead_lettered", "expired_leases", "duplicates", "waiting_pops", "reserved", "staged", "backlog_bytes", "uncounted_partitions", "missing_nodes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    PUSHED_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_LEASES_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    WAITING_POPS_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MISSING_NODES_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: Settings
    ready: int
    leased: int
    delayed: int
    bytes: int
    oldest_ms: int
    pushed: int
    delivered: int
    acked: int
    dead_lettered: int
    expired_leases: int
    duplicates: int
    waiting_pops: int
    reserved: int
    staged: int
    backlog_bytes: int
    uncounted_partitions: int
    missing_nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[Settings, _Mapping]] = ..., ready: _Optional[int] = ..., leased: _Optional[int] = ..., delayed: _Optional[int] = ..., bytes: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., pushed: _Optional[int] = ..., delivered: _Optional[int] = ..., acked: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., expired_leases: _Optional[int] = ..., duplicates: _Optional[int] = ..., waiting_pops: _Optional[int] = ..., reserved: _Optional[int] = ..., staged: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., uncounted_partitions: _Optional[int] = ..., missing_nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class PurgeQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class PurgeQueueResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("queue", "limit")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    limit: int
    def __init__(self, queue: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class OutMessage(_message.Message):
    __slots__ = ("body", "headers", "key")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BODY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    headers: _containers.ScalarMap[str, str]
    key: str
    def __init__(self, body: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., key: _Optional[str] = ...) -> None: ...

class PushRequest(_message.Message):
    __slots__ = ("queue", "messages", "producer", "batch", "delay_ms", "priority", "dedup_key")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    messages: _containers.RepeatedCompositeFieldContainer[OutMessage]
    producer: int
    batch: int
    delay_ms: int
    priority: int
    dedup_key: str
    def __init__(self, queue: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[OutMessage, _Mapping]]] = ..., producer: _Optional[int] = ..., batch: _Optional[int] = ..., delay_ms: _Optional[int] = ..., priority: _Optional[int] = ..., dedup_key: _Optional[str] = ...) -> None: ...

class PushResponse(_message.Message):
    __slots__ = ("ids", "duplicate", "durability")
    IDS_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    duplicate: bool
    durability: str
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., duplicate: bool = ..., durability: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "body", "headers", "key", "receipt", "deliveries", "pushed_ms", "lease_ms", "priority", "dead_reason", "dead_origin", "dead_deliveries", "due_ms")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    PUSHED_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEAD_REASON_FIELD_NUMBER: _ClassVar[int]
    DEAD_ORIGIN_FIELD_NUMBER: _ClassVar[int]
    DEAD_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    body: bytes
    headers: _containers.ScalarMap[str, str]
    key: str
    receipt: bytes
    deliveries: int
    pushed_ms: int
    lease_ms: int
    priority: int
    dead_reason: str
    dead_origin: str
    dead_deliveries: int
    due_ms: int
    def __init__(self, id: _Optional[str] = ..., body: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., key: _Optional[str] = ..., receipt: _Optional[bytes] = ..., deliveries: _Optional[int] = ..., pushed_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., priority: _Optional[int] = ..., dead_reason: _Optional[str] = ..., dead_origin: _Optional[str] = ..., dead_deliveries: _Optional[int] = ..., due_ms: _Optional[int] = ...) -> None: ...

class PopRequest(_message.Message):
    __slots__ = ("queue", "limit", "wait_ms", "lease_ms", "max_bytes")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    limit: int
    wait_ms: int
    lease_ms: int
    max_bytes: int
    def __init__(self, queue: _Optional[str] = ..., limit: _Optional[int] = ..., wait_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class PopResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("queue", "limit", "delayed", "max_bytes")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    limit: int
    delayed: bool
    max_bytes: int
    def __init__(self, queue: _Optional[str] = ..., limit: _Optional[int] = ..., delayed: bool = ..., max_bytes: _Optional[int] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("queue", "id")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    def __init__(self, cancelled: bool = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("queue", "receipts")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, queue: _Optional[str] = ..., receipts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("queue", "receipts", "delay_ms", "reason")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    queue: str
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    delay_ms: int
    reason: str
    def __init__(self, queue: _Optional[str] = ..., receipts: _Optional[_Iterable[bytes]] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("queue", "receipts", "lease_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    lease_ms: int
    def __init__(self, queue: _Optional[str] = ..., receipts: _Optional[_Iterable[bytes]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("done", "already", "lost")
    DONE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    done: int
    already: int
    lost: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, done: _Optional[int] = ..., already: _Optional[int] = ..., lost: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("queue", "limit", "lease_ms", "prefetch", "max_bytes")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    limit: int
    lease_ms: int
    prefetch: int
    max_bytes: int
    def __init__(self, queue: _Optional[str] = ..., limit: _Optional[int] = ..., lease_ms: _Optional[int] = ..., prefetch: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class KeptPart(_message.Message):
    __slots__ = ("first", "count", "queue", "deliveries", "due_us", "reason", "origin")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DUE_US_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    queue: str
    deliveries: int
    due_us: int
    reason: str
    origin: str
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ..., queue: _Optional[str] = ..., deliveries: _Optional[int] = ..., due_us: _Optional[int] = ..., reason: _Optional[str] = ..., origin: _Optional[str] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("queue", "producer", "batch", "count", "stamp_us", "priority", "dedup_key", "parts", "payload")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    STAMP_US_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    queue: str
    producer: int
    batch: int
    count: int
    stamp_us: int
    priority: int
    dedup_key: str
    parts: _containers.RepeatedCompositeFieldContainer[KeptPart]
    payload: bytes
    def __init__(self, queue: _Optional[str] = ..., producer: _Optional[int] = ..., batch: _Optional[int] = ..., count: _Optional[int] = ..., stamp_us: _Optional[int] = ..., priority: _Optional[int] = ..., dedup_key: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[KeptPart, _Mapping]]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("partition", "queue", "after_lsn", "after_key")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    AFTER_LSN_FIELD_NUMBER: _ClassVar[int]
    AFTER_KEY_FIELD_NUMBER: _ClassVar[int]
    partition: int
    queue: str
    after_lsn: int
    after_key: str
    def __init__(self, partition: _Optional[int] = ..., queue: _Optional[str] = ..., after_lsn: _Optional[int] = ..., after_key: _Optional[str] = ...) -> None: ...

class SnapshotResponse(_message.Message):
    __slots__ = ("batches", "rows", "lsn", "key", "more")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[Kept]
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    lsn: int
    key: str
    more: bool
    def __init__(self, batches: _Optional[_Iterable[_Union[Kept, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., lsn: _Optional[int] = ..., key: _Optional[str] = ..., more: bool = ...) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("queue", "backup", "number", "kept")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BACKUP_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    backup: bytes
    number: int
    kept: Kept
    def __init__(self, queue: _Optional[str] = ..., backup: _Optional[bytes] = ..., number: _Optional[int] = ..., kept: _Optional[_Union[Kept, _Mapping]] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ("duplicate",)
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    duplicate: bool
    def __init__(self, duplicate: bool = ...) -> None: ...

class InsertRequest(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class InsertResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class RemoveResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: bool
    def __init__(self, removed: bool = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("length",)
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    length: int
    def __init__(self, length: _Optional[int] = ...) -> None: ...

class CompareAndSwapRequest(_message.Message):
    __slots__ = ("key", "old", "new")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OLD_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    key: str
    old: bytes
    new: bytes
    def __init__(self, key: _Optional[str] = ..., old: _Optional[bytes] = ..., new: _Optional[bytes] = ...) -> None: ...

class CompareAndSwapResponse(_message.Message):
    __slots__ = ("swapped", "current")
    SWAPPED_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    swapped: bool
    current: bytes
    def __init__(self, swapped: bool = ..., current: _Optional[bytes] = ...) -> None: ...

class ViewRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "grpc", "zmq", "state", "voter", "witness", "alive", "peer", "key", "data_key")
    ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    ZMQ_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DATA_KEY_FIELD_NUMBER: _ClassVar[int]
    id: str
    grpc: str
    zmq: str
    state: str
    voter: bool
    witness: bool
    alive: bool
    peer: str
    key: str
    data_key: str
    def __init__(self, id: _Optional[str] = ..., grpc: _Optional[str] = ..., zmq: _Optional[str] = ..., state: _Optional[str] = ..., voter: bool = ..., witness: bool = ..., alive: bool = ..., peer: _Optional[str] = ..., key: _Optional[str] = ..., data_key: _Optional[str] = ...) -> None: ...

class ViewResponse(_message.Message):
    __slots__ = ("cluster", "version", "partitions", "nodes", "wire_version", "primaries", "outage")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PRIMARIES_FIELD_NUMBER: _ClassVar[int]
    OUTAGE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    version: int
    partitions: int
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    wire_version: int
    primaries: _containers.RepeatedScalarFieldContainer[int]
    outage: str
    def __init__(self, cluster: _Optional[str] = ..., version: _Optional[int] = ..., partitions: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., wire_version: _Optional[int] = ..., primaries: _Optional[_Iterable[int]] = ..., outage: _Optional[str] = ...) -> None: ...

class PlacesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Place(_message.Message):
    __slots__ = ("epoch", "sync", "learners", "role", "lag")
    class LagEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    sync: _containers.RepeatedScalarFieldContainer[str]
    learners: _containers.RepeatedScalarFieldContainer[str]
    role: str
    lag: _containers.ScalarMap[str, int]
    def __init__(self, epoch: _Optional[int] = ..., sync: _Optional[_Iterable[str]] = ..., learners: _Optional[_Iterable[str]] = ..., role: _Optional[str] = ..., lag: _Optional[_Mapping[str, int]] = ...) -> None: ...

class PlacesResponse(_message.Message):
    __slots__ = ("cluster", "version", "min_sync", "voters", "nodes", "places", "joining", "learners", "observer")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MIN_SYNC_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVER_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    version: int
    min_sync: int
    voters: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    places: _containers.RepeatedCompositeFieldContainer[Place]
    joining: _containers.RepeatedScalarFieldContainer[str]
    learners: int
    observer: str
    def __init__(self, cluster: _Optional[str] = ..., version: _Optional[int] = ..., min_sync: _Optional[int] = ..., voters: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ..., joining: _Optional[_Iterable[str]] = ..., learners: _Optional[int] = ..., observer: _Optional[str] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("node", "grpc", "zmq", "peer", "key", "witness", "peer_version", "data_key")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    ZMQ_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    PEER_VERSION_FIELD_NUMBER: _ClassVar[int]
    DATA_KEY_FIELD_NUMBER: _ClassVar[int]
    node: str
    grpc: str
    zmq: str
    peer: str
    key: str
    witness: bool
    peer_version: int
    data_key: str
    def __init__(self, node: _Optional[str] = ..., grpc: _Optional[str] = ..., zmq: _Optional[str] = ..., peer: _Optional[str] = ..., key: _Optional[str] = ..., witness: bool = ..., peer_version: _Optional[int] = ..., data_key: _Optional[str] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ("cluster", "partitions", "view")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    partitions: int
    view: bytes
    def __init__(self, cluster: _Optional[str] = ..., partitions: _Optional[int] = ..., view: _Optional[bytes] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("node", "force")
    NODE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    node: str
    force: bool
    def __init__(self, node: _Optional[str] = ..., force: bool = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RecoverRequest(_message.Message):
    __slots__ = ("lost", "execute", "force_voters", "partitions")
    LOST_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    FORCE_VOTERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedScalarFieldContainer[str]
    execute: bool
    force_voters: bool
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lost: _Optional[_Iterable[str]] = ..., execute: bool = ..., force_voters: bool = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class RecoverResponse(_message.Message):
    __slots__ = ("lost", "unreachable", "places", "quorum", "catalogue", "done")
    LOST_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    CATALOGUE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedScalarFieldContainer[str]
    unreachable: _containers.RepeatedScalarFieldContainer[str]
    places: _containers.RepeatedCompositeFieldContainer[LostPlace]
    quorum: bool
    catalogue: int
    done: bool
    def __init__(self, lost: _Optional[_Iterable[str]] = ..., unreachable: _Optional[_Iterable[str]] = ..., places: _Optional[_Iterable[_Union[LostPlace, _Mapping]]] = ..., quorum: bool = ..., catalogue: _Optional[int] = ..., done: bool = ...) -> None: ...

class LostPlace(_message.Message):
    __slots__ = ("partition", "sync", "base", "messages", "more")
    class MessagesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    sync: _containers.RepeatedScalarFieldContainer[str]
    base: str
    messages: _containers.ScalarMap[str, int]
    more: bool
    def __init__(self, partition: _Optional[int] = ..., sync: _Optional[_Iterable[str]] = ..., base: _Optional[str] = ..., messages: _Optional[_Mapping[str, int]] = ..., more: bool = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("node", "version", "uptime_ms", "durability", "queues", "ready", "leased", "delayed", "store_bytes", "free_bytes", "reserve_bytes", "commits", "cpu_us", "rss_bytes", "peer_messages", "peer_bytes", "searches", "hops", "stolen", "now_ms", "peer_pings", "full", "limit_bytes", "full_peers", "stolen_returned")
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    STORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESERVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    CPU_US_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEER_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PEER_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEARCHES_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    STOLEN_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    PEER_PINGS_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    FULL_PEERS_FIELD_NUMBER: _ClassVar[int]
    STOLEN_RETURNED_FIELD_NUMBER: _ClassVar[int]
    node: str
    version: str
    uptime_ms: int
    durability: str
    queues: int
    ready: int
    leased: int
    delayed: int
    store_bytes: int
    free_bytes: int
    reserve_bytes: int
    commits: int
    cpu_us: int
    rss_bytes: int
    peer_messages: int
    peer_bytes: int
    searches: int
    hops: int
    stolen: int
    now_ms: int
    peer_pings: int
    full: bool
    limit_bytes: int
    full_peers: _containers.RepeatedScalarFieldContainer[str]
    stolen_returned: int
    def __init__(self, node: _Optional[str] = ..., version: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., durability: _Optional[str] = ..., queues: _Optional[int] = ..., ready: _Optional[int] = ..., leased: _Optional[int] = ..., delayed: _Optional[int] = ..., store_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., reserve_bytes: _Optional[int] = ..., commits: _Optional[int] = ..., cpu_us: _Optional[int] = ..., rss_bytes: _Optional[int] = ..., peer_messages: _Optional[int] = ..., peer_bytes: _Optional[int] = ..., searches: _Optional[int] = ..., hops: _Optional[int] = ..., stolen: _Optional[int] = ..., now_ms: _Optional[int] = ..., peer_pings: _Optional[int] = ..., full: bool = ..., limit_bytes: _Optional[int] = ..., full_peers: _Optional[_Iterable[str]] = ..., stolen_returned: _Optional[int] = ...) -> None: ...

class OpenSubscriptionRequest(_message.Message):
    __slots__ = ("queue", "subscription", "ttl_ms", "nonce")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    subscription: str
    ttl_ms: int
    nonce: int
    def __init__(self, queue: _Optional[str] = ..., subscription: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., nonce: _Optional[int] = ...) -> None: ...

class OpenSubscriptionResponse(_message.Message):
    __slots__ = ("epoch", "acked_through", "reserved_through")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ACKED_THROUGH_FIELD_NUMBER: _ClassVar[int]
    RESERVED_THROUGH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    acked_through: int
    reserved_through: int
    def __init__(self, epoch: _Optional[int] = ..., acked_through: _Optional[int] = ..., reserved_through: _Optional[int] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("partition", "messages", "bytes", "holds")
    class Hold(_message.Message):
        __slots__ = ("id", "messages")
        ID_FIELD_NUMBER: _ClassVar[int]
        MESSAGES_FIELD_NUMBER: _ClassVar[int]
        id: int
        messages: int
        def __init__(self, id: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    messages: int
    bytes: int
    holds: _containers.RepeatedCompositeFieldContainer[Slice.Hold]
    def __init__(self, partition: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., holds: _Optional[_Iterable[_Union[Slice.Hold, _Mapping]]] = ...) -> None: ...

class Reservation(_message.Message):
    __slots__ = ("number", "messages", "bytes", "oldest_ms", "slices")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    number: int
    messages: int
    bytes: int
    oldest_ms: int
    slices: _containers.RepeatedCompositeFieldContainer[Slice]
    def __init__(self, number: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., slices: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ...) -> None: ...

class ReserveRequest(_message.Message):
    __slots__ = ("queue", "subscription", "epoch", "number", "max_messages", "max_bytes")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    subscription: str
    epoch: int
    number: int
    max_messages: int
    max_bytes: int
    def __init__(self, queue: _Optional[str] = ..., subscription: _Optional[str] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class ReserveResponse(_message.Message):
    __slots__ = ("reservation",)
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    reservation: Reservation
    def __init__(self, reservation: _Optional[_Union[Reservation, _Mapping]] = ...) -> None: ...

class DescribeReservationRequest(_message.Message):
    __slots__ = ("queue", "subscription", "number")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    subscription: str
    number: int
    def __init__(self, queue: _Optional[str] = ..., subscription: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class ReadReservedRequest(_message.Message):
    __slots__ = ("queue", "slice", "start", "limit", "max_bytes")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    slice: Slice
    start: int
    limit: int
    max_bytes: int
    def __init__(self, queue: _Optional[str] = ..., slice: _Optional[_Union[Slice, _Mapping]] = ..., start: _Optional[int] = ..., limit: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class ReadReservedResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class AckThroughRequest(_message.Message):
    __slots__ = ("queue", "subscription", "epoch", "number", "skip_lost")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SKIP_LOST_FIELD_NUMBER: _ClassVar[int]
    queue: str
    subscription: str
    epoch: int
    number: int
    skip_lost: bool
    def __init__(self, queue: _Optional[str] = ..., subscription: _Optional[str] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., skip_lost: bool = ...) -> None: ...

class AckThroughResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("queue", "subscription", "epoch")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    queue: str
    subscription: str
    epoch: int
    def __init__(self, queue: _Optional[str] = ..., subscription: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SubscriptionStatsRequest(_message.Message):
    __slots__ = ("queue", "subscription")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    queue: str
    subscription: str
    def __init__(self, queue: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class SubscriptionDescription(_message.Message):
    __slots__ = ("queue", "subscription", "epoch", "acked_through", "reserved_through", "ttl_ms", "idle_ms", "reservations", "reserved_messages", "reserved_bytes", "reserved_oldest_ms", "backlog_messages", "backlog_bytes", "oldest_ms", "high_water")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ACKED_THROUGH_FIELD_NUMBER: _ClassVar[int]
    RESERVED_THROUGH_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    RESERVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RESERVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESERVED_OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    subscription: str
    epoch: int
    acked_through: int
    reserved_through: int
    ttl_ms: int
    idle_ms: int
    reservations: int
    reserved_messages: int
    reserved_bytes: int
    reserved_oldest_ms: int
    backlog_messages: int
    backlog_bytes: int
    oldest_ms: int
    high_water: int
    def __init__(self, queue: _Optional[str] = ..., subscription: _Optional[str] = ..., epoch: _Optional[int] = ..., acked_through: _Optional[int] = ..., reserved_through: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., idle_ms: _Optional[int] = ..., reservations: _Optional[int] = ..., reserved_messages: _Optional[int] = ..., reserved_bytes: _Optional[int] = ..., reserved_oldest_ms: _Optional[int] = ..., backlog_messages: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., high_water: _Optional[int] = ...) -> None: ...

class ListSubscriptionsRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class ListSubscriptionsResponse(_message.Message):
    __slots__ = ("subscriptions",)
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionDescription]
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[SubscriptionDescription, _Mapping]]] = ...) -> None: ...

class ReleaseAllRequest(_message.Message):
    __slots__ = ("queue", "subscription")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    queue: str
    subscription: str
    def __init__(self, queue: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class ReleaseAllResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class DeleteSubscriptionRequest(_message.Message):
    __slots__ = ("queue", "subscription")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    queue: str
    subscription: str
    def __init__(self, queue: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class DeleteSubscriptionResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("queue", "app", "batch", "partition", "attempt", "stage", "sequence", "messages", "close")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    app: str
    batch: int
    partition: int
    attempt: int
    stage: int
    sequence: int
    messages: _containers.RepeatedCompositeFieldContainer[OutMessage]
    close: int
    def __init__(self, queue: _Optional[str] = ..., app: _Optional[str] = ..., batch: _Optional[int] = ..., partition: _Optional[int] = ..., attempt: _Optional[int] = ..., stage: _Optional[int] = ..., sequence: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[OutMessage, _Mapping]]] = ..., close: _Optional[int] = ...) -> None: ...

class StageResponse(_message.Message):
    __slots__ = ("duplicate", "closed")
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    duplicate: bool
    closed: bool
    def __init__(self, duplicate: bool = ..., closed: bool = ...) -> None: ...

class Winner(_message.Message):
    __slots__ = ("partition", "attempt", "stage")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    attempt: int
    stage: int
    def __init__(self, partition: _Optional[int] = ..., attempt: _Optional[int] = ..., stage: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("queue", "app", "batch", "winners")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    WINNERS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    app: str
    batch: int
    winners: _containers.RepeatedCompositeFieldContainer[Winner]
    def __init__(self, queue: _Optional[str] = ..., app: _Optional[str] = ..., batch: _Optional[int] = ..., winners: _Optional[_Iterable[_Union[Winner, _Mapping]]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("messages", "already")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    messages: int
    already: bool
    def __init__(self, messages: _Optional[int] = ..., already: bool = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("queue", "app", "batch")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    queue: str
    app: str
    batch: int
    def __init__(self, queue: _Optional[str] = ..., app: _Optional[str] = ..., batch: _Optional[int] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class LastPublishedRequest(_message.Message):
    __slots__ = ("queue", "app")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    queue: str
    app: str
    def __init__(self, queue: _Optional[str] = ..., app: _Optional[str] = ...) -> None: ...

class LastPublishedResponse(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: int
    def __init__(self, batch: _Optional[int] = ...) -> None: ...
