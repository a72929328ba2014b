"""The sites of an app as a table: workers, waiting tasks, and where tasks near data ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from weft.tasks.heartbeat import PlacementCounts, WorkerBeat

from .site import site_of

SITE_COLUMNS: Final = (
    "site", "processes", "waiting", "local", "moved", "kept", "fetched", "stolen", "local share",
)  # fmt: skip


class QueueLoad(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def ready(self) -> int: ...


@dataclass
class SiteLoad:
    processes: int = 0
    waiting: int = 0
    placed: PlacementCounts = field(default_factory=PlacementCounts)

    def as_json(self) -> dict[str, Any]:
        counts = msgspec.structs.asdict(self.placed)
        return {
            "processes": self.processes, "waiting": self.waiting, **counts,
            "local_share": self.placed.local_share,
        }  # fmt: skip


def sites_of(beats: Iterable[WorkerBeat], queues: Iterable[QueueLoad]) -> dict[str, SiteLoad]:
    """The sites with a block server, or with tasks, by name."""
    found: dict[str, SiteLoad] = {}
    for beat in beats:
        if beat.site and beat.blocks:
            site = found.setdefault(beat.site, SiteLoad())
            site.processes += beat.concurrency
            site.placed = site.placed.plus(beat.counts.placed)
    for queue in queues:
        if name := site_of(queue.name):
            found.setdefault(name, SiteLoad()).waiting += queue.ready
    return dict(sorted(found.items()))


def site_rows(sites: Mapping[str, SiteLoad]) -> list[list[str]]:
    return [
        [name, str(load.processes), str(load.waiting),
         *(str(count) for count in msgspec.structs.astuple(load.placed)),
         percent(load.placed.local_share)]
        for name, load in sites.items()
    ]  # fmt: skip


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"
