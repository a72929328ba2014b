"""Weft's performance targets, as ratios within one run; every target is printed, met or missed.

If a target names no durability, Weft runs with the default: fsync before every ack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .result import FLOOR, Results, Spread
from .systems import BY_NAME, FANNING, SINGLE

DISK: Final = "weft-disk"
OS: Final = "weft-os"
PEERS: Final = tuple(name for name in SINGLE if name not in (DISK, OS))
ACKING: Final = tuple(name for name in PEERS if BY_NAME[name].acks)
RABBITS: Final = ("rabbitmq-classic", "rabbitmq-quorum")

Place = tuple[str, str, str]


@dataclass(frozen=True)
class Target:
    """`ours` over `theirs` must be at least, or at most, `bound`."""

    words: str
    ours: Place
    theirs: Place
    bound: float
    at_most: bool = False

    def met(self, ratio: float) -> bool:
        return ratio <= self.bound if self.at_most else ratio >= self.bound


@dataclass(frozen=True)
class Verdict:
    target: Target
    #: None: one side was not measured in this run.
    ratio: Spread | None

    @property
    def word(self) -> str:
        if self.ratio is None:
            return "not measured"
        return "ok" if self.target.met(self.ratio.median) else "missed"


def judge(results: Results) -> list[Verdict]:
    return [Verdict(each, results.ratio(each.ours, each.theirs)) for each in targets()]


def targets() -> Iterator[Target]:
    yield from _w1()
    for what in ("push", "pop"):
        for peer in ACKING:
            place = ("W2", peer, f"{what}_rate")
            yield Target(f"W2 {what} against {peer}", ("W2", DISK, f"{what}_rate"), place, 1.0)
    yield from _w3()
    yield from _w4()
    for peer in ("rabbitmq-quorum-3", "nats-r3", "kafka-3"):
        place = ("W6", peer, "rate")
        yield Target(f"W6 three nodes against {peer}", ("W6", "weft-3", "rate"), place, 1.0)
    for peer in FANNING:
        if peer not in (DISK, OS):
            words = f"W9 fan-out to ten queues against {peer}"
            yield Target(words, ("W9", DISK, "rate"), ("W9", peer, "rate"), 1.0)
    for name, words in (("W7", "W7 drain of a deep queue"), ("W8", "W8 thousand queues")):
        yield Target(f"{words} against W1", (name, DISK, "rate"), ("W1", DISK, "rate"), 0.8)


def _w1() -> Iterator[Target]:
    bounds = {
        "redis-lists": 1.0,
        "redis-streams": 10.0,
        "rabbitmq-quorum": 40.0,
        "nats": 40.0,
        "kafka": 1.5,
    }
    for peer, bound in bounds.items():
        place = ("W1", peer, "rate")
        yield Target(f"W1 disk against {peer}", ("W1", DISK, "rate"), place, bound)
    lists = ("W1", "redis-lists", "rate")
    yield Target("W1 os against redis-lists", ("W1", OS, "rate"), lists, 1.4)


def _w3() -> Iterator[Target]:
    p50, tail = "push_p50_us", "push_p99.9_us"
    bounds = {"redis-streams": 1.3, "nats": 1.0, **dict.fromkeys(RABBITS, 1.0), "kafka": 1.0}
    for peer, bound in bounds.items():
        words = f"W3 os push p50 against {peer}"
        yield Target(words, ("W3", OS, p50), ("W3", peer, p50), bound, at_most=True)
    for peer in ACKING:
        words = f"W3 os push p99.9 against {peer}"
        yield Target(words, ("W3", OS, tail), ("W3", peer, tail), 1.0, at_most=True)
    yield Target(
        "W3 disk push p50 against a raw fdatasync append and 1.5 raw ZeroMQ round trips",
        ("W3", DISK, p50),
        ("W3", FLOOR, "push_floor_us"),
        1.0,
        at_most=True,
    )
    always = ("W3", "redis-streams-always", p50)
    words = "W3 disk push p50 against redis-streams-always"
    yield Target(words, ("W3", DISK, p50), always, 1.0, at_most=True)


def _w4() -> Iterator[Target]:
    for size, name in (("256k", "256 KiB"), ("1m", "1 MiB")):
        for what in ("push", "pop"):
            figure = f"{what}_mib_{size}"
            for peer in (*RABBITS, "nats", "redis-streams"):
                words = f"W4 {name} {what} against {peer}"
                yield Target(words, ("W4", DISK, figure), ("W4", peer, figure), 1.0)
