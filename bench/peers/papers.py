"""Headline results of the papers beside Weft's; machines differ: compare orders of magnitude."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .result import Results, Spread

_WEFT: Final = ("weft-disk", "weft-os")
_MIB_TO_MB: Final = 1.048576


@dataclass(frozen=True)
class Headline:
    paper: str
    setup: str
    theirs: str
    #: workload, figure, unit, and the factor for the figure.
    workload: str
    figure: str
    unit: str
    factor: float = 1.0


HEADLINES: Final = (
    Headline(
        "Fabriq", "50-byte messages, one call at a time: push",
        "90,000 messages/s on 128 nodes (703 a node), push and pop not told apart",
        "P1", "push_rate", "messages/s, one client and one node",
    ),
    Headline(
        "Fabriq", "the same: pop (here with its ack)", "as above",
        "P1", "pop_ack_rate", "messages/s, one client and one node",
    ),
    Headline(
        "Fabriq", "the same: push latency p50", "420 µs on 64 and 128 nodes",
        "P1", "push_p50_us", "µs",
    ),
    Headline(
        "Fabriq", "the same: push latency p99.9", "11,980 µs on 64 and 128 nodes",
        "P1", "push_p99.9_us", "µs",
    ),
    Headline(
        "Fabriq", "1 MB messages: push", "1,091 MB/s on 128 nodes (8.5 a node)",
        "W4", "push_mib_1m", "MB/s, one node", _MIB_TO_MB,
    ),
    Headline(
        "Fabriq", "1 MB messages: pop", "1,793 MB/s on 128 nodes (14 a node)",
        "W4", "pop_mib_1m", "MB/s, one node", _MIB_TO_MB,
    ),
    Headline(
        "credit scheduler", "128-byte messages, one publisher to one subscriber",
        "120,000 messages/s, in memory, over Gigabit Ethernet",
        "W1", "rate", "messages/s, stored and acknowledged",
    ),
)  # fmt: skip


def beside(results: Results) -> Iterator[tuple[Headline, str, Spread]]:
    """Each headline with Weft's result, for each measured durability."""
    for headline in HEADLINES:
        for system in _WEFT:
            spread = results.spread(headline.workload, system, headline.figure)
            if spread is not None:
                factor = headline.factor
                ours = Spread(spread.median * factor, spread.low * factor, spread.high * factor)
                yield headline, system, ours
