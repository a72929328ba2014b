"""Work, stepped by hand: credit, settles, and what returns when a stream ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.stepped_call import RecordingNode, SteppedStream, services
from weft import limits
from weft.proto import weft_pb2 as pb
from weft.proto import wire
from weft.server.edges import grpc_receipts, work_stream
from weft.server.edges.grpc_code import GrpcCode

LENT = wire.Lent(3, 9, 11, 0, 2, 5, 6, 1, 1000, 2000)
FRAME = wire.encode(wire.Payload([b"a" * 600, b"b" * 600]))
WHOLE = wire.Receipt(3, 9, 11, [(0, 2)])


class Worker:
    def __init__(self, credit: int = 2, **opened: Any) -> None:
        self.node = RecordingNode()
        self.call = SteppedStream(services(self.node), "/weft.v1.Queue/Work")
        self.send(pb.WorkRequest(open=pb.WorkOpen(queue="q", **opened), credit=credit))
        self.call.start()
        self.call.run()

    def send(self, request: pb.WorkRequest) -> None:
        self.call.deliver(request.SerializeToString())
        self.call.run()

    def pop(self) -> None:
        self.node.submitted[-1].answer(wire.Popped([LENT]), [FRAME])
        self.call.run()


def test_a_pop_asks_for_the_credit() -> None:
    worker = Worker(credit=7, prefetch=True, lease_ms=5)
    assert worker.node.requests == [wire.Pop("q", 7, limits.WAIT_MS_MAX, 5, prefetch=True)]
    worker.pop()
    assert worker.node.requests[1:] == [wire.Pop("q", 5, limits.WAIT_MS_MAX, 5, prefetch=True)]


def test_nothing_is_popped_without_credit() -> None:
    worker = Worker(credit=0)
    assert worker.node.requests == []
    worker.send(pb.WorkRequest(credit=2))
    worker.pop()
    assert len(worker.node.requests) == 1


def test_what_flow_control_did_not_take_returns_uncounted() -> None:
    worker = Worker(max_bytes=limits.KIB)  # a page for each message
    worker.call.takes = False
    worker.pop()
    assert len(worker.call.to_client) == 1
    worker.call.cancel()
    assert worker.node.requests[1:] == [
        wire.Nack("q", [wire.Receipt(3, 9, 11)], counted=False),
    ]


def test_a_page_that_was_taken_counts_and_the_next_does_not() -> None:
    worker = Worker(max_bytes=limits.KIB)
    worker.call.takes = False
    worker.pop()
    worker.call.sent(worker.call.unsent)
    worker.call.run()
    assert len(worker.call.to_client) == 2
    worker.call.cancel()
    assert worker.node.requests[1:] == [
        wire.Nack("q", [wire.Receipt(3, 9, 11, [(1, 1)])], counted=False),
        wire.Extend("q", [wire.Receipt(3, 9, 11, [(0, 1)])], limits.LEASE_MS_MIN),
    ]


def test_a_client_that_ends_its_side_returns_its_messages() -> None:
    worker = Worker()
    worker.pop()
    worker.call.end_of_input()
    worker.call.run()
    assert worker.node.requests[1:] == [wire.Nack("q", [WHOLE], reason=work_stream.ENDED_REASON)]
    assert worker.call.end is not None
    assert worker.call.end.code is GrpcCode.OK


def test_a_drain_leaves_the_messages_with_the_client() -> None:
    worker = Worker()
    worker.pop()
    worker.call.services.gate.close()
    assert worker.call.end is not None
    assert worker.call.end.code is GrpcCode.UNAVAILABLE
    assert len(worker.node.requests) == 1


def test_a_drain_leaves_a_posted_page_with_the_client_and_returns_the_pages_behind_it() -> None:
    worker = Worker(max_bytes=limits.KIB)
    worker.call.takes = False
    worker.pop()
    worker.call.services.gate.close()
    assert worker.call.end is not None
    assert worker.node.requests[1:] == [
        wire.Nack("q", [wire.Receipt(3, 9, 11, [(1, 1)])], counted=False),
    ]


def test_a_drain_of_consume_leaves_a_posted_page_with_the_client() -> None:
    node = RecordingNode()
    call = SteppedStream(services(node), "/weft.v1.Queue/Consume")
    request = pb.ConsumeRequest(queue="q", max_bytes=limits.KIB)
    call.deliver(request.SerializeToString())
    call.takes = False
    call.start()
    call.run()
    node.submitted[-1].answer(wire.Popped([LENT]), [FRAME])
    call.run()
    call.services.gate.close()
    assert call.end is not None
    assert node.requests[1:] == [
        wire.Nack("q", [wire.Receipt(3, 9, 11, [(1, 1)])], counted=False),
    ]


def test_a_pop_under_way_is_withdrawn_with_the_stream() -> None:
    worker = Worker()
    worker.call.cancel()
    assert worker.node.cancelled == [0]
    worker.node.submitted[0].answer(wire.Popped([LENT]), [FRAME])
    assert worker.node.requests[1:] == [
        wire.Nack("q", [wire.Receipt(3, 9, 11)], counted=False),
    ]


def test_settles_under_way_are_bounded() -> None:
    worker = Worker(credit=0)
    for tag in range(work_stream.SETTLES_MAX + 1):
        worker.send(pb.WorkRequest(settles=[pb.Settle(tag=tag, receipts=[bytes(20)])]))
    assert len(worker.node.requests) == work_stream.SETTLES_MAX
    worker.node.submitted[0].answer(wire.Settled(0, 0, [0]), ())
    worker.call.run()
    assert len(worker.node.requests) == work_stream.SETTLES_MAX + 1
    (confirmation,) = pb.WorkResponse.FromString(worker.call.to_client[0]).confirmations
    assert confirmation == pb.Confirmation(tag=0, lost_receipts=[bytes(20)])


def _ack(tag: int, index: int) -> pb.Settle:
    return pb.Settle(tag=tag, receipts=[grpc_receipts.pack((3, 9, 11), index)])


def _confirmed(worker: Worker) -> list[pb.Confirmation]:
    responses = map(pb.WorkResponse.FromString, worker.call.to_client)
    return [each for response in responses for each in response.confirmations]


def test_acks_of_one_lease_in_one_request_are_one_ack_and_each_is_confirmed() -> None:
    worker = Worker()
    worker.pop()
    worker.send(pb.WorkRequest(settles=[_ack(0, 1), _ack(300, 0)]))
    assert worker.node.requests[1:] == [wire.Ack("q", [WHOLE])]
    worker.node.submitted[1].answer(wire.Settled(2, 0, []), ())
    worker.call.run()
    assert _confirmed(worker) == [pb.Confirmation(tag=0, done=1), pb.Confirmation(tag=300, done=1)]
    worker.call.end_of_input()
    worker.call.run()
    assert len(worker.node.requests) == 2, "nothing is outstanding"


def test_acks_of_a_lease_that_was_lost_in_part_are_confirmed_one_by_one() -> None:
    worker = Worker()
    worker.pop()
    worker.send(pb.WorkRequest(settles=[_ack(5, 0), _ack(6, 1)]))
    worker.node.submitted[1].answer(wire.Settled(1, 0, [0]), ())
    singles = [wire.Receipt(3, 9, 11, [(0, 1)]), wire.Receipt(3, 9, 11, [(1, 1)])]
    assert worker.node.requests[2:] == [wire.Ack("q", singles)]
    worker.node.submitted[2].answer(wire.Settled(0, 1, [0]), ())
    worker.call.run()
    assert _confirmed(worker) == [
        pb.Confirmation(tag=5, lost_receipts=[grpc_receipts.pack((3, 9, 11), 0)]),
        pb.Confirmation(tag=6, done=1),
    ]


def test_a_refused_ack_of_several_messages_refuses_each() -> None:
    worker = Worker()
    worker.pop()
    worker.send(pb.WorkRequest(settles=[_ack(5, 0), _ack(6, 1)]))
    worker.node.submitted[1].answer(wire.Failure("UNAVAILABLE", "later", True), ())
    worker.call.run()
    refusal = pb.Refusal(code="UNAVAILABLE", message="later", retriable=True)
    assert _confirmed(worker) == [pb.Confirmation(tag=tag, refusal=refusal) for tag in (5, 6)]


@pytest.mark.parametrize(
    "settles",
    [
        [_ack(1, 0), _ack(2, 0)],
        [_ack(1, 0), pb.Settle(tag=2, action=pb.Settle.NACK, receipts=_ack(0, 1).receipts)],
        [pb.Settle(tag=tag, receipts=[grpc_receipts.pack((3, 9, 12), tag)]) for tag in (0, 1)],
        [pb.Settle(tag=1, receipts=[*_ack(0, 0).receipts, *_ack(0, 1).receipts]), _ack(2, 0)],
    ],
    ids=["the same message twice", "another action", "a lease of another stream", "two receipts"],
)
def test_other_settles_stay_apart(settles: list[pb.Settle]) -> None:
    worker = Worker()
    worker.pop()
    worker.send(pb.WorkRequest(settles=settles))
    assert len(worker.node.requests) == 3
    for submitted in worker.node.submitted[1:]:
        submitted.answer(wire.Settled(1, 0, []), ())
    worker.call.run()
    assert [each.tag for each in _confirmed(worker)] == [settle.tag for settle in settles]


def test_a_message_to_be_sent_alone_waits_for_the_others() -> None:
    worker = Worker(credit=10)
    worker.pop()
    alone = wire.Lent(3, 9, 12, 0, 1, 5, 7, 2, 1000, 2000, alone=True)
    frame = wire.encode(wire.Payload([b"x"]))
    worker.node.submitted[1].answer(wire.Popped([alone]), [frame])
    worker.call.run()
    assert worker.node.requests[2:] == [wire.Nack("q", [wire.Receipt(3, 9, 12)], counted=False)]
    assert worker.call.alarm == 2.0
    worker.call.time = 2.0  # the leases of the others have expired
    worker.call.wake()
    worker.call.run()
    assert worker.node.requests[3] == wire.Pop("q", 8, limits.WAIT_MS_MAX, 0)
    worker.node.submitted[3].answer(wire.Popped([alone]), [frame])
    worker.call.run()
    assert len(worker.node.requests) == 4
