from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Settings(_message.Message):
    __slots__ = ("lease_ms", "max_deliveries", "dead_letter", "retention_ms", "dedup_window_ms", "max_messages", "ordered", "grouped", "keep_leases", "kind", "buffers", "max_hops", "access", "expire_idle_ms", "share", "rate_limit", "max_in_flight", "graphs")
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    GROUPED_FIELD_NUMBER: _ClassVar[int]
    KEEP_LEASES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    MAX_HOPS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    max_deliveries: int
    dead_letter: str
    retention_ms: int
    dedup_window_ms: int
    max_messages: int
    ordered: bool
    grouped: bool
    keep_leases: bool
    kind: str
    buffers: int
    max_hops: int
    access: str
    expire_idle_ms: int
    share: float
    rate_limit: int
    max_in_flight: int
    graphs: bool
    def __init__(self, lease_ms: _Optional[int] = ..., max_deliveries: _Optional[int] = ..., dead_letter: _Optional[str] = ..., retention_ms: _Optional[int] = ..., dedup_window_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., ordered: bool = ..., grouped: bool = ..., keep_leases: bool = ..., kind: _Optional[str] = ..., buffers: _Optional[int] = ..., max_hops: _Optional[int] = ..., access: _Optional[str] = ..., expire_idle_ms: _Optional[int] = ..., share: _Optional[float] = ..., rate_limit: _Optional[int] = ..., max_in_flight: _Optional[int] = ..., graphs: bool = ...) -> None: ...

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
    __slots__ = ("queue", "lease_ms", "max_deliveries", "dead_letter", "retention_ms", "dedup_window_ms", "max_messages", "buffers", "max_hops", "access", "expire_idle_ms", "share", "rate_limit", "max_in_flight", "graphs")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    MAX_HOPS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    lease_ms: int
    max_deliveries: int
    dead_letter: str
    retention_ms: int
    dedup_window_ms: int
    max_messages: int
    buffers: int
    max_hops: int
    access: str
    expire_idle_ms: int
    share: float
    rate_limit: int
    max_in_flight: int
    graphs: bool
    def __init__(self, queue: _Optional[str] = ..., lease_ms: _Optional[int] = ..., max_deliveries: _Optional[int] = ..., dead_letter: _Optional[str] = ..., retention_ms: _Optional[int] = ..., dedup_window_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., buffers: _Optional[int] = ..., max_hops: _Optional[int] = ..., access: _Optional[str] = ..., expire_idle_ms: _Optional[int] = ..., share: _Optional[float] = ..., rate_limit: _Optional[int] = ..., max_in_flight: _Optional[int] = ..., graphs: bool = ...) -> None: ...

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
    __slots__ = ("name", "settings", "ready", "leased", "delayed", "bytes", "oldest_ms", "pushed", "delivered", "acked", "dead_lettered", "expired_leases", "duplicates", "waiting_pops", "reserved", "staged", "backlog_bytes", "uncounted_partitions", "missing_nodes", "topics", "probes", "empty_probes", "blocked_pops", "blocked_us", "full_buffers", "room_wait_us", "charged_us", "charged_total_us", "waiting")
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
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PROBES_FIELD_NUMBER: _ClassVar[int]
    EMPTY_PROBES_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_POPS_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_US_FIELD_NUMBER: _ClassVar[int]
    FULL_BUFFERS_FIELD_NUMBER: _ClassVar[int]
    ROOM_WAIT_US_FIELD_NUMBER: _ClassVar[int]
    CHARGED_US_FIELD_NUMBER: _ClassVar[int]
    CHARGED_TOTAL_US_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
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
    topics: _containers.RepeatedScalarFieldContainer[str]
    probes: int
    empty_probes: int
    blocked_pops: int
    blocked_us: int
    full_buffers: int
    room_wait_us: int
    charged_us: int
    charged_total_us: int
    waiting: int
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[Settings, _Mapping]] = ..., ready: _Optional[int] = ..., leased: _Optional[int] = ..., delayed: _Optional[int] = ..., bytes: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., pushed: _Optional[int] = ..., delivered: _Optional[int] = ..., acked: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., expired_leases: _Optional[int] = ..., duplicates: _Optional[int] = ..., waiting_pops: _Optional[int] = ..., reserved: _Optional[int] = ..., staged: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., uncounted_partitions: _Optional[int] = ..., missing_nodes: _Optional[_Iterable[str]] = ..., topics: _Optional[_Iterable[str]] = ..., probes: _Optional[int] = ..., empty_probes: _Optional[int] = ..., blocked_pops: _Optional[int] = ..., blocked_us: _Optional[int] = ..., full_buffers: _Optional[int] = ..., room_wait_us: _Optional[int] = ..., charged_us: _Optional[int] = ..., charged_total_us: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("queue", "messages", "producer", "batch", "delay_ms", "priority", "dedup_key", "group", "tenant")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    messages: _containers.RepeatedCompositeFieldContainer[OutMessage]
    producer: int
    batch: int
    delay_ms: int
    priority: int
    dedup_key: str
    group: str
    tenant: str
    def __init__(self, queue: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[OutMessage, _Mapping]]] = ..., producer: _Optional[int] = ..., batch: _Optional[int] = ..., delay_ms: _Optional[int] = ..., priority: _Optional[int] = ..., dedup_key: _Optional[str] = ..., group: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class MulticastRequest(_message.Message):
    __slots__ = ("queues", "messages", "producer", "batch", "delay_ms", "priority", "dedup_key", "conflict_key")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_KEY_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    messages: _containers.RepeatedCompositeFieldContainer[OutMessage]
    producer: int
    batch: int
    delay_ms: int
    priority: int
    dedup_key: str
    conflict_key: str
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., messages: _Optional[_Iterable[_Union[OutMessage, _Mapping]]] = ..., producer: _Optional[int] = ..., batch: _Optional[int] = ..., delay_ms: _Optional[int] = ..., priority: _Optional[int] = ..., dedup_key: _Optional[str] = ..., conflict_key: _Optional[str] = ...) -> None: ...

