"""The columnar methods over a real node: PushBatch, PopBatches, and settling lots."""

from __future__ import annotations

import functools
import time
from typing import Any

import grpc
import pytest

from tests.contract.served import Served, eventually, refused
from weft import errors, limits
from weft.ids import MessageId
from weft.proto import weft_pb2 as pb


def push(served: Served, name: str, *bodies: bytes) -> pb.PushBatchResponse:
    request = pb.PushBatchRequest(queue=name, messages=pb.Columns(bodies=bodies))
    answer: pb.PushBatchResponse = served.queue.PushBatch(request)
    return answer


def pop(served: Served, name: str, **fields: int) -> list[pb.Lot]:
    return list(served.queue.PopBatches(pb.PopBatchesRequest(queue=name, **fields)).lots)


def bodies(lots: list[pb.Lot]) -> list[bytes]:
    return [body for lot in lots for body in lot.messages.bodies]


def ack(served: Served, name: str, *parts: pb.LotPart) -> pb.SettleBatchesResponse:
    answer: pb.SettleBatchesResponse = served.queue.AckBatches(
        pb.AckBatchesRequest(queue=name, lots=parts)
    )
    return answer


def part(lot: pb.Lot, *spans: tuple[int, int]) -> pb.LotPart:
    ranges = [pb.LotRange(first=first, count=count) for first, count in spans]
    return pb.LotPart(receipt=lot.receipt, ranges=ranges)


def test_columns_go_through_unchanged(served: Served) -> None:
    name = served.make()
    columns = pb.Columns(
        bodies=[b"\x00\xff", b"", b"c"],
        headers=[pb.Headers(values={"h": "ü"}), pb.Headers(), pb.Headers()],
        keys=["", "k", ""],
    )
    request = pb.PushBatchRequest(queue=name, messages=columns, priority=7)
    pushed = served.queue.PushBatch(request)
    assert (pushed.count, pushed.duplicate, pushed.durability) == (3, False, "os")
    (lot,) = pop(served, name)
    assert lot.messages == columns
    assert lot.first_id == pushed.first_id
    assert (lot.deliveries, lot.lease_ms, lot.priority) == (1, 30_000, 7)
    assert abs(lot.pushed_ms / 1000 - time.time()) < 60
    assert ack(served, name, part(lot)) == pb.SettleBatchesResponse(done=3)
    assert served.describe(name).acked == 3


def test_both_shapes_see_the_same_messages(served: Served) -> None:
    name = served.make()
    pushed = push(served, name, b"0", b"1", b"2")
    ids = [str(MessageId(MessageId.parse(pushed.first_id) + place)) for place in range(3)]
    got = served.pop(name, 2)
    assert [message.id for message in got] == ids[:2]
    (lot,) = pop(served, name)
    assert (lot.first_id, bodies([lot])) == (ids[2], [b"2"])
    # Receipts of messages and of lots belong to the same leases.
    assert served.ack(name, *(message.receipt for message in got)).done == 2
    assert ack(served, name, part(lot)).done == 1


def test_a_named_batch_is_stored_once(served: Served) -> None:
    name = served.make()
    request = pb.PushBatchRequest(
        queue=name, messages=pb.Columns(bodies=[b"x"]), producer=9, batch=1
    )
    first, second = served.queue.PushBatch(request), served.queue.PushBatch(request)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.first_id == second.first_id
    assert served.describe(name).ready == 1


def test_parts_of_a_lot_are_settled(served: Served) -> None:
    name = served.make()
    push(served, name, *[b"%d" % number for number in range(10)])
    (lot,) = pop(served, name)
    assert ack(served, name, part(lot, (0, 2), (5, 1))).done == 3
    nack = pb.NackBatchesRequest(queue=name, lots=[part(lot, (9, 1))], reason="why")
    assert served.queue.NackBatches(nack) == pb.SettleBatchesResponse(done=1)
    extend = pb.ExtendBatchesRequest(queue=name, lots=[part(lot, (2, 3))], lease_ms=60_000)
    assert served.queue.ExtendBatches(extend) == pb.SettleBatchesResponse(done=3)
    (back,) = pop(served, name)
    assert (bodies([back]), back.deliveries) == ([b"9"], 2)
    answer = ack(served, name, part(lot))
    assert (answer.done, answer.already) == (6, 3)
    assert list(answer.lost) == [part(lot, (9, 1))]


