"""Calls of gRPC while queues compete for the node: held, cancelled, and answered once each."""

from __future__ import annotations

import time

import grpc

from tests.contract.served import Served
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc

#: Only a hang takes longer.
PATIENCE_S = 60.0
NOISY, QUIET = 300, 200
ANSWERED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def push(queue: str, size: int, count: int) -> pb.PushRequest:
    return pb.PushRequest(queue=queue, messages=[pb.OutMessage(body=bytes(size))] * count)


def test_cancelled_calls_in_a_flood_leave_nothing_behind(own: Served) -> None:
    for name in ("noisy-a", "noisy-b", "quiet"):
        own.queue.CreateQueue(pb.CreateQueueRequest(queue=name))
    until = time.monotonic() + PATIENCE_S
    stored = done = cancelled = 0
    # A flood may arrive so slowly that no round has more than one queue's requests.
    while not described(own, "noisy-a").charged_total_us:
        assert time.monotonic() < until, "the queues do not compete: nothing is held"
        noisy, quiet = flood(own)
        # A call held for too long, or beyond the bounds of its connection, is refused.
        assert {*noisy, *quiet[1::2]} <= ANSWERED
        stored += noisy.count(grpc.StatusCode.OK)
        done += quiet.count(grpc.StatusCode.OK)
        cancelled += quiet.count(grpc.StatusCode.CANCELLED)
    assert stored
    assert sum(described(own, f"noisy-{each}").ready for each in "ab") == 100 * stored
    assert done <= described(own, "quiet").ready <= done + cancelled
    while own.node._rounds._scheduler.lines.waiting or own.node._calls._on_answer:
        assert time.monotonic() < until, "a caller is still remembered"
        time.sleep(0.01)
    assert own.queue.Push(push("quiet", 10, 1)).ids, "the node serves on"


def flood(own: Served) -> tuple[list[grpc.StatusCode], list[grpc.StatusCode]]:
    """The codes of pushes to two queues, and of pushes to a third, of which half are cancelled."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(own.address, options=options) as channel:
        other = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        noisy = [
            own.queue.Push.future(push(f"noisy-{'ab'[number % 2]}", 1_000, 100))
            for number in range(NOISY)
        ]
        quiet = [other.Push.future(push("quiet", 10, 1)) for _ in range(QUIET)]
        for call in quiet[::2]:
            call.cancel()
        return [call.code() for call in noisy], [call.code() for call in quiet]


def described(own: Served, queue: str) -> pb.QueueDescription:
    found: pb.QueueDescription = own.queue.DescribeQueue(pb.DescribeQueueRequest(queue=queue))
    return found
