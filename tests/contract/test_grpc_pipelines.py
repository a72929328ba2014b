"""Subscriptions and staged publish over gRPC."""

from __future__ import annotations

from typing import Any

import grpc

from tests.contract.served import Served, refused
from weft.errors import (
    Fenced,
    InvalidArgument,
    QueueNotFound,
    ReservationLost,
    SubscriptionNotFound,
)
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc


def opened(served: Served, queue: str, **values: int) -> int:
    request = pb.OpenSubscriptionRequest(queue=queue, subscription="sub", **values)
    epoch: int = served.stream.OpenSubscription(request).epoch
    return epoch


def reserved(served: Served, queue: str, epoch: int, number: int, most: int = 0) -> pb.Reservation:
    request = pb.ReserveRequest(
        queue=queue, subscription="sub", epoch=epoch, number=number, max_messages=most
    )
    answer = served.stream.Reserve(request)
    assert answer.HasField("reservation")
    found: pb.Reservation = answer.reservation
    return found


def rows(served: Served, queue: str, reservation: pb.Reservation) -> list[pb.Message]:
    found: list[pb.Message] = []
    for one in reservation.slices:
        start = 0
        while start < one.messages:
            request = pb.ReadReservedRequest(queue=queue, slice=one, start=start)
            page = served.stream.ReadReserved(request).messages
            assert page
            found += page
            start += len(page)
    return found


def test_a_subscription_over_grpc(served: Served) -> None:
    name = served.make()
    served.push(name, b"a", b"b", b"c")
    epoch = opened(served, name)
    made = reserved(served, name, epoch, 1, most=2)
    assert reserved(served, name, epoch, 1) == made
    named: dict[str, Any] = {"queue": name, "subscription": "sub"}
    request = pb.DescribeReservationRequest(**named, number=1)
    assert served.stream.DescribeReservation(request) == made
    messages = rows(served, name, made)
    assert [message.body for message in messages] == [b"a", b"b"]
    assert [message.deliveries for message in messages] == [1, 1]
    assert not any(message.receipt for message in messages)
    served.stream.Heartbeat(pb.HeartbeatRequest(**named, epoch=epoch))
    stats = served.stream.SubscriptionStats(pb.SubscriptionStatsRequest(**named))
    assert (stats.reserved_messages, stats.backlog_messages, stats.high_water) == (2, 1, 2)
    served.stream.AckThrough(pb.AckThroughRequest(**named, epoch=epoch, number=1))
    assert served.describe(name).acked == 2
    assert reserved(served, name, epoch, 2).messages == 1
    empty = served.stream.Reserve(pb.ReserveRequest(**named, epoch=epoch, number=3))
    assert not empty.HasField("reservation")
    assert served.stream.ReleaseAll(pb.ReleaseAllRequest(**named)).messages == 1
    listed = served.stream.ListSubscriptions(pb.ListSubscriptionsRequest(queue=name)).subscriptions
    assert [one.subscription for one in listed] == ["sub"]
    assert served.stream.DeleteSubscription(pb.DeleteSubscriptionRequest(**named)).messages == 0
    assert [message.body for message in served.pop(name, 5)] == [b"c"]


def test_its_errors_over_grpc(served: Served) -> None:
    name = served.make()
    served.push(name, b"a", b"b")
    refused(lambda: reserved(served, name, 1, 1), SubscriptionNotFound)
    old = opened(served, name, nonce=7)
    assert opened(served, name, nonce=7) == old
    new = opened(served, name)
    refused(lambda: reserved(served, name, old, 1), Fenced, "its epoch is")
    refused(lambda: reserved(served, name, new, 2), InvalidArgument, "number 1, not 2")
    refused(lambda: opened(served, "nothing"), QueueNotFound)
    refused(lambda: opened(served, name, ttl_ms=1), InvalidArgument, "ttl_ms")
    refused(lambda: reserved(served, name, new, 1, most=10**9), InvalidArgument, "max_messages")
    made = reserved(served, name, new, 1)
    served.stream.ReleaseAll(pb.ReleaseAllRequest(queue=name, subscription="sub"))
    refused(lambda: rows(served, name, made), ReservationLost)
    lost = pb.AckThroughRequest(queue=name, subscription="sub", epoch=new, number=1)
    refused(lambda: served.stream.AckThrough(lost), ReservationLost)
    lost.skip_lost = True
    served.stream.AckThrough(lost)
    nowhere = pb.ReadReservedRequest(queue=name, slice=pb.Slice(partition=999))
    refused(lambda: served.stream.ReadReserved(nowhere), InvalidArgument, "no partition 999")


def staged(served: Served, queue: str, attempt: int, stage: int, *bodies: bytes) -> None:
    for sequence, body in enumerate(bodies):
        request = pb.StageRequest(
            queue=queue, app="app", batch=0, partition=0, attempt=attempt, stage=stage,
            sequence=sequence, messages=[pb.OutMessage(body=body)],
        )  # fmt: skip
        assert not served.stream.Stage(request).duplicate
        assert served.stream.Stage(request).duplicate
    close = pb.StageRequest(
        queue=queue, app="app", batch=0, partition=0, attempt=attempt, stage=stage,
        close=len(bodies),
    )  # fmt: skip
    assert served.stream.Stage(close).closed


def test_staged_publish_over_grpc(served: Served) -> None:
    name = served.make()
    named: dict[str, Any] = {"queue": name, "app": "app"}
    assert not served.stream.LastPublished(pb.LastPublishedRequest(**named)).HasField("batch")
    staged(served, name, 0, 11, b"a", b"b")
    staged(served, name, 1, 12, b"x")
    assert (served.describe(name).ready, served.describe(name).staged) == (0, 3)
    publish = pb.PublishRequest(**named, batch=0, winners=[pb.Winner(partition=0, attempt=0)])
    first = served.stream.Publish(publish)
    assert (first.messages, first.already) == (2, False)
    assert served.stream.Publish(publish).already
    assert served.stream.LastPublished(pb.LastPublishedRequest(**named)).batch == 0
    assert [message.body for message in served.pop(name, 9)] == [b"a", b"b"]
    assert served.describe(name).staged == 0
    refused(lambda: staged(served, name, 2, 13, b"late"), Fenced)


def test_an_abort_over_grpc(served: Served) -> None:
    name = served.make()
    staged(served, name, 0, 11, b"a")
    abort = pb.AbortRequest(queue=name, app="app", batch=0)
    assert served.stream.Abort(abort).messages == 1
    assert served.describe(name).staged == 0
    winners = [pb.Winner(partition=0, attempt=0)]
    publish = pb.PublishRequest(queue=name, app="app", batch=0, winners=winners)
    refused(lambda: served.stream.Publish(publish), InvalidArgument, "was discarded")
    refused(lambda: staged(served, name, 0, 0, b"a"), InvalidArgument, "stage is a random number")


def test_a_large_slice_comes_in_pages(served: Served) -> None:
    name = served.make()
    bodies = [bytes([number]) * 1_500_000 for number in range(4)]
    served.push(name, *bodies)
    made = reserved(served, name, opened(served, name), 1)
    (one,) = made.slices
    with grpc.insecure_channel(served.address) as channel:  # with gRPC's default limit
        stub = weft_pb2_grpc.StreamStub(channel)  # type: ignore[no-untyped-call]
        page = stub.ReadReserved(pb.ReadReservedRequest(queue=name, slice=one)).messages
    assert [message.body for message in page] == bodies[:2]
    assert [message.body for message in rows(served, name, made)] == bodies
