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
from weft.proto import weft_pb2 as pb
from weft.proto import wire
from weft.proto.settings import SHARE_WHOLE, Settings
from weft.server.edges import grpc_receipts, grpc_translation
from weft.server.edges.grpc_receipts import Grouped


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


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), float("inf"), 0.0001])
def test_a_wrong_share_is_refused(share: float) -> None:
    with pytest.raises(InvalidArgument, match="share must be 0"):
        grpc_translation.settings_in(pb.Settings(share=share))
    with pytest.raises(InvalidArgument, match="share must be 0"):
        grpc_translation.update_queue(pb.UpdateQueueRequest(queue="q", share=share))


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
    for fixed in ("ordered", "grouped", "keep_leases", "kind"):  # decided at creation
        del changes[fixed]
    request = pb.UpdateQueueRequest(queue="q", **changes | {"share": settings.share / SHARE_WHOLE})
    assert grpc_translation.update_queue(request) == wire.UpdateQueue("q", changes)


@pytest.mark.parametrize(
    ("said", "meant"),
    [(pb.ListQueuesRequest(), 1000), (pb.ListQueuesRequest(limit=5), 5)],
)
def test_list_limit(said: pb.ListQueuesRequest, meant: int) -> None:
    assert grpc_translation.list_queues(said).limit == meant


@pytest.mark.parametrize(
    ("turn", "info"),
    [
        (
            grpc_translation.queue_description,
            numbered(wire.QueueInfo, settings=Settings(), missing_nodes=["m"], topics=["t"]),
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


def test_the_receipts_of_two_leases_may_alternate() -> None:
    """The largest call is grouped at once: its cost does not grow with the square of its size."""
    leases = [(1, 2, 3), (1, 2, 4)]
    indexes = range(limits.RECEIPTS_MAX // 2)
    raw = [grpc_receipts.pack(lease, index) for index in indexes for lease in leases]
    whole = [(0, limits.RECEIPTS_MAX // 2)]
    assert Grouped.of(raw).receipts() == [wire.Receipt(*lease, whole) for lease in leases]
    lots = [
        pb.LotPart(receipt=grpc_receipts.pack_lot(lease, index, 1))
        for index in indexes
        for lease in leases
    ]
    assert Grouped.of((), lots).receipts() == [wire.Receipt(*lease, whole) for lease in leases]


def test_too_many_receipts() -> None:
    with pytest.raises(TooLarge, match="65536 receipts"):
        Grouped.of([b""] * (limits.RECEIPTS_MAX + 1))


@given(some.sets(some.integers(0, limits.BATCH_COUNT_MAX - 1)))
def test_ranges_cover_just_the_indexes(indexes: set[int]) -> None:
    runs = grpc_receipts.ranges(indexes)
    assert [i for first, count in runs for i in range(first, first + count)] == sorted(indexes)
    assert all(a + n < b for (a, n), (b, _) in itertools.pairwise(runs))
