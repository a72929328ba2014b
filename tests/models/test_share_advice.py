"""Shares advised from what queues use: quiet queues keep their use in a flood."""

from __future__ import annotations

import random

import pytest

from weft.models.share_advice import HEADROOM, QueueUse, advise_shares, entitlements
from weft.server.core.share_claims import part


@pytest.mark.parametrize("shares", [(0, 0, 0), (300, 0, 100), (600, 600, 0), (500, 900), (1000, 0)])
def test_entitlements_are_those_of_the_node(shares: tuple[int, ...]) -> None:
    claimed, unclaimed = sum(shares), shares.count(0)
    found = entitlements([share / 1000 for share in shares])
    assert found == pytest.approx([part(each, claimed, unclaimed) for each in shares])
    assert sum(found) == pytest.approx(1)


def test_a_quiet_queue_among_floods_is_given_a_share() -> None:
    floods = [QueueUse(f"flood-{at}", 0.0, 0.9 / 2) for at in range(2)]
    advice = {each.queue: each for each in advise_shares([QueueUse("quiet", 0.0, 0.1), *floods])}
    quiet = advice["quiet"]
    assert not quiet.limited
    assert quiet.advised == pytest.approx(HEADROOM * 0.1, abs=0.0011)
    assert (quiet.kept_now, quiet.kept_then) == (1.0, 1.0), "a third is more than it uses"
    assert all(advice[each.queue].limited for each in floods)
    assert all(advice[each.queue].advised == 0 for each in floods), "for people to say"
    assert advice["flood-0"].rate_then == pytest.approx(0.45, abs=0.001)


def test_the_gain_is_what_a_flood_of_idle_queues_would_take() -> None:
    idle = [QueueUse(f"idle-{at}", 0.0, 0.0) for at in range(37)]
    busy = [QueueUse("quiet", 0.0, 0.2), QueueUse("flood", 0.0, 0.5), QueueUse("other", 0.0, 0.3)]
    quiet = advise_shares([*busy, *idle])[0]
    assert quiet.kept_now == pytest.approx(1 / 40 / 0.2), "one of forty equal parts"
    assert quiet.kept_then == 1.0
    assert quiet.gain == pytest.approx(0.875)
    assert quiet.rate_now == pytest.approx(0.2)
    assert quiet.rate_then == pytest.approx(0.2), "nothing changes until there is a flood"


def test_a_claim_above_the_use_is_lowered() -> None:
    uses = [QueueUse("large", 0.8, 0.2), QueueUse("limited", 0.0, 0.8)]
    large = advise_shares(uses)[0]
    assert large.advised == pytest.approx(0.3, abs=0.0011)
    assert large.kept_then == 1.0


def test_advised_shares_fit_and_hurt_nobody() -> None:
    rng = random.Random(5)
    advised = 0
    for _ in range(300):
        uses = [
            QueueUse(f"q{at}", rng.choice([0.0, 0.0, 0.05, 0.3]), rng.random() ** 3)
            for at in range(rng.randrange(2, 12))
        ]
        found = advise_shares(uses)
        advised += bool(found)
        assert sum(each.advised for each in found if not each.limited) <= 1
        assert sum(each.rate_then for each in found) <= 1 + 1e-9
        for each in found:
            assert 0 <= each.kept_then <= 1
            if not each.limited and sum(one.share for one in found if one.limited) < 0.05:
                assert each.rate_then == pytest.approx(each.used), "it keeps what it wanted"
    assert advised > 100


@pytest.mark.parametrize(
    "uses",
    [
        [],
        [QueueUse("alone", 0.0, 1.0)],
        [QueueUse("a", 0.0, 0.5), QueueUse("b", 0.0, 0.5)],
        [QueueUse("a", 0.0, 1.0), QueueUse("idle", 0.5, 0.0)],
    ],
)
def test_without_competition_nothing_is_advised(uses: list[QueueUse]) -> None:
    assert advise_shares(uses) == []
