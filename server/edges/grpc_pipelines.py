"""The gRPC service for pipelines: subscriptions, and staged publish."""

from __future__ import annotations

import secrets

import msgspec

from weft import ids, limits
from weft.errors import InvalidArgument
from weft.proto import pipelines, weft_pb2_grpc, wire
from weft.proto import weft_pb2 as pb

from . import grpc_translation
from .grpc_call import Base, Context, call
from .grpc_services import answer_bytes

RESERVE_MESSAGES_DEFAULT = 100_000
RESERVE_BYTES_DEFAULT = 64 * limits.MIB


class StreamService(Base, weft_pb2_grpc.StreamServicer):
    @call
    async def OpenSubscription(
        self, request: pb.OpenSubscriptionRequest, context: Context
    ) -> pb.OpenSubscriptionResponse:
        nonce = request.nonce if request.HasField("nonce") else secrets.randbits(62)
        ttl_ms = request.ttl_ms or limits.SUBSCRIPTION_TTL_MS
        asked = pipelines.OpenSubscription(request.queue, request.subscription, ttl_ms, nonce)
        opened = await self.ask(asked, pipelines.Opened)
        return pb.OpenSubscriptionResponse(
            epoch=opened.epoch,
            acked_through=opened.acked_through,
            reserved_through=opened.reserved_through,
        )

    @call
    async def Reserve(self, request: pb.ReserveRequest, context: Context) -> pb.ReserveResponse:
        asked = pipelines.Reserve(
            request.queue,
            request.subscription,
            request.epoch,
            request.number,
            request.max_messages or RESERVE_MESSAGES_DEFAULT,
            request.max_bytes or RESERVE_BYTES_DEFAULT,
        )
        found = (await self.ask(asked, pipelines.Reserved)).reservation
        return pb.ReserveResponse(reservation=None if found is None else reservation_out(found))

    @call
    async def DescribeReservation(
        self, request: pb.DescribeReservationRequest, context: Context
    ) -> pb.Reservation:
        asked = pipelines.DescribeReservation(request.queue, request.subscription, request.number)
        found = (await self.ask(asked, pipelines.Reserved)).reservation
        assert found is not None, "one that is not there is refused"
        return reservation_out(found)

    @call
    async def ReadReserved(
        self, request: pb.ReadReservedRequest, context: Context
    ) -> pb.ReadReservedResponse:
        most = answer_bytes(request.max_bytes)
        asked = pipelines.ReadReserved(
            request.queue,
            request.slice.partition,
            [(hold.id, hold.messages) for hold in request.slice.holds],
            request.start,
            request.limit or limits.POP_COUNT_MAX,
        )
        answer, frames = await self.asking.exchange(asked, (), wire.Peeked)
        messages = grpc_translation.messages(answer.lent, frames)
        # The next call reads the messages beyond the first page.
        page = next(grpc_translation.pages(messages, most), [])
        return pb.ReadReservedResponse(messages=page)

    @call
    async def AckThrough(
        self, request: pb.AckThroughRequest, context: Context
    ) -> pb.AckThroughResponse:
        asked = pipelines.AckThrough(
            request.queue, request.subscription, request.epoch, request.number, request.skip_lost
        )
        await self.ask(asked, wire.Done)
        return pb.AckThroughResponse()

    @call
    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        asked = pipelines.Heartbeat(request.queue, request.subscription, request.epoch)
        await self.ask(asked, wire.Done)
        return pb.HeartbeatResponse()

    @call
    async def SubscriptionStats(
        self, request: pb.SubscriptionStatsRequest, context: Context
    ) -> pb.SubscriptionDescription:
        asked = pipelines.DescribeSubscription(request.queue, request.subscription)
        found = await self.ask(asked, pipelines.Subscriptions)
        return description_out(found.subscriptions[0])

    @call
    async def ListSubscriptions(
        self, request: pb.ListSubscriptionsRequest, context: Context
    ) -> pb.ListSubscriptionsResponse:
        found = await self.ask(pipelines.ListSubscriptions(request.queue), pipelines.Subscriptions)
        return pb.ListSubscriptionsResponse(
            subscriptions=[description_out(info) for info in found.subscriptions]
        )

    @call
    async def ReleaseAll(
        self, request: pb.ReleaseAllRequest, context: Context
    ) -> pb.ReleaseAllResponse:
        asked = pipelines.ReleaseAll(request.queue, request.subscription)
        return pb.ReleaseAllResponse(messages=(await self.ask(asked, wire.Done)).count)

    @call
    async def DeleteSubscription(
        self, request: pb.DeleteSubscriptionRequest, context: Context
    ) -> pb.DeleteSubscriptionResponse:
        asked = pipelines.DeleteSubscription(request.queue, request.subscription)
        return pb.DeleteSubscriptionResponse(messages=(await self.ask(asked, wire.Done)).count)

    @call
    async def Stage(self, request: pb.StageRequest, context: Context) -> pb.StageResponse:
        named = (
            request.queue, request.app, request.batch, request.partition, request.attempt,
            request.stage,
        )  # fmt: skip
        duplicate, closes = False, request.HasField("close")
        if request.messages or not closes:
            count = len(request.messages)
            asked = pipelines.StageBatch(*named, _producer(request.stage), request.sequence, count)
            payload = wire.encode(grpc_translation.payload(request.messages))
            answer, _ = await self.asking.exchange(asked, (payload,), wire.Pushed)
            duplicate = answer.duplicate
        if closes:
            await self.ask(pipelines.CloseStage(*named, request.close), wire.Done)
        return pb.StageResponse(duplicate=duplicate, closed=closes)

    @call
    async def Publish(self, request: pb.PublishRequest, context: Context) -> pb.PublishResponse:
        winners = [(each.partition, each.attempt, each.stage) for each in request.winners]
        asked = pipelines.Publish(request.queue, request.app, request.batch, winners)
        said = await self.ask(asked, pipelines.PublishResult)
        return pb.PublishResponse(messages=said.messages, already=said.already)

    @call
    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortResponse:
        asked = pipelines.Abort(request.queue, request.app, request.batch)
        return pb.AbortResponse(messages=(await self.ask(asked, wire.Done)).count)

    @call
    async def LastPublished(
        self, request: pb.LastPublishedRequest, context: Context
    ) -> pb.LastPublishedResponse:
        asked = pipelines.LastPublished(request.queue, request.app)
        return pb.LastPublishedResponse(batch=(await self.ask(asked, pipelines.LastBatch)).batch)


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


def _producer(stage: int) -> int:
    """A stage is a producer of its own: its number and a sequence number identify a batch."""
    if not 0 < stage <= limits.NUMBER_MAX:
        raise InvalidArgument("stage is a random number above 0 and below 2^62")
    return stage % (1 << ids.PRODUCER_BITS)
