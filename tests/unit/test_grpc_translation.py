"""The proto and the wire structs agree: every field, both ways."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from google.protobuf.message import Message as Proto
from hypothesis import given
from hypothesis import strategies as some

from weft import limits
from weft.errors import InvalidArgument, TooLarge
from weft.ids import MessageId
from weft.proto import weft_pb2 as pb
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.edges import grpc_receipts, grpc_translation
from weft.server.edges.grpc_receipts import Grouped

DRAWN = iter([(7, 1), (7, 2), (7, 3), (7, 4)])
LENT = wire.Lent(
    partition=3, lsn=9, nonce=11, first=2, count=2, producer=5, batch=6, deliveries=4,
    pushed_ms=1000, lease_ms=2000, priority=8, reason="why",
)  # fmt: skip


def numbered(kind: type[Any], **known: Any) -> Any:
    """A struct with all fields different, so that swapped fields are detected."""
    values = {
        field.name: known.get(field.name, _example(field.type, number))
        for number, field in enumerate(msgspec.structs.fields(kind), 1)
    }
    return kind(**values)


def _example(kind: Any, number: int) -> Any:
    return True if kind is bool else number if kind is int else f"text {number}"


def values(proto: Proto) -> dict[str, Any]:
    return {field.name: value for field, value in proto.ListFields()}


def test_unset_settings_are_the_defaults() -> None:
    assert grpc_translation.settings_in(pb.Settings()) == Settings()


def test_settings_both_ways() -> None:
    settings = numbered(Settings)
    assert grpc_translation.settings_in(grpc_translation.settings_out(settings)) == settings


def test_a_dedup_window_of_nothing_is_not_the_default() -> None:
    assert grpc_translation.settings_in(pb.Settings(dedup_window_ms=0)).dedup_window_ms == 0


def test_update_names_what_was_set_and_nothing_else() -> None:
    request = pb.UpdateQueueRequest(queue="q", max_deliveries=0, dead_letter="")
    assert grpc_translation.update_queue(request) == wire.UpdateQueue(
        "q", {"max_deliveries": 0, "dead_letter": ""}
    )


def test_update_knows_every_setting() -> None:
    settings = numbered(Settings)
    changes = msgspec.structs.asdict(settings)
    del changes["ordered"]  # decided at creation
    request = pb.UpdateQueueRequest(queue="q", **changes)
    assert grpc_translation.update_queue(request) == wire.UpdateQueue("q", changes)


@pytest.mark.parametrize(
    ("said", "meant"),
    [(pb.ListQueuesRequest(), 1000), (pb.ListQueuesRequest(limit=5), 5)],
)
def test_list_limit(said: pb.ListQueuesRequest, meant: int) -> None:
    assert grpc_translation.list_queues(said).limit == meant


def test_pop_and_peek_of_one_when_nothing_is_said() -> None:
    assert grpc_translation.pop(pb.PopRequest(queue="q"), 5) == wire.Pop("q", 1, 5, 0)
    assert grpc_translation.peek(pb.PeekRequest(queue="q")) == wire.Peek("q", 1)


@pytest.mark.parametrize(
    ("turn", "info"),
    [
        (
            grpc_translation.queue_description,
            numbered(wire.QueueInfo, settings=Settings(), missing_nodes=["m"]),
        ),
        (grpc_translation.status, numbered(wire.StatusInfo, full_peers=["m"])),
        (
            grpc_translation.view,
            numbered(wire.ViewInfo, nodes=[numbered(wire.NodeInfo)], primaries=[0, 0]),
        ),
        (
            grpc_translation.places,
            numbered(
                wire.ClusterInfo,
                nodes=[numbered(wire.NodeInfo)],
                voters=["n"],
                joining=["m"],
                places=[wire.PlaceInfo(3, ["n"], ["m"], "active", {"m": 2})],
            ),
        ),
    ],
)
def test_every_field_of_an_answer_arrives(turn: Any, info: Any) -> None:
    proto = values(turn(info))
    assert proto.keys() == {field.name for field in msgspec.structs.fields(type(info))}
    for name, value in proto.items():
        if name not in ("settings", "nodes", "places"):
            assert value == getattr(info, name), name


def test_a_node_of_the_view() -> None:
    info = numbered(wire.ViewInfo, nodes=[wire.NodeInfo("n", "g", "z", "up")], primaries=[])
    assert values(grpc_translation.view(info).nodes[0]) == {
        "id": "n", "grpc": "g", "zmq": "z", "state": "up", "voter": True, "alive": True,
    }  # fmt: skip


def test_push_by_column() -> None:
    request = pb.PushRequest(
        queue="q",
        messages=[
            pb.OutMessage(body=b"a"),
            pb.OutMessage(body=b"b", headers={"h": "v"}),
            pb.OutMessage(body=b"c", key=""),
        ],
        producer=5,
        batch=0,
        delay_ms=1,
        priority=2,
        dedup_key="",
    )
    asked, frame = grpc_translation.push(request, DRAWN)
    assert asked == wire.Push("q", 5, 0, 3, 1, 2, "")
    assert wire.decode_payload(frame) == wire.Payload(
        [b"a", b"b", b"c"], [None, {"h": "v"}, None], [None, None, ""]
    )


def test_push_without_headers_or_keys_has_one_column() -> None:
    _, frame = grpc_translation.push(pb.PushRequest(messages=[pb.OutMessage(body=b"a")]), DRAWN)
    assert wire.decode_payload(frame) == wire.Payload([b"a"])


def test_push_without_a_producer_draws_its_own() -> None:
    drawn = iter([(7, 1), (7, 2)])
    pushes = [grpc_translation.push(pb.PushRequest(queue="q"), drawn)[0] for _ in range(2)]
    assert [(push.producer, push.batch) for push in pushes] == [(7, 1), (7, 2)]
    assert pushes[0].dedup_key is None


@pytest.mark.parametrize("half", [pb.PushRequest(producer=1), pb.PushRequest(batch=1)])
def test_push_with_half_a_name_is_refused(half: pb.PushRequest) -> None:
    with pytest.raises(InvalidArgument, match="producer and batch go together"):
        grpc_translation.push(half, DRAWN)


def test_pushed_names_each_message() -> None:
    answer = grpc_translation.pushed(wire.Pushed(1, 2, 3, 2, True, "disk"))
    assert answer == pb.PushResponse(
        ids=[str(MessageId.of(1, 2, 3, 0)), str(MessageId.of(1, 2, 3, 1))],
        duplicate=True,
        durability="disk",
    )


def test_messages_of_a_lent_range() -> None:
    frame = wire.encode(wire.Payload([b"a", b"b"], [None, {"h": "v"}], ["", None]))
    one, two = grpc_translation.messages([LENT], [frame])
    assert one == pb.Message(
        id=str(MessageId.of(3, 5, 6, 2)), body=b"a", key="",
        receipt=grpc_receipts.pack((3, 9, 11), 2), deliveries=4, pushed_ms=1000, lease_ms=2000,
        priority=8, dead_reason="why",
    )  # fmt: skip
    assert (two.body, dict(two.headers), two.HasField("key")) == (b"b", {"h": "v"}, False)
    assert grpc_receipts.unpack(two.receipt) == ((3, 9, 11), 3)


def test_a_peeked_message_has_no_receipt() -> None:
    shown = msgspec.structs.replace(LENT, nonce=0, count=1)
    (message,) = grpc_translation.messages([shown], [wire.encode(wire.Payload([b"a"]))])
    assert message.receipt == b""


def test_a_receipt_is_20_bytes_and_holds_the_largest_numbers() -> None:
    lease = (2**16 - 1, 2**64 - 1, 2**64 - 1)
    receipt = grpc_receipts.pack(lease, limits.BATCH_COUNT_MAX - 1)
    assert len(receipt) == 20
    assert grpc_receipts.unpack(receipt) == (lease, limits.BATCH_COUNT_MAX - 1)


def test_receipts_are_grouped_by_lease() -> None:
    one, two = (1, 2, 3), (1, 2, 4)
    raw = [
        grpc_receipts.pack(one, 5),
        b"short",
        grpc_receipts.pack(two, 0),
        grpc_receipts.pack(one, 4),
    ]
    grouped = Grouped.of([*raw, raw[0]])
    assert grouped.receipts() == [
        wire.Receipt(*one, [(4, 2)]),
        wire.Receipt(*two, [(0, 1)]),
    ]
    assert grouped.malformed == [b"short"]
    assert grouped.count() == 3
    assert grouped.messages([0]) == [(one, 5), (one, 4)]


def test_too_many_receipts() -> None:
    with pytest.raises(TooLarge, match="65536 receipts"):
        Grouped.of([b""] * (limits.RECEIPTS_MAX + 1))


@given(some.sets(some.integers(0, limits.BATCH_COUNT_MAX - 1)))
def test_ranges_cover_just_the_indexes(indexes: set[int]) -> None:
    runs = grpc_receipts.ranges(indexes)
    assert [i for first, count in runs for i in range(first, first + count)] == sorted(indexes)
    assert all(a + n < b for (a, n), (b, _) in itertools.pairwise(runs))
