"""Produce and Work, stepped by hand: merging, bounds, and what returns when a stream ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.stepped_call import RecordingNode, SteppedStream, services
from weft import limits
from weft.proto import weft_pb2 as pb
from weft.proto import wire
from weft.server.edges import produce_stream, work_stream
from weft.server.edges.grpc_code import GrpcCode
from weft.server.edges.stream_call import INBOX_BYTES_MAX, INBOX_MESSAGES_MAX
from weft.server.security.access import Access, Grant, Principal

FULL = wire.Failure("QUEUE_FULL", "full", True)


class Tokens:
    def __init__(self, *grants: str) -> None:
        self.granted = Principal("one", tuple(map(Grant.parse, grants)))

    def principal(self, token: str) -> Principal | None:
        return self.granted if token else None


class Producer:
    def __init__(self, *requests: pb.ProduceRequest, access: Access | None = None) -> None:
        self.node = RecordingNode()
        self.call = SteppedStream(services(self.node, access), "/weft.v1.Queue/Produce", "t")
        for request in requests:
            self.call.deliver(request.SerializeToString())
        self.call.start()
        self.call.run()

    def answer(self, number: int, answer: wire.AnyAnswer | None = None) -> None:
        request = self.node.requests[number]
        assert isinstance(request, wire.Push)
        stored = wire.Pushed(1, request.producer, request.batch, request.count, False, "os")
        self.node.submitted[number].answer(answer or stored, ())
        self.call.run()

    @property
    def pushes(self) -> list[tuple[str, int, list[bytes]]]:
        """(queue, count, bodies) of each push."""
        found = []
        for request, payload, _ in self.node.submitted:
            assert isinstance(request, wire.Push)
            bodies = wire.decode_payload(payload[0]).bodies
            assert len(bodies) == request.count
            found.append((request.queue, request.count, bodies))
        return found

    @property
    def receipts(self) -> list[pb.ProduceReceipt]:
        raw = self.call.to_client
        return [receipt for each in raw for receipt in pb.ProduceResponse.FromString(each).receipts]


def single(body: bytes, queue: str = "q", **fields: Any) -> pb.ProduceRequest:
    return pb.ProduceRequest(queue=queue, message=pb.OutMessage(body=body), **fields)


def test_single_messages_of_one_read_are_one_push() -> None:
    producer = Producer(single(b"1"), single(b"2", queue=""), single(b"3"))
    assert producer.pushes == [("q", 3, [b"1", b"2", b"3"])]
    producer.answer(0)
    ids = [receipt.first_id for receipt in producer.receipts]
    assert [int(each, 16) - int(ids[0], 16) for each in ids] == [0, 1, 2]
    assert [receipt.count for receipt in producer.receipts] == [1, 1, 1]


@pytest.mark.parametrize(
    "other",
    [
        single(b"2", queue="other"),
        single(b"2", delay_ms=5),
        single(b"2", priority=5),
        single(b"2", dedup_key=""),
        single(b"2", producer=1, batch=1),
        pb.ProduceRequest(queue="q", messages=pb.Columns(bodies=[b"2"])),
    ],
)
def test_messages_that_differ_are_pushed_apart(other: pb.ProduceRequest) -> None:
    producer = Producer(single(b"1"), other, single(b"3"))
    assert [bodies for _, _, bodies in producer.pushes] == [[b"1"], [b"2"], [b"3"]]


def test_receipts_leave_in_the_order_of_the_requests() -> None:
    producer = Producer(single(b"1"), single(b"2", queue="other"), single(b"3"))
    producer.answer(2)
    producer.answer(1)
    assert producer.receipts == []
    producer.answer(0)
    assert len(producer.receipts) == 3
    producers = [request.batch for request in producer.node.requests]  # type: ignore[attr-defined]
    assert [int(each.first_id[18:28], 16) for each in producer.receipts] == producers


def test_a_refused_merge_is_pushed_one_by_one() -> None:
    producer = Producer(single(b"1"), single(b"2"), single(b"3"))
    producer.answer(0, FULL)
    assert producer.pushes[1:] == [("q", 1, [b"1"]), ("q", 1, [b"2"]), ("q", 1, [b"3"])]
    names = [(each.producer, each.batch) for each in producer.node.requests]  # type: ignore[attr-defined]
    assert len(set(names)) == 4
    producer.answer(1)
    producer.answer(3, FULL)
    producer.answer(2)
    assert [receipt.refusal.code for receipt in producer.receipts] == ["", "", "QUEUE_FULL"]
    assert producer.receipts[2].refusal.retriable


@pytest.mark.parametrize("code", ["UNAVAILABLE", "SHUTTING_DOWN", "STORAGE"])
def test_a_merge_in_doubt_is_not_pushed_again(code: str) -> None:
    producer = Producer(single(b"1"), single(b"2"))
    producer.answer(0, wire.Failure(code, "perhaps", True))
    assert len(producer.pushes) == 1
    assert [receipt.refusal.code for receipt in producer.receipts] == [code, code]


def test_a_merge_stays_a_valid_batch() -> None:
    body = bytes(produce_stream.MERGED_BYTES_MAX // 2)
    producer = Producer(*(single(body) for _ in range(8)))
    assert sum(count for _, count, _ in producer.pushes) == 8
    for _, _, bodies in producer.pushes:
        assert sum(map(len, bodies)) < limits.BATCH_BYTES_MAX / 2
    many = Producer(*(single(b"") for _ in range(limits.BATCH_COUNT_MAX + 1)))
    assert [count for _, count, _ in many.pushes] == [limits.BATCH_COUNT_MAX, 1]


def test_pushes_under_way_are_bounded() -> None:
    requests = [
        pb.ProduceRequest(queue="q", messages=pb.Columns(bodies=[b"x"]))
        for _ in range(produce_stream.PUSHES_MAX + 1)
    ]
    producer = Producer(*requests)
    assert len(producer.pushes) == produce_stream.PUSHES_MAX
    producer.answer(0)
    assert len(producer.pushes) == produce_stream.PUSHES_MAX + 1


def test_a_client_that_reads_no_receipts_is_held_back() -> None:
    producer = Producer()
    producer.call.takes = False
    while producer.call.unsent < produce_stream.UNSENT_BYTES_MAX:
        for _ in range(1000):
            producer.call.deliver(single(b"").SerializeToString())
        producer.call.run()
        producer.answer(len(producer.node.submitted) - 1)
    before = len(producer.pushes)
    producer.call.deliver(single(b"").SerializeToString())
    producer.call.run()
    assert len(producer.pushes) == before
    producer.call.takes = True
    producer.call.run()
    assert len(producer.pushes) == before + 1


def test_the_inbox_is_bounded() -> None:
    call = Producer().call
    assert not call.full
    for _ in range(INBOX_MESSAGES_MAX):
        call.deliver(b"")
    assert call.full
    call = Producer().call
    call.deliver(bytes(INBOX_BYTES_MAX))
    assert call.full
    assert call.take() is not None
    assert not call.full


def test_a_drain_sends_the_receipts_and_takes_no_more() -> None:
    producer = Producer(single(b"1"))
    producer.call.services.gate.close()
    producer.call.deliver(single(b"2").SerializeToString())
    producer.call.run()
    assert producer.call.end is None
    producer.answer(0)
    assert producer.call.end is not None
    assert producer.call.end.code is GrpcCode.UNAVAILABLE
    assert (len(producer.pushes), len(producer.receipts)) == (1, 1)


def test_a_denied_queue_is_refused_and_an_unknown_token_ends_the_stream() -> None:
    producer = Producer(single(b"1", queue="other"), single(b"2"), access=Access(Tokens("push:q")))
    producer.answer(0)
    codes = [receipt.refusal.code for receipt in producer.receipts]
    assert codes == ["PERMISSION_DENIED", ""]
    producer.call._headers = producer.call._headers._replace(token="")
    producer.call.deliver(single(b"3").SerializeToString())
    producer.call.run()
    assert producer.call.end is not None
    assert producer.call.end.code is GrpcCode.UNAUTHENTICATED


# --- work -------------------------------------------------------------------------------------

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
