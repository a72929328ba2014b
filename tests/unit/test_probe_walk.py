"""The probes of a pop of a stochastic queue: hops, waits, sweeps and weights."""

from __future__ import annotations

import random
from collections import Counter

from weft.probe_walk import NEAR_SHARE, RATE_FLOOR, SWEEP_EVERY, WAIT_MS, ProbeMemory, ProbeWalk
from weft.proto import wire

NODES = ["a", "b", "c", "d"]


def memory(max_hops: int = 3, access: str = "even") -> ProbeMemory:
    return ProbeMemory(wire.ProbeReport(0.0, max_hops, access))


def walk(known: ProbeMemory, seed: int = 1, near: tuple[str, ...] = ()) -> ProbeWalk:
    return ProbeWalk(NODES, known, random.Random(seed).randrange, near)


def test_a_pop_waits_at_its_last_hop_alone() -> None:
    for max_hops in (1, 2, 3, 5):
        made = walk(memory(max_hops))
        waits = []
        for _ in range(max_hops):
            probe = made.next(10_000)
            assert probe is not None
            waits.append(probe.wait_ms)
            made.empty(probe.node)
        assert waits == [0] * (max_hops - 1) + [WAIT_MS]


def test_a_wait_is_no_longer_than_the_pop() -> None:
    probe = walk(memory(1)).next(250)
    assert probe is not None
    assert probe.wait_ms == 250


def test_nothing_there_needs_the_answer_of_every_node() -> None:
    for seed in range(50):
        made, asked = walk(memory(2), seed), []
        while (probe := made.next(0)) is not None:
            assert probe.wait_ms == 0
            asked.append(probe.node)
            made.empty(probe.node)
        assert set(asked) == set(NODES)
        assert len(asked) <= 2 + len(NODES)
        assert not made.unsure


def test_nothing_there_after_a_wait_needs_answers_since_the_wait_began() -> None:
    made, waited = walk(memory(3)), ""
    for _ in range(3):
        probe = made.next(500)
        assert probe is not None
        made.empty(probe.node)
        waited = probe.node
    rest = []
    while (probe := made.next(0)) is not None:
        rest.append(probe.node)
        made.empty(probe.node)
    assert {*rest, waited} == set(NODES)


def test_fruitless_waits_are_followed_by_a_sweep() -> None:
    """A message at a node of little weight is found within a few waits."""
    made, waits, since = walk(memory(1)), 0, set[str]()
    for _ in range(40):
        probe = made.next(60_000)
        assert probe is not None
        made.empty(probe.node)
        since.add(probe.node)
        if probe.wait_ms:
            waits += 1
        if since == set(NODES):
            waits, since = 0, set()
        assert waits <= 2 * SWEEP_EVERY


def test_a_silent_node_leaves_the_pop_unsure() -> None:
    made = walk(memory())
    while (probe := made.next(0)) is not None:
        (made.failed if probe.node == "c" else made.empty)(probe.node)
    assert made.unsure == {"c"}


def drawn(known: ProbeMemory, near: tuple[str, ...] = ()) -> dict[str, float]:
    counts: Counter[str] = Counter()
    entropy = random.Random(5)
    for _ in range(8_000):
        probe = ProbeWalk(NODES, known, entropy.randrange, near).next(1_000)
        assert probe is not None
        counts[probe.node] += 1
    return {node: counts[node] / 8_000 for node in NODES}


def near_to(found: dict[str, float], wanted: dict[str, float]) -> bool:
    return all(abs(found[node] - wanted[node]) < 0.03 for node in NODES)


def test_even_access() -> None:
    known = memory()
    known.learn("a", wire.ProbeReport(90.0, 3, "even"))
    assert near_to(drawn(known), dict.fromkeys(NODES, 0.25))


def test_access_by_rates_follows_the_reports() -> None:
    known = memory(access="rates")
    assert near_to(drawn(known), dict.fromkeys(NODES, 0.25)), "no node has reported yet"
    for node, rate in zip(NODES, (9.0, 1.0, 0.0, 10.0), strict=True):
        known.learn(node, wire.ProbeReport(rate, 3, "rates"))
    total = 20 + RATE_FLOOR * 5
    assert near_to(
        drawn(known), {"a": 9 / total, "b": 1 / total, "c": 0.25 / total, "d": 10 / total}
    )
    known.forget(["a", "b", "c"])  # d comes back, and is unknown
    assert drawn(known)["d"] > 0.2


def test_near_access_prefers_the_zone() -> None:
    known = memory(access="near")
    inside, outside = NEAR_SHARE / 2, (1 - NEAR_SHARE) / 2
    wanted = {"a": inside, "b": outside, "c": inside, "d": outside}
    assert near_to(drawn(known, ("a", "c")), wanted)
    for zone in ((), tuple(NODES)):
        assert near_to(drawn(known, zone), dict.fromkeys(NODES, 0.25))


def test_updated_settings_count_at_once() -> None:
    known = memory(5)
    known.learn("a", wire.ProbeReport(0.0, 1, "even"))
    probe = walk(known).next(10_000)
    assert probe is not None
    assert probe.wait_ms == WAIT_MS
