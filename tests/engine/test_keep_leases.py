"""A queue with `keep_leases`: a crash, or a failover, ends no lease."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig
from weft.errors import InvalidArgument
from weft.persistence import layout
from weft.proto import wire
from weft.proto.settings import Settings


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.create("kept", keep_leases=True, lease_ms=10_000)
    made.create("plain", lease_ms=10_000)
    return made


def records(rig: Rig) -> int:
    return sum(1 for _ in rig.store.scan(*layout.kind_range(layout.LEASE)))


def test_receipts_stay_valid_and_nothing_is_lent_twice(rig: Rig) -> None:
    for name in ("kept", "plain"):
        rig.push(name, b"1", b"2")
    kept, plain = rig.pop("kept", 2), rig.pop("plain", 2)
    assert records(rig) == 1
    rig.ack("kept", kept[0])
    rig.crash()
    assert rig.counts("kept") == (0, 1, 0)
    assert rig.pop("kept", 2) == []
    assert [each.deliveries for each in rig.pop("plain", 2)] == [1, 1]
    assert rig.ack("plain", *plain).lost == [0, 1]
    assert rig.ack("kept", kept[0]).done == 0
    assert rig.ack("kept", kept[1]) == wire.Settled(1, 0, [])
    assert rig.counts("kept") == (0, 0, 0)
    assert records(rig) == 0


def test_a_kept_lease_ends_in_time_and_counts(rig: Rig) -> None:
    rig.push("kept", b"1")
    (message,) = rig.pop("kept")
    rig.crash()
    rig.advance(9_000)
    assert rig.pop("kept") == []
    assert rig.extend("kept", 10_000, message).lost == []
    rig.crash()
    rig.advance(9_000)
    assert rig.pop("kept") == []
    rig.advance(2_000)
    (again,) = rig.pop("kept")
    assert again.deliveries == 2
    assert rig.ack("kept", message).lost == [0]
    rig.nack("kept", again)
    rig.crash()
    assert [each.deliveries for each in rig.pop("kept")] == [3]


def test_a_commit_survives_the_failover_of_its_leases(rig: Rig) -> None:
    rig.push("kept", b"1")
    (message,) = rig.pop("kept")
    rig.crash()
    acks = [wire.CommitAck("kept", [message.receipt])]
    answer = rig.call(wire.Commit(message.lent.partition, 5, 1, acks, [], []))
    assert answer == wire.Committed(False, [])
    assert rig.counts("kept") == (0, 0, 0)


def test_the_setting_is_fixed_and_has_a_request_of_its_own(rig: Rig) -> None:
    for name, wanted in (("kept", False), ("plain", True)):
        with pytest.raises(InvalidArgument, match="cannot be changed"):
            rig.update(name, keep_leases=wanted)
    for other in ("ordered", "grouped"):
        with pytest.raises(InvalidArgument, match="always kept"):
            Settings(keep_leases=True, **{other: True}).check()  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="create_kept_queue"):
        rig.call(wire.CreateQueue("other", Settings(keep_leases=True)))
    with pytest.raises(InvalidArgument, match="create_kept_queue"):
        rig.call(wire.CreateKeptQueue("other", Settings()))
