"""Messages translated by hand are what the generated classes make of the same bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.unit import proto_reference as reference
from tests.unit.stepped_call import RecordingNode, services
from weft import limits
from weft.errors import InvalidArgument, TooLarge
from weft.ids import MessageId
from weft.proto import weft_pb2 as pb
from weft.proto import wire
from weft.server.edges import grpc_pop, grpc_push, grpc_receipts
from weft.server.edges.delivery import Delivery, LotColumns, MessageColumns
from weft.server.edges.grpc_method import Asked

#: A busy machine may pause a test for longer than the usual deadline.
patient = settings(deadline=None)
SERVICES = services(RecordingNode())
LENT = wire.Lent(
    partition=3, lsn=9, nonce=11, first=2, count=2, producer=5, batch=6, deliveries=4,
    pushed_ms=1000, lease_ms=2000, priority=8, reason="why",
)  # fmt: skip
#: A field that no message of weft.proto has: number 15, a string.
UNKNOWN = b"\x7a\x03new"

#: Lengths around those where the length of a length grows.
bodies = some.one_of(
    some.binary(max_size=20),
    some.sampled_from([0, 1, 127, 128, 129, 16_383, 16_384]).map(lambda size: b"x" * size),
)
texts = some.text(max_size=5)
headers = some.dictionaries(texts, texts, max_size=2)
out_messages = some.builds(
    lambda body, headers, key: pb.OutMessage(body=body, headers=headers, key=key),
    bodies, some.one_of(some.just({}), headers), some.one_of(some.none(), texts),
)  # fmt: skip
plain_messages = some.builds(lambda body: pb.OutMessage(body=body), bodies)
batches = some.one_of(some.lists(plain_messages, max_size=8), some.lists(out_messages, max_size=8))


def pushed_as(message: bytes) -> tuple[wire.AnyRequest, wire.Payload]:
    asked = grpc_push.ask_push(SERVICES, message, None)
    (frame,) = asked.payload
    return asked.request, wire.decode_payload(frame)


def referred_to(request: pb.PushRequest) -> tuple[wire.AnyRequest, wire.Payload]:
    asked, frame = reference.push(request, iter([(0, 0)]))
    return asked, wire.decode_payload(frame)


@patient
@given(batches, texts, some.integers(-5, 5), some.one_of(some.none(), texts))
def test_a_push_by_hand_is_the_push(
    messages: list[pb.OutMessage], queue: str, number: int, dedup_key: str | None
) -> None:
    request = pb.PushRequest(
        queue=queue, messages=messages, producer=5, batch=7, delay_ms=number, priority=number,
        dedup_key=dedup_key,
    )  # fmt: skip
    assert pushed_as(request.SerializeToString()) == referred_to(request)


@patient
@given(out_messages, some.sampled_from([b"", UNKNOWN]), some.sampled_from([b"", UNKNOWN]))
def test_unknown_fields_are_tolerated(one: pb.OutMessage, inner: bytes, outer: bytes) -> None:
    message = one.SerializeToString() + inner
    raw = b"\x12" + _varint(len(message)) + message + b"\x18\x05\x20\x07" + outer
    asked, payload = pushed_as(raw)
    assert asked == wire.Push("", 5, 7, 1)
    assert payload == reference.payload([one])


def _varint(value: int) -> bytes:
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(high) if high else bytes([low])


@patient
@given(batches, some.data())
def test_damaged_bytes_are_refused_or_mean_the_same(
    messages: list[pb.OutMessage], data: some.DataObject
) -> None:
    raw = bytearray(pb.PushRequest(messages=messages, producer=1, batch=1).SerializeToString())
    for _ in range(data.draw(some.integers(1, 3))):
        raw[data.draw(some.integers(0, len(raw) - 1))] = data.draw(some.integers(0, 255))
    damaged = bytes(raw[: data.draw(some.integers(0, len(raw)))])
    try:
        expected = referred_to(pb.PushRequest.FromString(damaged))
    except (DecodeError, InvalidArgument):
        with pytest.raises(InvalidArgument):
            pushed_as(damaged)
        return
    found = pushed_as(damaged)
    unnamed = [
        msgspec.structs.replace(each, producer=0, batch=0) for each in (found[0], expected[0])
    ]
    assert unnamed[0] == unnamed[1]
    assert found[1] == expected[1]


def test_push_without_a_producer_draws_its_own() -> None:
    raw = pb.PushRequest(queue="q").SerializeToString()
    one, two = (grpc_push.ask_push(SERVICES, raw, None).request for _ in range(2))
    assert isinstance(one, wire.Push)
    assert isinstance(two, wire.Push)
    assert (one.producer, one.batch + 1) == (two.producer, two.batch)
    assert one.dedup_key is None


@pytest.mark.parametrize("half", [pb.PushRequest(producer=1), pb.PushRequest(batch=1)])
def test_push_with_half_a_name_is_refused(half: pb.PushRequest) -> None:
    with pytest.raises(InvalidArgument, match="producer and batch go together"):
        pushed_as(half.SerializeToString())


@pytest.mark.parametrize("count", [0, 1, 2, limits.BATCH_COUNT_MAX])
def test_ids_by_hand_are_the_ids(count: int) -> None:
    answer = wire.Pushed(65_535, 2**56 - 1, 2**40 - 1, count, count == 2, "disk")
    raw = grpc_push.reply_push(SERVICES, Asked(wire.Push("q", 1, 1, 1)), answer, ())
    assert pb.PushResponse.FromString(raw) == reference.pushed(answer)


# --- columns ----------------------------------------------------------------------------------


def columns_of(messages: list[pb.OutMessage]) -> pb.Columns:
    return pb.Columns(
        bodies=[each.body for each in messages],
        headers=[pb.Headers(values=each.headers) for each in messages],
        keys=[each.key for each in messages],
    )


@patient
@given(some.lists(out_messages, max_size=8))
def test_a_push_by_column_is_the_push(messages: list[pb.OutMessage]) -> None:
    request = pb.PushBatchRequest(
        queue="q", messages=columns_of(messages), producer=5, batch=7, delay_ms=1, priority=2,
        dedup_key="",
    )  # fmt: skip
    asked = grpc_push.ask_push_batch(SERVICES, request.SerializeToString(), None)
    assert asked.request == wire.Push("q", 5, 7, len(messages), 1, 2, "")
    for message in messages:
        if not message.key:
            message.ClearField("key")  # "" in the column
    assert wire.decode_payload(asked.payload[0]) == reference.payload(messages)


@pytest.mark.parametrize("column", ["headers", "keys"])
def test_a_column_of_another_length_is_refused(column: str) -> None:
    values: dict[str, Any] = {"headers": [pb.Headers()], "keys": ["k"]}
    request = pb.PushBatchRequest(
        queue="q", messages=pb.Columns(bodies=[b"1", b"2"], **{column: values[column]})
    )
    with pytest.raises(InvalidArgument, match=f"the column {column} has 1 values"):
        grpc_push.ask_push_batch(SERVICES, request.SerializeToString(), None)


def lent_of(messages: list[pb.OutMessage], **facts: Any) -> tuple[wire.Lent, bytes]:
    lent = msgspec.structs.replace(LENT, count=len(messages), **facts)
    return lent, wire.encode(reference.payload(messages))


#: Leases as a pop lends them: each has messages.
leases = some.lists(
    some.builds(
        lent_of,
        some.one_of(
            some.lists(plain_messages, min_size=1, max_size=6),
            some.lists(out_messages, min_size=1, max_size=6),
        ),
        nonce=some.sampled_from([0, 1, 2**63]),
        first=some.sampled_from([0, 255, 256, 4000]),
        due_ms=some.sampled_from([0, 1]),
        deliveries=some.sampled_from([0, 1, 300]),
    ),
    max_size=3,
)


@patient
@given(leases)
def test_messages_by_hand_are_the_messages(found: list[tuple[wire.Lent, bytes]]) -> None:
    lent, frames = [one for one, _ in found], [frame for _, frame in found]
    delivery = Delivery(lent, frames, MessageColumns)
    page = delivery.page(limits.GRPC_BYTES_MAX)
    expected = pb.PopResponse(messages=reference.messages(lent, frames))
    assert pb.PopResponse.FromString(page) == expected
    assert len(page) == expected.ByteSize()
    assert len(delivery.unsent()) == len(lent)
    delivery.page_sent()
    assert delivery.page(limits.GRPC_BYTES_MAX) == b""
    assert delivery.unsent() == []


def messages_of(lot: pb.Lot) -> list[pb.Message]:
    """The messages of a lot, one by one, as the documents derive them."""
    columns, first = lot.messages, MessageId.parse(lot.first_id)
    nothing = [pb.Headers()] * len(columns.bodies)
    keys = columns.keys or [""] * len(columns.bodies)
    lease = grpc_receipts._lot_shape.unpack(lot.receipt)[:3]
    return [
        pb.Message(
            id=str(MessageId(first + place)), body=body, headers=each.values,
            key=key or None, receipt=grpc_receipts.pack(lease, MessageId(first + place).index),
            deliveries=lot.deliveries, pushed_ms=lot.pushed_ms, lease_ms=lot.lease_ms,
            priority=lot.priority, dead_reason=lot.dead_reason, dead_origin=lot.dead_origin,
            dead_deliveries=lot.dead_deliveries, due_ms=lot.due_ms,
        )
        for place, (body, each, key) in enumerate(
            zip(columns.bodies, columns.headers or nothing, keys, strict=True)
        )
    ]  # fmt: skip


@patient
@given(leases, some.integers(1_000, 40_000))
def test_lots_in_pages_are_the_messages(
    found: list[tuple[wire.Lent, bytes]], bytes_max: int
) -> None:
    found = [(msgspec.structs.replace(one, nonce=one.nonce or 5), frame) for one, frame in found]
    lent, frames = [one for one, _ in found], [frame for _, frame in found]
    expected = reference.messages(lent, frames)
    for message in expected:
        if not message.key:
            message.ClearField("key")
    delivery, got = Delivery(lent, frames, LotColumns), list[pb.Message]()
    try:
        while page := delivery.page(bytes_max):
            assert len(page) <= bytes_max
            for lot in pb.PopBatchesResponse.FromString(page).lots:
                got += messages_of(lot)
            delivery.page_sent()
    except TooLarge:
        assert len(expected[len(got)].body) + 200 > bytes_max
        assert got == expected[: len(got)]
        return
    assert got == expected


@patient
@given(leases, some.integers(1_000, 40_000))
def test_pages_fit_and_what_is_unsent_is_the_rest(
    found: list[tuple[wire.Lent, bytes]], bytes_max: int
) -> None:
    lent, frames = [one for one, _ in found], [frame for _, frame in found]
    expected = reference.messages(lent, frames)
    delivery, got = Delivery(lent, frames, MessageColumns), list[pb.Message]()
    try:
        while page := delivery.page(bytes_max):
            assert len(page) <= bytes_max
            got += pb.PopResponse.FromString(page).messages
            delivery.page_sent()
            rest = sum(
                sum(count for _, count in receipt.ranges) or one.count
                for receipt, one in zip(reversed(delivery.unsent()), reversed(lent), strict=False)
            )
            assert rest == len(expected) - len(got)
    except TooLarge:
        size = len(pb.PopResponse(messages=[expected[len(got)]]).SerializeToString())
        assert size > bytes_max
        assert got == expected[: len(got)]
        return
    assert got == expected


def test_a_message_too_large_says_how_large() -> None:
    message = pb.OutMessage(body=bytes(5000))
    lent, frame = lent_of([message])
    delivery = Delivery([lent], [frame], MessageColumns)
    size = len(delivery.page(10_000))
    with pytest.raises(TooLarge, match=f"max_bytes of at least {size}"):
        delivery.page(size - 1)
    assert len(delivery.page(size)) == size


def test_pop_and_peek_of_one_when_nothing_is_said() -> None:
    pop = grpc_pop.ask_pop(SERVICES, pb.PopRequest(queue="q", wait_ms=5).SerializeToString(), None)
    assert pop.request == wire.Pop("q", 1, 5, 0)
    peek = grpc_pop.ask_peek(SERVICES, pb.PeekRequest(queue="q").SerializeToString(), None)
    assert peek.request == wire.Peek("q", 1)
    lots = grpc_pop.ask_pop_batches(SERVICES, pb.PopBatchesRequest().SerializeToString(), None)
    assert lots.request == wire.Pop("", 1000)


@pytest.mark.parametrize(
    ("wanted", "remaining", "waits"),
    [(0, 1.0, 0), (500, None, 500), (500, 10.0, 500), (5000, 1.0, 900), (5000, 0.05, 0)],
)
def test_a_pop_waits_no_longer_than_its_call(
    wanted: int, remaining: float | None, waits: int
) -> None:
    assert grpc_pop.wait_ms(wanted, remaining) == waits
