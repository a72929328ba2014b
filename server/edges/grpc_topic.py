"""The gRPC methods of topics and multicasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft import limits
from weft.errors import InvalidArgument
from weft.ids import MessageId
from weft.proto import weft_pb2 as pb
from weft.proto import wire

from .grpc_method import Asked, parse
from .grpc_push import payload
from .grpc_services import GrpcServices


def ask_multicast(services: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.MulticastRequest)
    asked = wire.Multicast(list(request.queues), *_common(request, services.drawn))
    return Asked(asked, (wire.encode(payload(request.messages)),))


def ask_push_topic(services: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.PushTopicRequest)
    asked = wire.PushTopic(request.topic, *_common(request, services.drawn))
    return Asked(asked, (wire.encode(payload(request.messages)),))


def reply_multicast(
    _: GrpcServices, asked: Asked, answer: wire.Multicasted, frames: Sequence[bytes]
) -> bytes:
    request = asked.request
    assert isinstance(request, wire.Multicast | wire.PushTopic)
    return pb.MulticastResponse(
        copies=[_copy(answer.partition, copy, request.count) for copy in answer.copies],
        durability=answer.durability,
    ).SerializeToString()


def list_topics(request: pb.ListTopicsRequest) -> wire.ListTopics:
    return wire.ListTopics(request.prefix, request.after, request.limit or limits.TOPICS_PAGE)


def bind(request: pb.BindRequest) -> wire.Bind:
    return wire.Bind(request.topic, request.queue, dict(request.headers), dict(request.prefixes))


def topics(answer: wire.Topics) -> pb.ListTopicsResponse:
    return pb.ListTopicsResponse(topics=map(description, answer.topics), more=answer.more)


def description(topic: wire.TopicInfo) -> pb.TopicDescription:
    return pb.TopicDescription(
        name=topic.name,
        bindings=[
            pb.TopicDescription.Binding(
                queue=each.queue, headers=each.headers, prefixes=each.prefixes
            )
            for each in topic.bindings
        ],
    )


def _common(
    request: Any, drawn: Iterator[tuple[int, int]]
) -> tuple[int, int, int, int, int, str | None, str | None]:
    """The fields from `producer` on; a push without a name takes the next drawn name."""
    named = request.HasField("producer")
    if named != request.HasField("batch"):
        raise InvalidArgument("producer and batch go together: set both, or neither")
    producer, batch = (request.producer, request.batch) if named else next(drawn)
    return (
        producer, batch, len(request.messages), request.delay_ms, request.priority,
        request.dedup_key if request.HasField("dedup_key") else None,
        request.conflict_key if request.HasField("conflict_key") else None,
    )  # fmt: skip


def _copy(partition: int, copy: wire.QueueCopy, count: int) -> pb.MulticastResponse.Copy:
    places = [place for first, length in copy.ranges for place in range(first, first + length)]
    own = partition if copy.partition < 0 else copy.partition
    first = MessageId.of(own, copy.producer, copy.batch, copy.first)
    return pb.MulticastResponse.Copy(
        queue=copy.queue,
        ids=[str(MessageId(first + place)) for place in places],
        indexes=places if len(places) < count else (),
        duplicate=copy.duplicate,
    )
