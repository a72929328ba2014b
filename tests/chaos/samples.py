"""What a node takes of its machine, again and again, and whether that stays flat.

A *life* is one process, from its start to its end. Two things are compared, each by medians:

- *within* a life that is long enough: its first window after the warm-up with its last window;
- *across* the lives of one node (and of the nodes that joined and left), at the same age: the
  earlier half of the lives with the later half, of those that began after the warm-up.

Caches and allocators fill up in the beginning, hence the warm-up, which has a name: `WARM_UP_S`.

Memory is `RssAnon` without LevelDB's write buffer. That one takes up to 32 MiB, is emptied when it
is full, and so draws a saw whose teeth are longer than any window here. How large it is can be seen
on disk: it is LevelDB's log, times a factor (skip list and all) that `buffer_factor` fits, beside a
growth with time, to the longest life. The plot shows `RssAnon` as it is.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

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
    #: LevelDB's log, which is what its write buffer holds.
    log_kib: int


def look(at: float, group: str, life: int, pid: int, data: Path) -> Sample | None:
    """None when the process is gone, or going."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            lines = dict(line.split(":", 1) for line in status if ":" in line)
        fds = len(os.listdir(f"/proc/{pid}/fd"))
        log = sum(file.stat().st_size for file in (data / "store").glob("*.log"))
    except OSError:
        return None
    if "RssAnon" not in lines:
        return None
    rss, threads = int(lines["RssAnon"].split()[0]), int(lines["Threads"])
    return Sample(at, group, life, rss, fds, threads, log // 1024) if rss else None


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
    factor = buffer_factor(samples, warm_up_s)

    def memory_mib(sample: Sample) -> float:
        return (sample.rss_anon_kib - factor * sample.log_kib) / 1024

    figures: tuple[tuple[str, Callable[[Sample], float]], ...] = (
        ("memory, MiB", memory_mib),
        (_FDS, lambda sample: float(sample.fds)),
    )
    for group in sorted({sample.group for sample in samples}):
        lives = _lives(sample for sample in samples if sample.group == group)
        for what, value in figures:
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


_FDS: Final = "descriptors"


def buffer_factor(samples: Sequence[Sample], warm_up_s: float) -> float:
    """What a byte of LevelDB's log takes in memory, by least squares: RssAnon = a + b t + c log."""
    numpy: Any = importlib.import_module("numpy")
    lives: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        lives.setdefault((sample.group, sample.life), []).append(sample)
    longest = max(lives.values(), key=_length, default=[])
    used = [sample for sample in longest if sample.at - longest[0].at >= warm_up_s]
    if len(used) < 3 or len({sample.log_kib for sample in used}) < 2:
        return 1.0
    rows = numpy.array([[1.0, sample.at, sample.log_kib] for sample in used])
    fitted = numpy.linalg.lstsq(rows, numpy.array([s.rss_anon_kib for s in used]), rcond=None)[0]
    return float(fitted[2])


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
    slack = FDS_SLACK if what == _FDS else 0.0
    return Flatness(what, where, before, after, after <= max(before * (1 + GROWTH_MAX),
                                                             before + slack))  # fmt: skip
