"""What the API for other languages must reach; every target is printed, met or missed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.peers.result import Results, Spread

DISK, OS = "weft-disk", "weft-os"
Place = tuple[str, str, str]


@dataclass(frozen=True)
class LanguageTarget:
    """`ours`, or `ours` over `theirs`, must be at least, or at most, `bound`."""

    words: str
    ours: Place
    bound: float
    theirs: Place | None = None
    at_most: bool = False

    def value(self, results: Results) -> Spread | None:
        """None: one side was not measured in this run."""
        if self.theirs is None:
            return results.spread(*self.ours)
        return results.ratio(self.ours, self.theirs)

    def word(self, results: Results) -> str:
        value = self.value(results)
        if value is None:
            return "not measured"
        met = value.median <= self.bound if self.at_most else value.median >= self.bound
        return "met" if met else "missed"


def _p50(workload: str, system: str) -> Place:
    return (workload, system, "p50_us")


def _batches(workload: str, words: str) -> tuple[LanguageTarget, ...]:
    rate = (workload, DISK, "rate")
    nats = ("batch", "nats", "rate")
    return (
        LanguageTarget(f"{words}, fsync: messages/s", rate, 700_000),
        LanguageTarget(f"{words}, fsync: against NATS", rate, 8, nats),
    )


ALL: Final = (
    *_batches("batch", "batches of 1,000"),
    *_batches("columns", "batches of 1,000 by column"),
    LanguageTarget("32 in flight, os: completed/s", ("single-32", OS, "rate"), 10_000),
    LanguageTarget("32 in flight, os: calls/s", ("single-32", OS, "calls"), 30_000),
    LanguageTarget(
        "push p50, fsync: against the Python client", _p50("single-1", DISK), 1.8,
        _p50("python", "weft-disk-python"), at_most=True,
    ),
    LanguageTarget(
        "push p50, os: against the Python client", _p50("single-1", OS), 1.8,
        _p50("python", "weft-os-python"), at_most=True,
    ),
    LanguageTarget(
        "push p50, os: against NATS", _p50("single-1", OS), 2, _p50("single-1", "nats"),
        at_most=True,
    ),
    LanguageTarget("Produce, fsync: messages/s", ("produce", DISK, "rate"), 60_000),
    LanguageTarget("Work, fsync: messages/s", ("work", DISK, "rate"), 30_000),
    LanguageTarget("empty call (health): calls/s", ("health", DISK, "rate"), 40_000),
    LanguageTarget(
        "empty call (health): against Go's server", ("health", DISK, "rate"), 1,
        ("health", "go-grpc", "rate"),
    ),
    LanguageTarget("empty call (View): calls/s", ("view", DISK, "rate"), 40_000),
    LanguageTarget(
        "empty call (View): against Go's server", ("view", DISK, "rate"), 1,
        ("view", "go-grpc", "rate"),
    ),
)  # fmt: skip
