"""Consume: flow control by prefetch, and the state after a stream's end."""

from __future__ import annotations

import time

import grpc
import pytest

from tests.contract.served import Served, consume, eventually, refused
from weft import errors, limits
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc


def test_a_stream_sends_no_more_than_its_prefetch(served: Served) -> None:
    name = served.make()
    served.push(name, *[b"%d" % number for number in range(10)])
    stream = consume(served, name, limit=2, prefetch=4)
    got = [message for _ in range(2) for message in next(stream).messages]  # type: ignore[call-overload]
    assert len(got) == 4
    time.sleep(0.1)
    assert served.describe(name).leased == 4
    served.ack(name, got[0].receipt)
    (fifth,) = next(stream).messages  # type: ignore[call-overload]
    assert fifth.body == b"4"
    nack = pb.NackRequest(queue=name, receipts=[got[1].receipt, got[2].receipt], delay_ms=60_000)
    served.queue.Nack(nack)
    assert [message.body for message in next(stream).messages] == [b"5", b"6"]  # type: ignore[call-overload]
    stream.cancel()


def test_a_stream_goes_on_when_leases_run_out(served: Served) -> None:
    name = served.make(lease_ms=200)
    served.push(name, b"1")
    stream = consume(served, name, prefetch=1)
    got = [next(stream).messages[0] for _ in range(3)]  # type: ignore[call-overload]
    assert [message.body for message in got] == [b"1"] * 3
    assert [message.deliveries for message in got] == [1, 2, 3]
    stream.cancel()


def test_an_extended_message_keeps_its_place(served: Served) -> None:
    name = served.make(lease_ms=3000)
    served.push(name, b"1", b"2")
    stream = consume(served, name, prefetch=1)
    (message,) = next(stream).messages  # type: ignore[call-overload]
    extend = pb.ExtendRequest(queue=name, receipts=[message.receipt], lease_ms=60_000)
    served.queue.Extend(extend)
    time.sleep(3.5)
    assert served.describe(name).ready == 1
    served.ack(name, message.receipt)
    assert next(stream).messages[0].body == b"2"  # type: ignore[call-overload]
    stream.cancel()


def test_a_cancelled_stream_leaves_what_it_sent_with_the_client(served: Served) -> None:
    name = served.make()
    served.push(name, b"1")
    stream = consume(served, name)
    (message,) = next(stream).messages  # type: ignore[call-overload]
    eventually(lambda: served.describe(name).waiting_pops == 1)
    stream.cancel()
    eventually(lambda: served.describe(name).waiting_pops == 0)
    assert served.describe(name).leased == 1
    assert served.ack(name, message.receipt).done == 1


@pytest.mark.parametrize(
    ("values", "says"), [({"prefetch": -1}, "prefetch"), ({"limit": -1}, "limit")]
)
def test_a_wrong_stream_is_refused(served: Served, values: dict[str, int], says: str) -> None:
    name = served.make()
    refused(lambda: next(consume(served, name, **values)), errors.InvalidArgument, says)  # type: ignore[call-overload]


def test_a_stream_ends_with_its_queue(served: Served) -> None:
    name = served.make()
    stream = consume(served, name)
    eventually(lambda: served.describe(name).waiting_pops == 1)
    served.queue.DeleteQueue(pb.DeleteQueueRequest(queue=name))
    refused(lambda: next(stream), errors.QueueNotFound)  # type: ignore[call-overload]


def test_a_stream_sends_large_messages_in_several_answers(served: Served) -> None:
    name = served.make()
    served.push(name, *[bytes([number]) * limits.MIB for number in range(5)])
    with grpc.insecure_channel(served.address) as channel:  # with gRPC's default limit
        queue = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        stream = queue.Consume(pb.ConsumeRequest(queue=name))
        got = [[message.body[0] for message in next(stream).messages] for _ in range(2)]
        stream.cancel()
    assert got == [[0, 1, 2], [3, 4]]
