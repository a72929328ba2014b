"""Produce: a stream of pushes with receipts in order, over a real node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.duplex import Duplex
from tests.contract.served import Served, eventually, refused
from weft import errors, limits
from weft.ids import MessageId
from weft.proto import weft_pb2 as pb


def single(name: str, body: bytes, **fields: Any) -> pb.ProduceRequest:
    return pb.ProduceRequest(queue=name, message=pb.OutMessage(body=body), **fields)


def batch(name: str, *bodies: bytes, **fields: Any) -> pb.ProduceRequest:
    return pb.ProduceRequest(queue=name, messages=pb.Columns(bodies=bodies), **fields)


def produced(served: Served, *requests: pb.ProduceRequest) -> list[pb.ProduceReceipt]:
    """The receipts of a stream that sends these requests and ends."""
    stream = Duplex(served.queue.Produce)
    stream.send(*requests)
    stream.end()
    return [receipt for response in stream.rest() for receipt in response.receipts]


def test_each_request_has_its_receipt_in_order(served: Served) -> None:
    name = served.make()
    receipts = produced(
        served, single(name, b"0"), batch("", b"1", b"2"), single("", b"3"), single("", b"4")
    )
    assert [receipt.count for receipt in receipts] == [1, 2, 1, 1]
    assert not any(receipt.HasField("refusal") for receipt in receipts)
    ids = [
        str(MessageId(MessageId.parse(receipt.first_id) + place))
        for receipt in receipts
        for place in range(receipt.count)
    ]
    stored = {message.id: message.body for message in served.pop(name, 9)}
    assert [stored[each] for each in ids] == [b"%d" % number for number in range(5)]
    assert {receipt.durability for receipt in receipts} == {"os"}


def test_receipts_come_while_the_stream_is_open(served: Served) -> None:
    name = served.make()
    stream = Duplex(served.queue.Produce)
    for number in range(3):
        stream.send(single(name, b"%d" % number))
        (receipt,) = stream.next().receipts
        assert receipt.count == 1
    assert served.describe(name).ready == 3
    stream.end()
    assert stream.rest() == []


def test_a_message_keeps_its_headers_and_its_key(served: Served) -> None:
    name = served.make()
    message = pb.OutMessage(body=b"x", headers={"h": "v"}, key="")
    produced(served, pb.ProduceRequest(queue=name, message=message, priority=3))
    (got,) = served.pop(name)
    assert (dict(got.headers), got.HasField("key"), got.priority) == ({"h": "v"}, True, 3)


def test_thousands_of_single_messages_are_all_stored(served: Served) -> None:
    name = served.make()
    bodies = [b"%d" % number for number in range(3000)]
    receipts = produced(served, *(single(name, body) for body in bodies))
    assert len({receipt.first_id for receipt in receipts}) == 3000
    stored: dict[str, bytes] = {}
    while messages := served.pop(name, 4000):  # one pop takes a bounded number of batches
        stored |= {message.id: message.body for message in messages}
    assert [stored[receipt.first_id] for receipt in receipts] == bodies


def test_a_refused_request_does_not_stop_the_others(served: Served) -> None:
    name = served.make()
    receipts = produced(
        served,
        single(name, b"1"),
        single(name, bytes(limits.BODY_BYTES_MAX + 1)),
        single("nowhere", b""),
        batch(name, *[b""] * (limits.BATCH_COUNT_MAX + 1)),
        batch(name),
        single(name, b"2", priority=99),
        single(name, b"3", producer=1),
        pb.ProduceRequest(queue=name, messages=pb.Columns(bodies=[b"a"], keys=["k", "l"])),
        single(name, b"4"),
    )
    codes = [receipt.refusal.code for receipt in receipts]
    assert codes == [
        "", "TOO_LARGE", "QUEUE_NOT_FOUND", "TOO_LARGE", "INVALID_ARGUMENT", "INVALID_ARGUMENT",
        "INVALID_ARGUMENT", "INVALID_ARGUMENT", "",
    ]  # fmt: skip
    assert "producer and batch" in receipts[6].refusal.message
    assert sorted(message.body for message in served.pop(name, 9)) == [b"1", b"4"]


def test_a_queue_fills_up_message_by_message(served: Served) -> None:
    """Merged pushes are refused one by one: as many messages fit as without merging."""
    name = served.make(max_messages=10)
    receipts = produced(served, *(single(name, b"%d" % number) for number in range(40)))
    stored = [not receipt.HasField("refusal") for receipt in receipts]
    assert stored.count(True) == 10
    refusals = {receipt.refusal.code for receipt in receipts if receipt.HasField("refusal")}
    assert refusals == {"QUEUE_FULL"}
    assert all(receipt.refusal.retriable for receipt in receipts if receipt.HasField("refusal"))
    assert served.describe(name).ready == 10


def test_a_named_push_and_a_dedup_key_are_stored_once(served: Served) -> None:
    name = served.make()
    named = single(name, b"x", producer=7, batch=1)
    keyed = single(name, b"y", dedup_key="once")
    receipts = produced(served, named, keyed, named, keyed)
    assert [receipt.duplicate for receipt in receipts] == [False, False, True, True]
    assert receipts[0].first_id == receipts[2].first_id
    assert served.describe(name).ready == 2


@pytest.mark.parametrize("raw", [b"\xff\xff", b"\x0a\x02\xff\xfe", b""])
def test_a_malformed_request_ends_the_stream_after_the_receipts(served: Served, raw: bytes) -> None:
    name = served.make()
    method: Any = served.channel.stream_stream("/weft.v1.Queue/Produce")
    stream = Duplex(method)
    stream.send(single(name, b"1").SerializeToString())
    # Read first: gRPC's C core drops unread messages of a call whose error has arrived.
    (receipt,) = pb.ProduceResponse.FromString(stream.next()).receipts
    assert receipt.count == 1
    stream.send(raw)
    refused(stream.next, errors.InvalidArgument)
    stream.end()


def test_a_malformed_message_is_refused_alone(served: Served) -> None:
    name = served.make()
    method: Any = served.channel.stream_stream("/weft.v1.Queue/Produce")
    stream = Duplex(method)
    good = single(name, b"1").SerializeToString()
    bad = b"\x0a" + bytes([len(name)]) + name.encode() + b"\x12\x02\x0a\x09"
    stream.send(good, bad, good)
    stream.end()
    receipts = [r for raw in stream.rest() for r in pb.ProduceResponse.FromString(raw).receipts]
    assert [receipt.refusal.code for receipt in receipts] == ["", "INVALID_ARGUMENT", ""]


def test_a_stream_cut_in_the_middle_stores_what_has_a_receipt(served: Served) -> None:
    name = served.make()
    stream = Duplex(served.queue.Produce)
    stream.send(single(name, b"1"), single(name, b"2"))
    count = 0
    while count < 2:
        count += len(stream.next().receipts)
    stream.cancel()
    eventually(lambda: served.edge.calls.ended.get(("Produce", "CANCELLED"), 0) > 0)
    assert served.describe(name).ready == 2


def test_a_node_that_stops_sends_the_receipts_first(own: Served) -> None:
    name = own.make()
    stream = Duplex(own.queue.Produce)
    stream.send(single(name, b"1"))
    assert len(stream.next().receipts) == 1
    own.edge.stop(60)
    refused(stream.next, errors.ShuttingDown)
    stream.end()


def test_a_stream_is_no_slow_call(served: Served) -> None:
    produced(served, single(served.make(), b"1"))
    assert "Produce" not in served.edge.calls.times
    assert served.edge.calls.ended["Produce", "OK"] > 0
