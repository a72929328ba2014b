"""Quotas alone: accepted calls, refused calls, and for how long."""

from __future__ import annotations

import pytest

from weft.errors import QuotaExceeded, RateLimited, StorageFull
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.config import Config
from weft.server.engine.queue import QueueRecord, QueueState
from weft.server.security.access import Grant, Limits, Principal
from weft.server.security.quota import Meter, Quotas

SECOND = 1_000_000


def push(count: int = 1) -> wire.Push:
    return wire.Push("q", 1, 1, count)


def who(**most: int) -> Principal:
    grants = (Grant("admin", "team.*"), Grant("push", "*"))
    return Principal("who", grants, Limits(**most))


def queues(*names: str, held: int = 0) -> dict[str, QueueState]:
    made = {name: QueueState(name, QueueRecord(n, 0, Settings())) for n, name in enumerate(names)}
    for queue in made.values():
        queue.bytes = held
    return made


def test_a_meter_lets_a_second_through_and_fills_again() -> None:
    meter = Meter(10, 0)
    for _ in range(10):
        assert meter.has_some(0)
        meter.take(1)
    assert not meter.has_some(0)
    assert meter.has_some(SECOND // 10)
    meter.take(100)  # a large push is accepted, and delays later ones
    assert not meter.has_some(9 * SECOND)
    assert meter.has_some(11 * SECOND)


def test_over_a_minute_the_rate_is_kept() -> None:
    quotas = Quotas(Config(push_rate_max=100), 0)
    taken = 0
    for now in range(0, 60 * SECOND, 10_000):
        try:
            quotas.check(push(7), [b""], None, {}, now)
            taken += 7
        except RateLimited:
            continue
    assert RateLimited.retriable
    assert 6000 <= taken <= 6000 + 100 + 7


def test_each_token_has_its_own_rate() -> None:
    quotas = Quotas(Config(), 0)
    slow = who(rate=2)
    quotas.check(push(2), [b""], slow, {}, 0)
    with pytest.raises(RateLimited, match="who may push 2 messages"):
        quotas.check(push(), [b""], slow, {}, 0)
    quotas.check(push(), [b""], Principal("other", slow.grants, slow.limits), {}, 0)
    quotas.check(push(), [b""], None, {}, 0)
    heavy = who(bytes_rate=1000)
    quotas.check(push(), [bytes(1000)], heavy, {}, 0)
    with pytest.raises(RateLimited, match="1000 bytes"):
        quotas.check(push(), [b"x"], heavy, {}, 0)
    quotas.check(push(), [b"x"], who(bytes_rate=2000), {}, 0)  # the limit was raised


def test_what_the_queues_hold() -> None:
    quotas = Quotas(Config(bytes_max=1000), SECOND)
    quotas.check(push(), [bytes(100)], None, queues("a", "b", held=400), SECOND)
    with pytest.raises(StorageFull, match="bytes_max") as refused:
        quotas.check(push(), [bytes(150)], None, queues("a", "b", held=400), SECOND)
    assert refused.value.retriable
    quotas.check(push(), [bytes(150)], None, queues("a", held=400), 2 * SECOND)


def test_how_many_queues() -> None:
    quotas = Quotas(Config(queues_max=3), 0)
    there = queues("a", "team.b")
    quotas.check(wire.CreateQueue("c", Settings()), (), None, there, 0)
    quotas.check(wire.CreateQueue("a", Settings()), (), None, queues("a", "b", "c"), 0)
    letter = Settings(max_deliveries=1, dead_letter="d")
    for request in (wire.CreateQueue("c", letter), wire.CreateQueue("x", letter)):
        with pytest.raises(QuotaExceeded, match="queues_max") as refused:
            quotas.check(request, (), None, there, 0)
        assert not refused.value.retriable
    with pytest.raises(QuotaExceeded):
        quotas.check(wire.UpdateQueue("a", {"dead_letter": "d"}), (), None, queues(*"abc"), 0)


def test_how_many_queues_of_a_token() -> None:
    quotas = Quotas(Config(), 0)
    create = wire.CreateQueue("team.c", Settings())
    quotas.check(create, (), who(queues=2), queues("a", "b", "team.b"), 0)
    with pytest.raises(QuotaExceeded, match="who may have at most 2 queues"):
        quotas.check(create, (), who(queues=2), queues("team.a", "team.b"), 0)


def test_a_wild_count_is_not_believed() -> None:
    quotas = Quotas(Config(push_rate_max=10), 0)
    quotas.check(push(-(1 << 60)), [b""], None, {}, 0)
    quotas.check(push(1 << 60), [b""], None, {}, 0)
    assert not quotas._rate or not quotas._rate.has_some(0)
    assert quotas._rate
    assert quotas._rate.has_some(500 * SECOND)