def test_lost_and_forged_receipts_are_reported_and_the_rest_is_settled(served: Served) -> None:
    name = served.make()
    push(served, name, b"1", b"2")
    (lot,) = pop(served, name)
    empty, forged = pb.LotPart(receipt=bytes(22)), pb.LotPart(receipt=bytes(21) + b"\x02")
    short = pb.LotPart(receipt=b"short", ranges=[pb.LotRange(first=0, count=1)])
    answer = ack(served, name, empty, forged, part(lot), short)
    assert answer.done == 2
    whole = pb.LotPart(receipt=forged.receipt, ranges=[pb.LotRange(first=0, count=2)])
    assert list(answer.lost) == [whole, empty, short]
    assert ack(served, name, part(lot)) == pb.SettleBatchesResponse(already=2)


def test_ranges_beyond_a_lot_are_refused(served: Served) -> None:
    name = served.make()
    push(served, name, b"1", b"2")
    (lot,) = pop(served, name)
    refused(lambda: ack(served, name, part(lot, (1, 2))), errors.InvalidArgument, "beyond a lot")
    assert ack(served, name, part(lot)).done == 2


def test_too_many_messages_in_one_settlement_are_refused(served: Served) -> None:
    name = served.make()
    push(served, name, *[b""] * limits.BATCH_COUNT_MAX)
    (lot,) = pop(served, name, limit=limits.POP_COUNT_MAX)
    many = [part(lot)] * (limits.RECEIPTS_MAX // limits.BATCH_COUNT_MAX + 1)
    refused(lambda: ack(served, name, *many), errors.TooLarge, str(limits.RECEIPTS_MAX))
    assert ack(served, name, *many[:2]).done == limits.BATCH_COUNT_MAX


def test_what_is_wrong_is_said(served: Served) -> None:
    name = served.make()
    refused(lambda: push(served, "nothing", b"1"), errors.QueueNotFound)
    refused(lambda: push(served, name), errors.InvalidArgument)
    over = [b""] * (limits.BATCH_COUNT_MAX + 1)
    refused(lambda: push(served, name, *over), errors.TooLarge, str(limits.BATCH_COUNT_MAX))
    refused(lambda: push(served, name, bytes(limits.BODY_BYTES_MAX + 1)), errors.TooLarge)
    refused(lambda: pop(served, "nothing"), errors.QueueNotFound)
    refused(lambda: pop(served, name, limit=-1), errors.InvalidArgument, "limit")
    refused(lambda: pop(served, name, max_bytes=1), errors.InvalidArgument, "max_bytes")


def test_an_answer_is_cut_inside_a_lot_and_the_rest_stays(served: Served) -> None:
    name = served.make()
    push(served, name, *[bytes([number]) * 300 for number in range(10)])
    first = pop(served, name, max_bytes=1024)
    assert [body[0] for body in bodies(first)] == [0, 1, 2]
    eventually(lambda: served.describe(name).ready == 7)
    second = pop(served, name)
    assert [body[0] for body in bodies(second)] == list(range(3, 10))
    assert {lot.deliveries for lot in second} == {1}
    assert ack(served, name, *map(part, [*first, *second])).done == 10


def test_a_message_that_does_not_fit_is_refused_and_stays(served: Served) -> None:
    name = served.make()
    push(served, name, bytes(2000))
    refused(lambda: pop(served, name, max_bytes=1024), errors.TooLarge, "max_bytes of at least")
    eventually(lambda: served.describe(name).ready == 1)
    assert pop(served, name)[0].deliveries == 1


def test_a_pop_of_batches_waits_for_a_push(served: Served) -> None:
    name = served.make()
    request = pb.PopBatchesRequest(queue=name, wait_ms=20_000)
    waiting = served.queue.PopBatches.future(request)
    eventually(lambda: served.describe(name).waiting_pops == 1)
    push(served, name, b"here")
    assert bodies(list(waiting.result(timeout=100).lots)) == [b"here"]


@pytest.mark.parametrize("method", ["Push", "PushBatch", "Pop", "AckBatches", "CreateQueue"])
def test_malformed_bytes_are_refused_with_a_code(served: Served, method: str) -> None:
    call: Any = served.channel.unary_unary(f"/weft.v1.Queue/{method}")
    for raw in (b"\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\x12\x05\x0a"):
        refused(functools.partial(call, raw), errors.InvalidArgument, "not a message")


def test_malformed_messages_inside_a_push_are_refused(served: Served) -> None:
    call: Any = served.channel.unary_unary("/weft.v1.Queue/Push")
    refused(lambda: call(b"\x12\x02\x0a\x09"), errors.InvalidArgument, "OutMessage")


def test_an_unknown_method_is_unimplemented(served: Served) -> None:
    call: Any = served.channel.unary_unary("/weft.v1.Queue/Nothing")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"")
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
