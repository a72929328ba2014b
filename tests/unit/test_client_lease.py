"""Leases: messages grouped into receipts, settled once."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import errors
from weft.client.consumer import lease as leases
from weft.client.consumer.lease import Settler
from weft.client.consumer.message import unpack
from weft.client.consumer.sync_message import Message
from weft.ids import MessageId
from weft.proto import wire

ANONYMOUS = cast(Settler, None)


def lend(count: int, *, first: int = 0, lsn: int = 1, nonce: int = 9) -> list[Message]:
    frame = wire.encode(
        wire.Payload([b"%d" % n for n in range(count)], [{"n": str(n)} for n in range(count)])
    )
    one = wire.Lent(3, lsn, nonce, first, count, 5, 6, 2, 1_500, 30_000, 4, "why")
    return unpack(Message, "q", [one], [frame], ANONYMOUS)[0]


def test_a_message_knows_its_place() -> None:
    message = lend(3, first=10)[1]
    assert message.id == MessageId.of(3, 5, 6, 11)
    assert (message.body, message.headers, message.key) == (b"1", {"n": "1"}, None)
    assert (message.deliveries, message.pushed_at, message.priority) == (2, 1.5, 4)
    assert (message.queue, message.lease_ms, message.dead_reason) == ("q", 30_000, "why")
    assert str(message.id) in repr(message)


def test_a_whole_lease_is_one_receipt_without_ranges() -> None:
    (claim,) = leases.claims("q", lend(1000))
    assert claim.receipt == wire.Receipt(3, 1, 9)


def test_a_list_that_was_changed_is_not_taken_for_what_came() -> None:
    def receipts(messages: list[Message]) -> list[list[tuple[int, int]]]:
        return [claim.receipt.ranges for claim in leases.claims("q", messages)]

    came = lend(4)
    assert receipts(came) == [[]]
    assert receipts(came[:3]) == [[(0, 3)]]
    other = lend(4, lsn=2)
    came[3] = other[0]
    assert sorted(receipts(came)) == [[(0, 1)], [(0, 3)]]
    dropped = lend(4)
    del dropped[1]
    assert receipts(dropped) == [[(0, 1), (2, 2)]]
    emptied = lend(4)
    emptied.clear()
    assert receipts(emptied) == []
    assert receipts(copy.copy(lend(4))) == [[]]


def test_the_same_message_twice_does_not_stand_for_another() -> None:
    first, _ = lend(2)
    (claim,) = leases.claims("q", [first, first])
    assert claim.receipt.ranges == [(0, 1)]


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_exactly_the_messages(indexes: set[int]) -> None:
    ranges = leases.runs(indexes)
    named = [index for start, length in ranges for index in range(start, start + length)]
    assert named == sorted(indexes)
    for (start, length), (following, _) in pairwise(ranges):
        assert start + length < following, "neighbours are one range"


def test_messages_of_several_leases_are_grouped() -> None:
    whole, part = lend(4, lsn=1), lend(4, lsn=2, first=8)
    claims = leases.claims("q", [part[0], *whole, part[1], part[3]])
    receipts = {claim.receipt.lsn: claim.receipt.ranges for claim in claims}
    assert receipts == {1: [], 2: [(8, 2), (11, 1)]}


def test_settled_messages_are_refused_and_the_rest_is_named_by_ranges() -> None:
    messages = lend(5)
    leases.close(leases.claims("q", messages[1:3]))
    with pytest.raises(errors.AlreadySettled, match="1 message was"):
        leases.claims("q", messages[2:])
    (rest,) = leases.claims("q", [messages[0], *messages[3:]])
    assert rest.receipt.ranges == [(0, 1), (3, 2)]
    assert leases.unsettled(messages[0]._lease).receipt == rest.receipt
    assert messages[0]._lease.open == 3


def test_what_is_not_this_queues_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="queue q"):
        leases.claims("other", lend(1))
    with pytest.raises(errors.UsageError, match="not leased"):
        leases.claims("q", lend(1, nonce=0))


def test_a_lost_lease_names_how_many_and_the_first() -> None:
    messages = lend(10)
    error = leases.lost_error(leases.claims("q", messages))
    assert "10 messages" in error.message
    assert str(messages[0].id) in error.message
    assert str(messages[9].id) not in error.message


def test_frames_that_do_not_fit_are_a_protocol_error() -> None:
    one = wire.Lent(3, 1, 9, 0, 2, 5, 6, 1, 0, 30_000)
    frame = wire.encode(wire.Payload([b"only one"]))
    for frames in ([], [frame], [b"\xc1"]):
        with pytest.raises(errors.ProtocolError):
            unpack(Message, "q", [one], frames, ANONYMOUS)