class MulticastResponse(_message.Message):
    __slots__ = ("copies", "durability")
    class Copy(_message.Message):
        __slots__ = ("queue", "ids", "indexes", "duplicate")
        QUEUE_FIELD_NUMBER: _ClassVar[int]
        IDS_FIELD_NUMBER: _ClassVar[int]
        INDEXES_FIELD_NUMBER: _ClassVar[int]
        DUPLICATE_FIELD_NUMBER: _ClassVar[int]
        queue: str
        ids: _containers.RepeatedScalarFieldContainer[str]
        indexes: _containers.RepeatedScalarFieldContainer[int]
        duplicate: bool
        def __init__(self, queue: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., indexes: _Optional[_Iterable[int]] = ..., duplicate: bool = ...) -> None: ...
    COPIES_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    copies: _containers.RepeatedCompositeFieldContainer[MulticastResponse.Copy]
    durability: str
    def __init__(self, copies: _Optional[_Iterable[_Union[MulticastResponse.Copy, _Mapping]]] = ..., durability: _Optional[str] = ...) -> None: ...

class PushTopicRequest(_message.Message):
    __slots__ = ("topic", "messages", "producer", "batch", "delay_ms", "priority", "dedup_key", "conflict_key")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[OutMessage]
    producer: int
    batch: int
    delay_ms: int
    priority: int
    dedup_key: str
    conflict_key: str
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[OutMessage, _Mapping]]] = ..., producer: _Optional[int] = ..., batch: _Optional[int] = ..., delay_ms: _Optional[int] = ..., priority: _Optional[int] = ..., dedup_key: _Optional[str] = ..., conflict_key: _Optional[str] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: bool = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BindRequest(_message.Message):
    __slots__ = ("topic", "queue", "headers", "prefixes")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class PrefixesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue: str
    headers: _containers.ScalarMap[str, str]
    prefixes: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., queue: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., prefixes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class BindResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: bool = ...) -> None: ...

