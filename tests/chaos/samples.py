"""Samples of a node's resource usage, and whether the usage stays flat.

A *life* is one process, from its start to its end. Two comparisons:

- *within* a life that is long enough: the first half of the time after the warm-up with the second;
- *across* the lives of one node (and of the nodes that joined and left), at the same age: the
  earlier half of the lives with the later half, of those that began after the warm-up.

Caches and allocators fill up in the beginning, hence the warm-up, `WARM_UP_S`. All comparisons are
of medians. Memory is `RssAnon` without LevelDB's write buffer, which is a sawtooth: the buffer
grows to 32 MiB and is then freed, at the soak's rate in a quarter of an hour. The size of the
buffer can be seen on disk: LevelDB's log, times the memory that a byte of the log takes, which
`buffer_factor` reads from the slopes of the sawtooth. After a tooth the allocator keeps the memory
for a minute or two and then frees or reuses it: too short to affect a half's median.

``python -m tests.chaos.samples FILE`` judges the JSON file of a soak.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

SAMPLE_S: Final = 2.0
#: Longer than a dedup window (five minutes): until then a steady load makes a node grow.
WARM_UP_S: Final = 600.0
#: Growth that still counts as flat. There are few descriptors, so a handful is not growth.
GROWTH_MAX: Final = 0.05
FDS_SLACK: Final = 3
#: A shorter life is not judged; nor is a life within itself if its halves are shorter than a tooth.
LIFE_S_MIN: Final = 20.0
HALF_S_MIN: Final = 1200.0


class Sample(msgspec.Struct, frozen=True, array_like=True):
    #: Seconds since the soak began.
    at: float
    #: "node 0", or "joiner" for a node that joins and leaves.
    group: str
    life: int
    rss_anon_kib: int
    fds: int
    threads: int
    #: LevelDB's log: as large as the content of the write buffer.
    log_kib: int


def look(at: float, group: str, life: int, pid: int, data: Path) -> Sample | None:
    """A sample of the process, or None when the process has exited or is exiting."""
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


def judge(
    samples: Sequence[Sample], warm_up_s: float = WARM_UP_S, half_s_min: float = HALF_S_MIN
) -> list[Flatness]:
    found: list[Flatness] = []
    factor = buffer_factor(samples)

    def memory_mib(sample: Sample) -> float:
        return (sample.rss_anon_kib - factor * sample.log_kib) / 1024

    figures = (("memory, MiB", memory_mib), (_FDS, lambda sample: float(sample.fds)))
    for group in sorted({sample.group for sample in samples}):
        lives = _lives(sample for sample in samples if sample.group == group)
        for number, life in lives.items():
            if _length(life) >= warm_up_s + 2 * half_s_min:
                found += _within(figures, f"{group}, life {number}", life, warm_up_s)
        # Nodes that ran from the start had nothing to recover.
        later = [
            life
            for life in lives.values()
            if _length(life) >= LIFE_S_MIN and life[0].at >= warm_up_s
        ]
        if len(later) >= 2:
            found += _across(figures, group, later)
    return found


_FDS: Final = "descriptors"
Figures = Sequence[tuple[str, Callable[[Sample], float]]]
#: Samples per slope, and the least growth of the log over them.
_SLOPE_SAMPLES: Final = 30
_SLOPE_KIB_MIN: Final = 256


def buffer_factor(samples: Sequence[Sample]) -> float:
    """Memory per byte of LevelDB's log: the median slope of the longest life."""
    lives: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        lives.setdefault((sample.group, sample.life), []).append(sample)
    longest = max(lives.values(), key=_length, default=[])
    slopes = [
        (late.rss_anon_kib - early.rss_anon_kib) / (late.log_kib - early.log_kib)
        for early, late in zip(longest, longest[_SLOPE_SAMPLES:], strict=False)
        if late.log_kib - early.log_kib >= _SLOPE_KIB_MIN
    ]
    return median(slopes) if slopes else 1.0


def _lives(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    lives: dict[int, list[Sample]] = {}
    for sample in samples:
        lives.setdefault(sample.life, []).append(sample)
    return lives


def _length(life: list[Sample]) -> float:
    return life[-1].at - life[0].at


def _within(figures: Figures, where: str, life: list[Sample], warm_up_s: float) -> list[Flatness]:
    warm = [sample for sample in life if sample.at - life[0].at >= warm_up_s]
    middle = (warm[0].at + warm[-1].at) / 2
    first = [sample for sample in warm if sample.at < middle]
    last = [sample for sample in warm if sample.at >= middle]
    return [
        _flatness(what, where, median(map(value, first)), median(map(value, last)))
        for what, value in figures
    ]


def _across(figures: Figures, group: str, lives: list[list[Sample]]) -> list[Flatness]:
    """At the same age: the later half of the shortest life."""
    age = min(map(_length, lives))
    where = f"{group}, {len(lives)} lives at {age / 2:.0f}-{age:.0f} s"
    half = len(lives) // 2

    def of(value: Callable[[Sample], float], some: list[list[Sample]]) -> float:
        return median(
            median(value(s) for s in life if age / 2 <= s.at - life[0].at <= age) for life in some
        )

    return [
        _flatness(what, where, of(value, lives[:half]), of(value, lives[-half:]))
        for what, value in figures
    ]


def _flatness(what: str, where: str, before: float, after: float) -> Flatness:
    slack = FDS_SLACK if what == _FDS else 0.0
    return Flatness(what, where, before, after, after <= max(before * (1 + GROWTH_MAX),
                                                             before + slack))  # fmt: skip


if __name__ == "__main__":
    seen = json.loads(Path(sys.argv[1]).read_text())["samples"]
    found = msgspec.convert(seen, list[Sample])
    print(f"a byte of LevelDB's log takes {buffer_factor(found):.2f} bytes of memory")
    for each in judge(found):
        print(each.line())
