"""The wire and the store are plain msgpack: an independent library reads them."""

from __future__ import annotations

import msgpack

from weft.persistence import layout
from weft.proto import wire
from weft.server.engine import head
from weft.server.engine.head import Head, Part


def test_a_request_is_an_array_that_names_its_verb() -> None:
    frame = wire.encode(wire.Call(wire.WIRE_VERSION, 7, wire.Push("orders", 5, 6, 2, 0, 1, "key")))
    assert msgpack.unpackb(frame) == [2, 7, ["push", "orders", 5, 6, 2, 0, 1, "key"], ""]


def test_a_request_of_another_writer_is_understood() -> None:
    frame = msgpack.packb([1, 9, ["ack", "orders", [[3, 4, 5, [[0, 2]]]]]])
    call = wire.decode_call(frame)
    assert call.request == wire.Ack("orders", [wire.Receipt(3, 4, 5, [(0, 2)])])


def test_a_search_between_two_versions_is_understood() -> None:
    """Fields that a caller or a node of the previous version neither sends nor reads."""
    for packed, request in (
        (["pop", "orders", 1, 0, 0], wire.Pop("orders", 1)),
        (["where", "orders", 500], wire.Where("orders", 500)),
        (["where", "orders", 500, {"a": [1, 2]}], wire.Where("orders", 500, {"a": (1, 2)})),
        (
            ["pop", "orders", 1, 0, 0, True, True, True, "of the next version"],
            wire.Pop("orders", 1, 0, 0, True, True, True),
        ),
    ):
        assert wire.decode_call(msgpack.packb([2, 9, packed])).request == request
    old = wire.decode_reply(msgpack.packb([9, ["popped", [], 0]])).answer
    assert old == wire.Popped([])
    assert wire.decode_reply(msgpack.packb([9, ["nodes", ["a"]]])).answer == wire.Nodes(
        ["a"], False
    )


def test_an_answer_is_an_array_too() -> None:
    frame = wire.encode(wire.Reply(7, wire.Failure("QUEUE_NOT_FOUND", "none", False)))
    assert msgpack.unpackb(frame) == [7, ["failure", "QUEUE_NOT_FOUND", "none", False]]


def test_a_payload_is_columns_of_bytes() -> None:
    packed = msgpack.packb([[b"one", b"two"], [{"k": "v"}, None], None])
    payload = wire.decode_payload(packed)
    assert payload == wire.Payload([b"one", b"two"], [{"k": "v"}, None], None)
    assert wire.encode(payload) == packed


def test_a_stored_head_can_be_read_without_weft() -> None:
    stored = Head(9, 5, 6, 3, 100, 12345, 0, None, [Part(0, 3, 9)])
    record = layout.seal(layout.head(1, 2), head.encode(stored))
    assert msgpack.unpackb(record[8:]) == [
        9, 5, 6, 3, 100, 12345, 0, None, [[0, 3, 9, 0, 0, "", "", 0, 0, 0]], None, None, None,
        None,
    ]  # fmt: skip
    of_the_version_before = msgpack.packb(
        [9, 5, 6, 3, 100, 12345, 0, None, [[0, 3, 9, 0, 0, "", "", 0]]]
    )
    assert head.decode(of_the_version_before) == stored