class UnbindRequest(_message.Message):
    __slots__ = ("topic", "queue")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue: str
    def __init__(self, topic: _Optional[str] = ..., queue: _Optional[str] = ...) -> None: ...

class UnbindResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: bool
    def __init__(self, removed: bool = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "more")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicDescription]
    more: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicDescription, _Mapping]]] = ..., more: bool = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("name", "bindings")
    class Binding(_message.Message):
        __slots__ = ("queue", "headers", "prefixes")
        class HeadersEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        class PrefixesEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        QUEUE_FIELD_NUMBER: _ClassVar[int]
        HEADERS_FIELD_NUMBER: _ClassVar[int]
        PREFIXES_FIELD_NUMBER: _ClassVar[int]
        queue: str
        headers: _containers.ScalarMap[str, str]
        prefixes: _containers.ScalarMap[str, str]
        def __init__(self, queue: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., prefixes: _Optional[_Mapping[str, str]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    bindings: _containers.RepeatedCompositeFieldContainer[TopicDescription.Binding]
    def __init__(self, name: _Optional[str] = ..., bindings: _Optional[_Iterable[_Union[TopicDescription.Binding, _Mapping]]] = ...) -> None: ...

class PushResponse(_message.Message):
    __slots__ = ("ids", "duplicate", "durability")
    IDS_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    duplicate: bool
    durability: str
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., duplicate: bool = ..., durability: _Optional[str] = ...) -> None: ...

class RoomRequest(_message.Message):
    __slots__ = ("queue", "messages", "wait_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    messages: int
    wait_ms: int
    def __init__(self, queue: _Optional[str] = ..., messages: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class RoomResponse(_message.Message):
    __slots__ = ("room", "producer", "batch")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    room: bool
    producer: int
    batch: int
    def __init__(self, room: bool = ..., producer: _Optional[int] = ..., batch: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "body", "headers", "key", "receipt", "deliveries", "pushed_ms", "lease_ms", "priority", "dead_reason", "dead_origin", "dead_deliveries", "due_ms", "group")
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
    GROUP_FIELD_NUMBER: _ClassVar[int]
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
    group: str
    def __init__(self, id: _Optional[str] = ..., body: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., key: _Optional[str] = ..., receipt: _Optional[bytes] = ..., deliveries: _Optional[int] = ..., pushed_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., priority: _Optional[int] = ..., dead_reason: _Optional[str] = ..., dead_origin: _Optional[str] = ..., dead_deliveries: _Optional[int] = ..., due_ms: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("queue", "receipts", "delay_ms", "reason", "final")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    queue: str
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    delay_ms: int
    reason: str
    final: bool
    def __init__(self, queue: _Optional[str] = ..., receipts: _Optional[_Iterable[bytes]] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ..., final: bool = ...) -> None: ...

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

class Columns(_message.Message):
    __slots__ = ("bodies", "headers", "keys")
    BODIES_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    headers: _containers.RepeatedCompositeFieldContainer[Headers]
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bodies: _Optional[_Iterable[bytes]] = ..., headers: _Optional[_Iterable[_Union[Headers, _Mapping]]] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class Headers(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, str]
    def __init__(self, values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PushBatchRequest(_message.Message):
    __slots__ = ("queue", "messages", "producer", "batch", "delay_ms", "priority", "dedup_key", "group", "tenant")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    messages: Columns
    producer: int
    batch: int
    delay_ms: int
    priority: int
    dedup_key: str
    group: str
    tenant: str
    def __init__(self, queue: _Optional[str] = ..., messages: _Optional[_Union[Columns, _Mapping]] = ..., producer: _Optional[int] = ..., batch: _Optional[int] = ..., delay_ms: _Optional[int] = ..., priority: _Optional[int] = ..., dedup_key: _Optional[str] = ..., group: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class PushBatchResponse(_message.Message):
    __slots__ = ("first_id", "count", "duplicate", "durability")
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    first_id: str
    count: int
    duplicate: bool
    durability: str
    def __init__(self, first_id: _Optional[str] = ..., count: _Optional[int] = ..., duplicate: bool = ..., durability: _Optional[str] = ...) -> None: ...

class PopBatchesRequest(_message.Message):
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

class PopBatchesResponse(_message.Message):
    __slots__ = ("lots",)
    LOTS_FIELD_NUMBER: _ClassVar[int]
    lots: _containers.RepeatedCompositeFieldContainer[Lot]
    def __init__(self, lots: _Optional[_Iterable[_Union[Lot, _Mapping]]] = ...) -> None: ...

class Lot(_message.Message):
    __slots__ = ("receipt", "first_id", "messages", "deliveries", "pushed_ms", "lease_ms", "priority", "dead_reason", "dead_origin", "dead_deliveries", "due_ms", "group")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    PUSHED_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEAD_REASON_FIELD_NUMBER: _ClassVar[int]
    DEAD_ORIGIN_FIELD_NUMBER: _ClassVar[int]
    DEAD_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    receipt: bytes
    first_id: str
    messages: Columns
    deliveries: int
    pushed_ms: int
    lease_ms: int
    priority: int
    dead_reason: str
    dead_origin: str
    dead_deliveries: int
    due_ms: int
    group: str
    def __init__(self, receipt: _Optional[bytes] = ..., first_id: _Optional[str] = ..., messages: _Optional[_Union[Columns, _Mapping]] = ..., deliveries: _Optional[int] = ..., pushed_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., priority: _Optional[int] = ..., dead_reason: _Optional[str] = ..., dead_origin: _Optional[str] = ..., dead_deliveries: _Optional[int] = ..., due_ms: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class LotRange(_message.Message):
    __slots__ = ("first", "count")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class LotPart(_message.Message):
    __slots__ = ("receipt", "ranges")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    receipt: bytes
    ranges: _containers.RepeatedCompositeFieldContainer[LotRange]
    def __init__(self, receipt: _Optional[bytes] = ..., ranges: _Optional[_Iterable[_Union[LotRange, _Mapping]]] = ...) -> None: ...

class AckBatchesRequest(_message.Message):
    __slots__ = ("queue", "lots")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LOTS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    lots: _containers.RepeatedCompositeFieldContainer[LotPart]
    def __init__(self, queue: _Optional[str] = ..., lots: _Optional[_Iterable[_Union[LotPart, _Mapping]]] = ...) -> None: ...

class NackBatchesRequest(_message.Message):
    __slots__ = ("queue", "lots", "delay_ms", "reason", "final")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LOTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    queue: str
    lots: _containers.RepeatedCompositeFieldContainer[LotPart]
    delay_ms: int
    reason: str
    final: bool
    def __init__(self, queue: _Optional[str] = ..., lots: _Optional[_Iterable[_Union[LotPart, _Mapping]]] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ..., final: bool = ...) -> None: ...

class ExtendBatchesRequest(_message.Message):
    __slots__ = ("queue", "lots", "lease_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LOTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    lots: _containers.RepeatedCompositeFieldContainer[LotPart]
    lease_ms: int
    def __init__(self, queue: _Optional[str] = ..., lots: _Optional[_Iterable[_Union[LotPart, _Mapping]]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class SettleBatchesResponse(_message.Message):
    __slots__ = ("done", "already", "lost")
    DONE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    done: int
    already: int
    lost: _containers.RepeatedCompositeFieldContainer[LotPart]
    def __init__(self, done: _Optional[int] = ..., already: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[LotPart, _Mapping]]] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("queue", "message", "messages", "producer", "batch", "delay_ms", "priority", "dedup_key", "group", "tenant")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    message: OutMessage
    messages: Columns
    producer: int
    batch: int
    delay_ms: int
    priority: int
    dedup_key: str
    group: str
    tenant: str
    def __init__(self, queue: _Optional[str] = ..., message: _Optional[_Union[OutMessage, _Mapping]] = ..., messages: _Optional[_Union[Columns, _Mapping]] = ..., producer: _Optional[int] = ..., batch: _Optional[int] = ..., delay_ms: _Optional[int] = ..., priority: _Optional[int] = ..., dedup_key: _Optional[str] = ..., group: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedCompositeFieldContainer[ProduceReceipt]
    def __init__(self, receipts: _Optional[_Iterable[_Union[ProduceReceipt, _Mapping]]] = ...) -> None: ...

class ProduceReceipt(_message.Message):
    __slots__ = ("first_id", "count", "duplicate", "durability", "refusal")
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    first_id: str
    count: int
    duplicate: bool
    durability: str
    refusal: Refusal
    def __init__(self, first_id: _Optional[str] = ..., count: _Optional[int] = ..., duplicate: bool = ..., durability: _Optional[str] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "message", "retriable")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    retriable: bool
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., retriable: bool = ...) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ("open", "settles", "credit")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SETTLES_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    open: WorkOpen
    settles: _containers.RepeatedCompositeFieldContainer[Settle]
    credit: int
    def __init__(self, open: _Optional[_Union[WorkOpen, _Mapping]] = ..., settles: _Optional[_Iterable[_Union[Settle, _Mapping]]] = ..., credit: _Optional[int] = ...) -> None: ...

class WorkOpen(_message.Message):
    __slots__ = ("queue", "lease_ms", "max_bytes", "limit", "columns", "prefetch")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    queue: str
    lease_ms: int
    max_bytes: int
    limit: int
    columns: bool
    prefetch: bool
    def __init__(self, queue: _Optional[str] = ..., lease_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., limit: _Optional[int] = ..., columns: bool = ..., prefetch: bool = ...) -> None: ...

class Settle(_message.Message):
    __slots__ = ("action", "tag", "receipts", "lots", "delay_ms", "reason", "lease_ms", "handed", "final")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACK: _ClassVar[Settle.Action]
        NACK: _ClassVar[Settle.Action]
        EXTEND: _ClassVar[Settle.Action]
    ACK: Settle.Action
    NACK: Settle.Action
    EXTEND: Settle.Action
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    LOTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HANDED_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    action: Settle.Action
    tag: int
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    lots: _containers.RepeatedCompositeFieldContainer[LotPart]
    delay_ms: int
    reason: str
    lease_ms: int
    handed: bool
    final: bool
    def __init__(self, action: _Optional[_Union[Settle.Action, str]] = ..., tag: _Optional[int] = ..., receipts: _Optional[_Iterable[bytes]] = ..., lots: _Optional[_Iterable[_Union[LotPart, _Mapping]]] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ..., lease_ms: _Optional[int] = ..., handed: bool = ..., final: bool = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("messages", "lots", "confirmations")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LOTS_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATIONS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    lots: _containers.RepeatedCompositeFieldContainer[Lot]
    confirmations: _containers.RepeatedCompositeFieldContainer[Confirmation]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., lots: _Optional[_Iterable[_Union[Lot, _Mapping]]] = ..., confirmations: _Optional[_Iterable[_Union[Confirmation, _Mapping]]] = ...) -> None: ...

class Confirmation(_message.Message):
    __slots__ = ("tag", "done", "already", "lost_receipts", "lost_lots", "refusal")
    TAG_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    LOST_RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    LOST_LOTS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    tag: int
    done: int
    already: int
    lost_receipts: _containers.RepeatedScalarFieldContainer[bytes]
    lost_lots: _containers.RepeatedCompositeFieldContainer[LotPart]
    refusal: Refusal
    def __init__(self, tag: _Optional[int] = ..., done: _Optional[int] = ..., already: _Optional[int] = ..., lost_receipts: _Optional[_Iterable[bytes]] = ..., lost_lots: _Optional[_Iterable[_Union[LotPart, _Mapping]]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class KeptPart(_message.Message):
    __slots__ = ("first", "count", "queue", "deliveries", "due_us", "reason", "origin", "waits")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DUE_US_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    queue: str
    deliveries: int
    due_us: int
    reason: str
    origin: str
    waits: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ..., queue: _Optional[str] = ..., deliveries: _Optional[int] = ..., due_us: _Optional[int] = ..., reason: _Optional[str] = ..., origin: _Optional[str] = ..., waits: _Optional[int] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("queue", "producer", "batch", "count", "stamp_us", "priority", "dedup_key", "parts", "payload", "group", "tenant")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    STAMP_US_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    producer: int
    batch: int
    count: int
    stamp_us: int
    priority: int
    dedup_key: str
    parts: _containers.RepeatedCompositeFieldContainer[KeptPart]
    payload: bytes
    group: str
    tenant: str
    def __init__(self, queue: _Optional[str] = ..., producer: _Optional[int] = ..., batch: _Optional[int] = ..., count: _Optional[int] = ..., stamp_us: _Optional[int] = ..., priority: _Optional[int] = ..., dedup_key: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[KeptPart, _Mapping]]] = ..., payload: _Optional[bytes] = ..., group: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("partition", "queue", "after_lsn", "after_key", "graphs")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    AFTER_LSN_FIELD_NUMBER: _ClassVar[int]
    AFTER_KEY_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    queue: str
    after_lsn: int
    after_key: str
    graphs: bool
    def __init__(self, partition: _Optional[int] = ..., queue: _Optional[str] = ..., after_lsn: _Optional[int] = ..., after_key: _Optional[str] = ..., graphs: bool = ...) -> None: ...

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

class WriteName(_message.Message):
    __slots__ = ("producer", "number")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    producer: int
    number: int
    def __init__(self, producer: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ("key", "value", "ttl_ms", "if_version", "name")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    IF_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    ttl_ms: int
    if_version: int
    name: WriteName
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., ttl_ms: _Optional[int] = ..., if_version: _Optional[int] = ..., name: _Optional[_Union[WriteName, _Mapping]] = ...) -> None: ...

class RemoveKeyRequest(_message.Message):
    __slots__ = ("key", "if_version", "name")
    KEY_FIELD_NUMBER: _ClassVar[int]
    IF_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    key: str
    if_version: int
    name: WriteName
    def __init__(self, key: _Optional[str] = ..., if_version: _Optional[int] = ..., name: _Optional[_Union[WriteName, _Mapping]] = ...) -> None: ...

class AppendKeyRequest(_message.Message):
    __slots__ = ("key", "value", "name")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    name: WriteName
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., name: _Optional[_Union[WriteName, _Mapping]] = ...) -> None: ...

class KeyWrittenResponse(_message.Message):
    __slots__ = ("done", "version", "length")
    DONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    done: bool
    version: int
    length: int
    def __init__(self, done: bool = ..., version: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class SwapKeyRequest(_message.Message):
    __slots__ = ("key", "old", "new", "name")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OLD_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    key: str
    old: bytes
    new: bytes
    name: WriteName
    def __init__(self, key: _Optional[str] = ..., old: _Optional[bytes] = ..., new: _Optional[bytes] = ..., name: _Optional[_Union[WriteName, _Mapping]] = ...) -> None: ...

class SwapKeyResponse(_message.Message):
    __slots__ = ("swapped", "current", "version")
    SWAPPED_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    swapped: bool
    current: bytes
    version: int
    def __init__(self, swapped: bool = ..., current: _Optional[bytes] = ..., version: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("acks", "pushes", "push_batches", "writes", "name", "partition")
    ACKS_FIELD_NUMBER: _ClassVar[int]
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    PUSH_BATCHES_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    acks: _containers.RepeatedCompositeFieldContainer[CommitAck]
    pushes: _containers.RepeatedCompositeFieldContainer[PushRequest]
    push_batches: _containers.RepeatedCompositeFieldContainer[PushBatchRequest]
    writes: _containers.RepeatedCompositeFieldContainer[CommitWrite]
    name: WriteName
    partition: int
    def __init__(self, acks: _Optional[_Iterable[_Union[CommitAck, _Mapping]]] = ..., pushes: _Optional[_Iterable[_Union[PushRequest, _Mapping]]] = ..., push_batches: _Optional[_Iterable[_Union[PushBatchRequest, _Mapping]]] = ..., writes: _Optional[_Iterable[_Union[CommitWrite, _Mapping]]] = ..., name: _Optional[_Union[WriteName, _Mapping]] = ..., partition: _Optional[int] = ...) -> None: ...

class CommitAck(_message.Message):
    __slots__ = ("queue", "receipts", "lots")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    LOTS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    lots: _containers.RepeatedCompositeFieldContainer[LotPart]
    def __init__(self, queue: _Optional[str] = ..., receipts: _Optional[_Iterable[bytes]] = ..., lots: _Optional[_Iterable[_Union[LotPart, _Mapping]]] = ...) -> None: ...

class CommitWrite(_message.Message):
    __slots__ = ("put", "remove", "append", "swap")
    PUT_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    SWAP_FIELD_NUMBER: _ClassVar[int]
    put: PutRequest
    remove: RemoveKeyRequest
    append: AppendKeyRequest
    swap: SwapKeyRequest
    def __init__(self, put: _Optional[_Union[PutRequest, _Mapping]] = ..., remove: _Optional[_Union[RemoveKeyRequest, _Mapping]] = ..., append: _Optional[_Union[AppendKeyRequest, _Mapping]] = ..., swap: _Optional[_Union[SwapKeyRequest, _Mapping]] = ...) -> None: ...

class CommittedPush(_message.Message):
    __slots__ = ("first_id", "count")
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first_id: str
    count: int
    def __init__(self, first_id: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("already", "pushed")
    ALREADY_FIELD_NUMBER: _ClassVar[int]
    PUSHED_FIELD_NUMBER: _ClassVar[int]
    already: bool
    pushed: _containers.RepeatedCompositeFieldContainer[CommittedPush]
    def __init__(self, already: bool = ..., pushed: _Optional[_Iterable[_Union[CommittedPush, _Mapping]]] = ...) -> None: ...

class InsertManyRequest(_message.Message):
    __slots__ = ("keys", "values", "ttl_ms", "name")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    ttl_ms: int
    name: WriteName
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., values: _Optional[_Iterable[bytes]] = ..., ttl_ms: _Optional[int] = ..., name: _Optional[_Union[WriteName, _Mapping]] = ...) -> None: ...

class RemoveManyRequest(_message.Message):
    __slots__ = ("keys", "name")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    name: WriteName
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., name: _Optional[_Union[WriteName, _Mapping]] = ...) -> None: ...

class KeysWrittenResponse(_message.Message):
    __slots__ = ("done",)
    DONE_FIELD_NUMBER: _ClassVar[int]
    done: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, done: _Optional[_Iterable[bool]] = ...) -> None: ...

class LookupManyRequest(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, keys: _Optional[_Iterable[str]] = ...) -> None: ...

class TableEntry(_message.Message):
    __slots__ = ("key", "value", "version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    version: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., version: _Optional[int] = ...) -> None: ...

class LookupManyResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[TableEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[TableEntry, _Mapping]]] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ScanResponse(_message.Message):
    __slots__ = ("entries", "after", "more")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[TableEntry]
    after: str
    more: bool
    def __init__(self, entries: _Optional[_Iterable[_Union[TableEntry, _Mapping]]] = ..., after: _Optional[str] = ..., more: bool = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("prefix", "key", "after")
    class AfterEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    key: str
    after: _containers.ScalarMap[int, int]
    def __init__(self, prefix: _Optional[str] = ..., key: _Optional[str] = ..., after: _Optional[_Mapping[int, int]] = ...) -> None: ...

class TableChange(_message.Message):
    __slots__ = ("key", "value", "version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    version: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., version: _Optional[int] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("changes", "resync", "positions")
    class PositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    RESYNC_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[TableChange]
    resync: bool
    positions: _containers.ScalarMap[int, int]
    def __init__(self, changes: _Optional[_Iterable[_Union[TableChange, _Mapping]]] = ..., resync: bool = ..., positions: _Optional[_Mapping[int, int]] = ...) -> None: ...

class ViewRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "grpc", "zmq", "state", "voter", "witness", "alive", "peer", "key", "data_key", "zone")
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
    ZONE_FIELD_NUMBER: _ClassVar[int]
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
    zone: str
    def __init__(self, id: _Optional[str] = ..., grpc: _Optional[str] = ..., zmq: _Optional[str] = ..., state: _Optional[str] = ..., voter: bool = ..., witness: bool = ..., alive: bool = ..., peer: _Optional[str] = ..., key: _Optional[str] = ..., data_key: _Optional[str] = ..., zone: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("node", "grpc", "zmq", "peer", "key", "witness", "peer_version", "data_key", "knows_groups", "knows_commits", "knows_multicast", "knows_stochastic", "zone", "knows_limits", "knows_graphs", "knows_ordered_multicast")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    ZMQ_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    PEER_VERSION_FIELD_NUMBER: _ClassVar[int]
    DATA_KEY_FIELD_NUMBER: _ClassVar[int]
    KNOWS_GROUPS_FIELD_NUMBER: _ClassVar[int]
    KNOWS_COMMITS_FIELD_NUMBER: _ClassVar[int]
    KNOWS_MULTICAST_FIELD_NUMBER: _ClassVar[int]
    KNOWS_STOCHASTIC_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    KNOWS_LIMITS_FIELD_NUMBER: _ClassVar[int]
    KNOWS_GRAPHS_FIELD_NUMBER: _ClassVar[int]
    KNOWS_ORDERED_MULTICAST_FIELD_NUMBER: _ClassVar[int]
    node: str
    grpc: str
    zmq: str
    peer: str
    key: str
    witness: bool
    peer_version: int
    data_key: str
    knows_groups: bool
    knows_commits: bool
    knows_multicast: bool
    knows_stochastic: bool
    zone: str
    knows_limits: bool
    knows_graphs: bool
    knows_ordered_multicast: bool
    def __init__(self, node: _Optional[str] = ..., grpc: _Optional[str] = ..., zmq: _Optional[str] = ..., peer: _Optional[str] = ..., key: _Optional[str] = ..., witness: bool = ..., peer_version: _Optional[int] = ..., data_key: _Optional[str] = ..., knows_groups: bool = ..., knows_commits: bool = ..., knows_multicast: bool = ..., knows_stochastic: bool = ..., zone: _Optional[str] = ..., knows_limits: bool = ..., knows_graphs: bool = ..., knows_ordered_multicast: bool = ...) -> None: ...

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
    __slots__ = ("node", "version", "uptime_ms", "durability", "queues", "ready", "leased", "delayed", "store_bytes", "free_bytes", "reserve_bytes", "commits", "cpu_us", "rss_bytes", "peer_messages", "peer_bytes", "searches", "hops", "stolen", "now_ms", "peer_pings", "full", "limit_bytes", "full_peers", "stolen_returned", "undelivered", "dropped")
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
    UNDELIVERED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
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
    undelivered: int
    dropped: int
    def __init__(self, node: _Optional[str] = ..., version: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., durability: _Optional[str] = ..., queues: _Optional[int] = ..., ready: _Optional[int] = ..., leased: _Optional[int] = ..., delayed: _Optional[int] = ..., store_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., reserve_bytes: _Optional[int] = ..., commits: _Optional[int] = ..., cpu_us: _Optional[int] = ..., rss_bytes: _Optional[int] = ..., peer_messages: _Optional[int] = ..., peer_bytes: _Optional[int] = ..., searches: _Optional[int] = ..., hops: _Optional[int] = ..., stolen: _Optional[int] = ..., now_ms: _Optional[int] = ..., peer_pings: _Optional[int] = ..., full: bool = ..., limit_bytes: _Optional[int] = ..., full_peers: _Optional[_Iterable[str]] = ..., stolen_returned: _Optional[int] = ..., undelivered: _Optional[int] = ..., dropped: _Optional[int] = ...) -> None: ...

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
