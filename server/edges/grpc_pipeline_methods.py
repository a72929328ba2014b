"""The gRPC methods for pipelines: subscriptions, and staged publish."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from weft import ids, limits
from weft.errors import InvalidArgument
from weft.proto import pipelines, wire
from weft.proto import weft_pb2 as pb

from .grpc_method import Asked, parse
from .grpc_push import payload_of
from .grpc_services import GrpcServices
from .proto_fields import with_bytes

RESERVE_MESSAGES_DEFAULT = 100_000
RESERVE_BYTES_DEFAULT = 64 * limits.MIB
_RAW_STAGE: Final = with_bytes(pb.StageRequest, "messages")


def open_subscription(request: pb.OpenSubscriptionRequest) -> pipelines.OpenSubscription:
    nonce = request.nonce if request.HasField("nonce") else secrets.randbits(62)
    ttl_ms = request.ttl_ms or limits.SUBSCRIPTION_TTL_MS
    return pipelines.OpenSubscription(request.queue, request.subscription, ttl_ms, nonce)


def opened(answer: pipelines.Opened) -> pb.OpenSubscriptionResponse:
    return pb.OpenSubscriptionResponse(
        epoch=answer.epoch,
        acked_through=answer.acked_through,
        reserved_through=answer.reserved_through,
    )


def reserve(request: pb.ReserveRequest) -> pipelines.Reserve:
    return pipelines.Reserve(
        request.queue,
        request.subscription,
        request.epoch,
        request.number,
        request.max_messages or RESERVE_MESSAGES_DEFAULT,
        request.max_bytes or RESERVE_BYTES_DEFAULT,
    )


def reserved(answer: pipelines.Reserved) -> pb.ReserveResponse:
    found = answer.reservation
    return pb.ReserveResponse(reservation=None if found is None else reservation_out(found))


def described(answer: pipelines.Reserved) -> pb.Reservation:
    assert answer.reservation is not None, "one that is not there is refused"
    return reservation_out(answer.reservation)


def ack_through(request: pb.AckThroughRequest) -> pipelines.AckThrough:
    return pipelines.AckThrough(
        request.queue, request.subscription, request.epoch, request.number, request.skip_lost
    )


def listed(answer: pipelines.Subscriptions) -> pb.ListSubscriptionsResponse:
    return pb.ListSubscriptionsResponse(
        subscriptions=[description_out(info) for info in answer.subscriptions]
    )


def publish(request: pb.PublishRequest) -> pipelines.Publish:
    winners = [(each.partition, each.attempt, each.stage) for each in request.winners]
    return pipelines.Publish(request.queue, request.app, request.batch, winners)


def reservation_out(found: pipelines.ReservationInfo) -> pb.Reservation:
    return pb.Reservation(
        number=found.number,
        messages=found.messages,
        bytes=found.bytes,
        oldest_ms=found.oldest_ms,
        slices=[
            pb.Slice(
                partition=one.partition,
                messages=one.messages,
                bytes=one.bytes,
                holds=[pb.Slice.Hold(id=id_, messages=count) for id_, count in one.holds],
            )
            for one in found.slices
        ],
    )


def description_out(info: pipelines.SubscriptionInfo) -> pb.SubscriptionDescription:
    return pb.SubscriptionDescription(
        **msgspec.structs.asdict(info),
        high_water=info.reserved_through + (1 if info.backlog_messages else 0),
    )


# --- with payloads ----------------------------------------------------------------------------


def ask_stage(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, _RAW_STAGE)
    named = (
        request.queue, request.app, request.batch, request.partition, request.attempt,
        request.stage,
    )  # fmt: skip
    close = None
    if request.HasField("close"):
        close = Asked(pipelines.CloseStage(*named, request.close))
        if not request.messages:
            return close
    raw = list(request.messages)  # each pass over protobuf's own list makes all bytes again
    asked = pipelines.StageBatch(*named, _producer(request.stage), request.sequence, len(raw))
    return Asked(asked, (payload_of(raw),), close)


def reply_stage(
    _: GrpcServices, asked: Asked, answer: wire.Pushed | wire.Done, frames: Sequence[bytes]
) -> bytes | Asked:
    """The stage is closed by a second request; its `kept` says if the batch was a duplicate."""
    if isinstance(answer, wire.Pushed):
        if asked.kept is not None:
            return Asked(asked.kept.request, (), answer.duplicate)
        return pb.StageResponse(duplicate=answer.duplicate).SerializeToString()
    return pb.StageResponse(duplicate=bool(asked.kept), closed=True).SerializeToString()


def _producer(stage: int) -> int:
    """A stage is a producer of its own: its number and a sequence number identify a batch."""
    if not 0 < stage <= limits.NUMBER_MAX:
        raise InvalidArgument("stage is a random number above 0 and below 2^62")
    return stage % (1 << ids.PRODUCER_BITS)
