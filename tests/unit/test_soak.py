"""The judgement of the soak test: growth is detected; a sawtooth or a restart is not growth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.samples import Sample, buffer_factor, judge
from tests.chaos.soak_plot import draw

MINUTE = 60.0


def life(
    group: str, number: int, start: float, end: float, *, rss_mib: float = 40.0,
    growth_mib_per_hour: float = 0.0, fds_per_hour: float = 0.0, factor: float = 1.2,
) -> list[Sample]:  # fmt: skip
    seen = []
    at = start
    while at < end:
        log_kib = (at * 40) % (32 * 1024)  # a sawtooth: full after fourteen minutes
        grown = growth_mib_per_hour * (at - start) / 3600
        rss = (rss_mib + grown) * 1024 + factor * log_kib
        if at > start + 900 and log_kib < 3000:  # memory is kept for a while after a tooth
            rss = max(rss, (rss_mib + grown + 30) * 1024)
        fds = 50 + fds_per_hour * (at - start) / 3600
        seen.append(Sample(at, group, number, int(rss), int(fds), 9, int(log_kib)))
        at += 2.0
    return seen


def flat(samples: list[Sample]) -> dict[str, bool]:
    return {f"{each.what} {each.where.partition(',')[0]}": each.flat for each in judge(samples)}


def test_a_saw_is_flat() -> None:
    for phase in range(0, 900, 100):
        samples = life("node 0", 0, phase, 3600 + phase)
        assert buffer_factor(samples) == pytest.approx(1.2, abs=0.01)
        assert flat(samples) == {"memory, MiB node 0": True, "descriptors node 0": True}


@pytest.mark.parametrize(
    ("growth", "fds", "expected"),
    [(1.5, 0, (True, True)), (6.0, 0, (False, True)), (0, 10, (True, False)), (0, 3, (True, True))],
)
def test_growth_is_seen(growth: float, fds: float, expected: tuple[bool, bool]) -> None:
    samples = life("node 0", 0, 0, 3600, growth_mib_per_hour=growth, fds_per_hour=fds)
    assert tuple(flat(samples).values()) == expected


def test_lives_are_compared_at_the_same_age() -> None:
    base = life("node 0", 0, 0, 3600)
    lives = [life("node 1", n, n * 600, n * 600 + 590, growth_mib_per_hour=99) for n in range(6)]
    grows_with_age = base + [sample for each in lives for sample in each]
    assert flat(grows_with_age)["memory, MiB node 1"]
    fatter = [life("node 1", n, n * 600, n * 600 + 590, rss_mib=40 + 2 * n) for n in range(6)]
    assert not flat(base + [sample for each in fatter for sample in each])["memory, MiB node 1"]


def test_short_runs_and_early_lives_say_nothing() -> None:
    assert judge(life("node 0", 0, 0, 40 * MINUTE)) == []
    early = life("node 1", 0, 0, 100) + life("node 1", 1, 110, 300)
    assert judge(early) == []


def test_the_picture_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found: dict[str, Any] = {
        "samples": [[*(getattr(s, name) for name in Sample.__struct_fields__)]
                    for s in life("node 0", 0, 0, 100)],
        "marks": [(1.0, "kill 1"), (2.0, "pause 0"), (3.0, "join"), (4.0, "leave")],
        "warm_up_s": 50.0, "minutes": 1.7, "counts": {}, "faults": {"kills": 1}, "violations": {},
    }  # fmt: skip
    draw(found, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").stat().st_size > 10_000
