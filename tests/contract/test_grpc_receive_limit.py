"""A gRPC client with default options can receive a node's answers, or gets a clear error."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from tests.contract.served import Served, refused
from weft import limits
from weft.errors import InvalidArgument, MessageLeased, TooLarge
from weft.ids import MessageId
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.server.edges import grpc_translation

LARGEST = bytes(limits.BODY_BYTES_MAX)


@pytest.fixture
def plain(served: Served) -> Iterator[weft_pb2_grpc.QueueStub]:
    """A channel as `grpc.insecure_channel(address)` makes it: 4 MiB per message at most."""
    with grpc.insecure_channel(served.address) as channel:
        yield weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]


def _new(plain: weft_pb2_grpc.QueueStub, name: str, *bodies: bytes) -> list[str]:
    plain.CreateQueue(pb.CreateQueueRequest(queue=name, settings=pb.Settings(ordered=True)))
    ids: list[str] = []
    for body in bodies:
        push = pb.PushRequest(queue=name, messages=[pb.OutMessage(body=body)])
        ids += plain.Push(push).ids
    return ids


def test_a_message_that_does_not_fit_is_refused_and_stays(
    served: Served, plain: weft_pb2_grpc.QueueStub
) -> None:
    (name,) = _new(plain, "largest", LARGEST)
    for ask in (
        lambda: plain.Pop(pb.PopRequest(queue="largest", limit=10)),
        lambda: plain.Peek(pb.PeekRequest(queue="largest")),
        lambda: next(plain.Consume(pb.ConsumeRequest(queue="largest"))),
    ):
        refused(ask, TooLarge, name)
        refused(ask, TooLarge, "max_receive_message_length")
        refused(ask, TooLarge, "ask with max_bytes of at least 419")
    # A client with a higher limit says so. No delivery was counted before.
    (message,) = served.queue.Pop(pb.PopRequest(queue="largest", max_bytes=5 << 20)).messages
    assert (message.id, len(message.body), message.deliveries) == (name, len(LARGEST), 1)


def test_what_fits_comes_and_the_rest_stays(plain: weft_pb2_grpc.QueueStub) -> None:
    body = bytes(1_500_000)
    _new(plain, "several", body, body, body, LARGEST)
    first = plain.Pop(pb.PopRequest(queue="several", limit=10)).messages
    assert len(first) == 2
    small = pb.PopRequest(queue="several", limit=10, max_bytes=2_000_000)
    plain.Nack(pb.NackRequest(queue="several", receipts=[each.receipt for each in first]))
    assert len(plain.Pop(small).messages) == 1
    refused(lambda: plain.Pop(pb.PopRequest(queue="several", max_bytes=100)), InvalidArgument)


def test_a_stream_sends_what_fits_and_then_says_why_it_ends(
    plain: weft_pb2_grpc.QueueStub,
) -> None:
    plain.CreateQueue(pb.CreateQueueRequest(queue="stream"))
    messages = [pb.OutMessage(body=body) for body in (b"a", b"b", LARGEST)]
    plain.Push(pb.PushRequest(queue="stream", messages=messages))
    stream = plain.Consume(pb.ConsumeRequest(queue="stream"))
    assert [each.body for each in next(stream).messages] == [b"a", b"b"]
    refused(lambda: next(stream), TooLarge)


def test_a_long_list_of_queues_is_cut() -> None:
    """With limit=65536, queues with names of 80 letters would exceed 4 MiB."""
    described = pb.QueueDescription(name="n" * 80, ready=1 << 40)
    many = [described] * 100
    size = sum(each.ByteSize() + 6 for each in many)
    assert grpc_translation.fitting(many, size) == 100
    assert grpc_translation.fitting(many, size - 1) == 99
    assert grpc_translation.fitting(many, 1) == 1


def test_cancel_and_the_delayed(plain: weft_pb2_grpc.QueueStub) -> None:
    plain.CreateQueue(pb.CreateQueueRequest(queue="delays"))
    body = [pb.OutMessage(body=b"later")]
    (name,) = plain.Push(pb.PushRequest(queue="delays", messages=body, delay_ms=60_000)).ids
    assert not plain.Peek(pb.PeekRequest(queue="delays")).messages
    (shown,) = plain.Peek(pb.PeekRequest(queue="delays", delayed=True)).messages
    assert shown.id == name
    assert shown.due_ms - shown.pushed_ms == 60_000
    assert plain.Cancel(pb.CancelRequest(queue="delays", id=name)).cancelled
    assert not plain.Cancel(pb.CancelRequest(queue="delays", id=name)).cancelled
    far = str(MessageId.of(65_000, 1, 1, 0))
    assert not plain.Cancel(pb.CancelRequest(queue="delays", id=far)).cancelled
    refused(lambda: plain.Cancel(pb.CancelRequest(queue="delays", id="none")), InvalidArgument)


def test_a_held_message_cannot_be_cancelled(plain: weft_pb2_grpc.QueueStub) -> None:
    (name,) = _new(plain, "held", b"a")
    assert plain.Pop(pb.PopRequest(queue="held")).messages
    refused(lambda: plain.Cancel(pb.CancelRequest(queue="held", id=name)), MessageLeased)


def test_a_dead_letter_says_where_it_came_from(plain: weft_pb2_grpc.QueueStub) -> None:
    settings = pb.Settings(max_deliveries=2, dead_letter="jobs.dead")
    plain.CreateQueue(pb.CreateQueueRequest(queue="jobs", settings=settings))
    plain.Push(pb.PushRequest(queue="jobs", messages=[pb.OutMessage(body=b"a")]))
    for _ in range(2):
        (message,) = plain.Pop(pb.PopRequest(queue="jobs")).messages
        plain.Nack(pb.NackRequest(queue="jobs", receipts=[message.receipt], reason="bad"))
    (dead,) = plain.Peek(pb.PeekRequest(queue="jobs.dead")).messages
    assert (dead.dead_origin, dead.dead_deliveries, dead.deliveries) == ("jobs", 2, 0)
    assert dead.dead_reason == "2 deliveries, the last one nacked: bad"
