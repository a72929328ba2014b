"""Produce, stepped by hand: merging, and bounds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.stepped_call import RecordingNode, SteppedStream, services
from weft import limits
from weft.proto import weft_pb2 as pb
from weft.proto import wire
from weft.server.edges import produce_stream
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
