"""Tenants: pops take the messages of a queue's tenants in fair turns."""

from __future__ import annotations

from collections import Counter

import pytest

from weft.credit_buckets import CreditBuckets
from weft.errors import InvalidArgument
from weft.proto import wire
from weft.server.engine import tenants
from weft.server.engine.message_id_queue import MessageIdQueue
from weft.server.engine.tenants import QUANTUM, TenantQueue

from .rig import Rig


def tenant_of(body: bytes) -> str:
    return body.split(b"-")[0].decode()


def push(rig: Rig, tenant: str, count: int, batch: int = 1, **more: int) -> None:
    for start in range(0, count, batch):
        bodies = [f"{tenant}-{start + each}".encode() for each in range(batch)]
        rig.push("q", *bodies, tenant=tenant, **more)  # type: ignore[arg-type]


def taken(rig: Rig, limit: int, pops: int = 1) -> Counter[str]:
    found = Counter[str]()
    for _ in range(pops):
        found.update(tenant_of(body) for body in rig.bodies("q", limit))
    return found


def test_a_backlog_of_one_tenant_does_not_delay_another(rig: Rig) -> None:
    push(rig, "large", 1000, batch=50)
    push(rig, "small", 3)
    assert "small" in taken(rig, 1, pops=QUANTUM + 1)


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_tenants_get_equal_parts(rig: Rig, limit: int) -> None:
    rig.checking = False
    push(rig, "a", 1200, batch=1)
    push(rig, "b", 1200, batch=40)
    push(rig, "c", 1200, batch=200)
    found = taken(rig, limit, pops=1800 // limit)
    assert all(abs(count - sum(found.values()) / 3) <= 2 * QUANTUM for count in found.values())


def test_debt_forgiven_is_caught(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed reset, planted: the tenant with large batches gets most."""
    monkeypatch.setattr(
        tenants,
        "CreditBuckets",
        lambda period: CreditBuckets(period, rule=lambda credit, quantum, periods: quantum),
    )
    push(rig, "a", 4000, batch=10)
    push(rig, "c", 4000, batch=400)
    found = taken(rig, 4000, pops=1)
    first = Counter(tenant_of(body) for body in rig.bodies("q", 1))
    assert sum(found.values()) == 4000
    assert found["c"] > 2 * found["a"] + sum(first.values())


def test_the_order_of_a_tenant_is_kept(rig: Rig) -> None:
    push(rig, "a", 60)
    push(rig, "b", 60)
    for tenant in ("a", "b"):
        bodies = [
            body for body in [each.body for each in rig.peek("q", 200)] if tenant_of(body) == tenant
        ]
        assert bodies == [f"{tenant}-{number}".encode() for number in range(60)]
    served = rig.bodies("q", 200)
    for tenant in ("a", "b"):
        mine = [body for body in served if tenant_of(body) == tenant]
        assert mine == [f"{tenant}-{number}".encode() for number in range(60)]


def test_priorities_come_before_tenants(rig: Rig) -> None:
    push(rig, "a", 10)
    push(rig, "b", 10, priority=5)
    assert taken(rig, 10) == {"b": 10}
    assert taken(rig, 10) == {"a": 10}


def test_messages_without_a_tenant_are_one_tenant(rig: Rig) -> None:
    rig.push("q", *[b"-plain"] * 1000)
    push(rig, "a", 1000, batch=50)
    found = taken(rig, 400, pops=2)
    assert abs(found[""] - found["a"]) <= QUANTUM


def test_a_queue_without_tenants_keeps_its_class(rig: Rig) -> None:
    rig.push("q", b"x")
    queue = rig.engine.queues["q"]
    assert type(queue.ids) is MessageIdQueue
    push(rig, "a", 1)
    assert type(rig.engine.queues["q"].ids) is TenantQueue
    rig.purge("q")
    assert type(rig.engine.queues["q"].ids) is MessageIdQueue


def test_split_batches_are_charged_for_what_is_lent(rig: Rig) -> None:
    push(rig, "a", 1000, batch=1000)
    push(rig, "b", 1000, batch=1000)
    found = taken(rig, 10, pops=60)
    assert abs(found["a"] - found["b"]) <= QUANTUM


def test_nacked_delayed_and_expired_messages_return_to_their_tenant(rig: Rig) -> None:
    push(rig, "a", 3, delay_ms=1_000)
    push(rig, "b", 3)
    messages = rig.pop("q", 10)
    assert {tenant_of(each.body) for each in messages} == {"b"}
    rig.nack("q", messages[0])
    rig.advance(60_000)  # leases and delays end
    assert taken(rig, 10) == {"a": 3, "b": 3}


def test_tenants_survive_a_restart(rig: Rig) -> None:
    push(rig, "large", 1500, batch=50)
    push(rig, "small", 30)
    (message,) = rig.pop("q", 1)
    rig.nack("q", message)
    rig.restart()
    assert type(rig.engine.queues["q"].ids) is TenantQueue
    found = taken(rig, 300)
    assert found["small"] == 30
    rest = taken(rig, 4000, pops=2)
    assert found["large"] + rest["large"] == 1500


def test_dedup_and_cancel_know_tenants(rig: Rig) -> None:
    first = rig.push("q", b"a-1", batch=5, tenant="a")
    assert rig.push("q", b"a-1", batch=5, tenant="a").duplicate
    push(rig, "b", 1)
    assert rig.cancel("q", first) == 1
    assert taken(rig, 10) == {"b": 1}


def test_dead_letters_keep_their_order_in_an_ordered_queue(rig: Rig) -> None:
    rig.create("dead", ordered=True)
    rig.update("q", max_deliveries=1, dead_letter="dead")
    push(rig, "a", 2)
    for message in rig.pop("q", 2):
        rig.nack("q", message)
    assert type(rig.engine.queues["dead"].ids) is MessageIdQueue
    assert sorted(rig.bodies("dead", 10)) == [b"a-0", b"a-1"]


@pytest.mark.parametrize("settings", [{"ordered": True}, {"grouped": True}])
def test_ordered_and_grouped_queues_have_no_tenants(rig: Rig, settings: dict[str, bool]) -> None:
    rig.create("other", **settings)
    with pytest.raises(InvalidArgument, match="without a tenant"):
        rig.push("other", b"x", tenant="a")
    assert rig.stats("other").ready == 0


@pytest.mark.parametrize("tenant", ["", "x" * 257])
def test_a_tenants_name_has_bounds(rig: Rig, tenant: str) -> None:
    with pytest.raises(InvalidArgument, match="tenant bytes"):
        rig.push("q", b"x", tenant=tenant)


def test_ten_thousand_tenants_are_forgotten_when_served(rig: Rig) -> None:
    rig.checking = False
    for number in range(3000):
        rig.push("q", b"t-x", tenant=f"t{number}")
    messages = rig.pop("q", 4000)
    while len(messages) < 3000:
        messages += rig.pop("q", 4000)
    rig.ack("q", *messages)
    assert rig.pop("q", 1) == []
    ids = rig.engine.queues["q"].ids
    assert isinstance(ids, TenantQueue)
    assert len(ids.levels) <= tenants.IDLE_MAX


def test_peek_shows_the_oldest(rig: Rig) -> None:
    push(rig, "a", 2)
    push(rig, "b", 2)
    answer = rig.call(wire.Peek("q", 3))
    assert isinstance(answer, wire.Peeked)
    assert len(answer.lent) == 3
