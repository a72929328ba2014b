"""What a node takes of its machine, again and again, and whether that stays flat.

A *life* is one process, from its start to its end. Two things are compared, each by medians:

- *within* a life that is long enough: its first window after the warm-up with its last window;
- *across* the lives of one node (and of the nodes that joined and left), at the same age: the
  earlier half of the lives with the later half, of those that began after the warm-up.

Caches and allocators fill up in the beginning, hence the warm-up, which has a name: `WARM_UP_S`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final

import msgspec

SAMPLE_S: Final = 2.0
#: Longer than a dedup window (five minutes): until then a steady load makes a node grow.
WARM_UP_S: Final = 600.0
#: Growth that is still flat. Of descriptors there are few, so that a handful is no growth.
GROWTH_MAX: Final = 0.05
FDS_SLACK: Final = 3
#: A life shorter than this says nothing.
LIFE_S_MIN: Final = 20.0


class Sample(msgspec.Struct, frozen=True, array_like=True):
    #: Seconds since the soak began.
    at: float
    #: "node 0", or "joiner" for one that joins and leaves.
    group: str
    life: int
    rss_anon_kib: int
    fds: int
    threads: int


def look(at: float, group: str, life: int, pid: int) -> Sample | None:
    """None when the process is gone, or going."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            lines = dict(line.split(":", 1) for line in status if ":" in line)
        fds = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    if "RssAnon" not in lines:
        return None
    rss, threads = int(lines["RssAnon"].split()[0]), int(lines["Threads"])
    return Sample(at, group, life, rss, fds, threads) if rss else None


class Flatness(msgspec.Struct, frozen=True):
    """One comparison."""

    what: str
    where: str
    before: float
    after: float
    flat: bool

    @property
    def growth(self) -> float:
        return self.after / self.before - 1

    def line(self) -> str:
        said = "flat" if self.flat else "GROWS"
        return (
            f"{said:<6}{self.what:<12}{self.where:<34}"
            f"{self.before:>12,.1f} -> {self.after:>12,.1f}  {self.growth:+.1%}"
        )


def judge(samples: Sequence[Sample], window_s: float, warm_up_s: float) -> list[Flatness]:
    found: list[Flatness] = []
    for group in sorted({sample.group for sample in samples}):
        lives = _lives(sample for sample in samples if sample.group == group)
        for what, value in _FIGURES:
            for number, life in lives.items():
                if _length(life) >= warm_up_s + 2 * window_s:
                    found.append(_within(what, value, f"{group}, life {number}", life, window_s,
                                         warm_up_s))  # fmt: skip
            # Who was there from the start began with nothing to recover.
            long = [
                life
                for life in lives.values()
                if _length(life) >= LIFE_S_MIN and life[0].at >= warm_up_s
            ]
            if len(long) >= 2:
                found.append(_across(what, value, group, long))
    return found


def _rss_mib(sample: Sample) -> float:
    return sample.rss_anon_kib / 1024


def _fds(sample: Sample) -> float:
    return float(sample.fds)


_FIGURES: Final[tuple[tuple[str, Callable[[Sample], float]], ...]] = (
    ("memory, MiB", _rss_mib),
    ("descriptors", _fds),
)


def _lives(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    lives: dict[int, list[Sample]] = {}
    for sample in samples:
        lives.setdefault(sample.life, []).append(sample)
    return lives


def _length(life: list[Sample]) -> float:
    return life[-1].at - life[0].at


def _within(
    what: str, value: Callable[[Sample], float], where: str, life: list[Sample], window_s: float,
    warm_up_s: float,
) -> Flatness:  # fmt: skip
    born, end = life[0].at, life[-1].at
    first = [value(s) for s in life if warm_up_s <= s.at - born < warm_up_s + window_s]
    last = [value(s) for s in life if s.at > end - window_s]
    return _flatness(what, where, median(first), median(last))


def _across(
    what: str, value: Callable[[Sample], float], group: str, lives: list[list[Sample]]
) -> Flatness:
    """At the same age: the later half of the shortest life."""
    age = min(map(_length, lives))
    figures = [median(value(s) for s in life if age / 2 <= s.at - life[0].at <= age)
               for life in lives]  # fmt: skip
    half = len(figures) // 2
    where = f"{group}, {len(lives)} lives at {age / 2:.0f}-{age:.0f} s"
    return _flatness(what, where, median(figures[:half]), median(figures[-half:]))


def _flatness(what: str, where: str, before: float, after: float) -> Flatness:
    slack = FDS_SLACK if what == "descriptors" else 0.0
    return Flatness(what, where, before, after, after <= max(before * (1 + GROWTH_MAX),
                                                             before + slack))  # fmt: skip
