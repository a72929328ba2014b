"""The verdict on a cluster: the present problems, and the failures that it survives. Pure.

`assess` is the only place that decides whether a cluster is settled. The command line, doctor,
``/readyz``, the metrics and the test clusters all show the same result, so none can disagree.

`assess` follows the rules of the protocol:

- An append is acknowledged when every member of the partition's sync set has the append. A
  partition takes pushes while the whole sync set is alive and has at least ``min_sync`` members
  (*intact*).
- Any other partition needs a change of the view first: the dead member leaves the sync set, another
  node joins the sync set, or a restarted member raises the epoch. A change of the view needs a
  majority of the voters, and also of the new voters during a replacement.
- Only a member of the sync set becomes primary, so at least one member must be alive.
- If a set would fall below ``min_sync``, a live node that may hold data replaces the dead member: a
  learner takes over at once; another node copies the whole partition first. A set already below
  ``min_sync`` grows by any live learner.

So after the nodes ``F`` have failed, a partition is served if intact without ``F``, or if a
majority of the voters, one member of the sync set, and ``min_sync`` nodes able to hold the
partition remain.

| state | meaning |
|---|---|
| settled | every member is alive; every partition is served and is on the planned nodes |
| degraded | every partition is served; any one node may fail; not everything is as planned |
| at risk | every partition is served; one more failure may stop service or lose messages |
| unavailable | at least one partition is not served |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from . import verdict_text
from .planner import ReplicationFactor
from .survival import Survival
from .view import View

SETTLED: Final = "settled"
DEGRADED: Final = "degraded"
AT_RISK: Final = "at risk"
UNAVAILABLE: Final = "unavailable"
#: From best to worst.
STATES: Final = (SETTLED, DEGRADED, AT_RISK, UNAVAILABLE)

_SIZE: Final = ReplicationFactor()


@dataclass(frozen=True)
class Observation:
    """A cluster as one node sees it."""

    view: View
    alive: frozenset[str]
    #: For each partition the role of the primary; None if the primary was not asked.
    roles: Sequence[str | None]
    #: For each partition the number of missing entries, for each follower that is behind.
    lag: Sequence[Mapping[str, int]] = ()
    #: The node that made this observation; "" if unknown.
    observer: str = ""


@dataclass(frozen=True)
class Verdict:
    """The result of `assess`. `service` and `data` count nodes: any so many may fail at once."""

    state: str
    #: The problems, most urgent first. Empty if and only if the cluster is settled.
    reasons: tuple[str, ...]
    #: Actions for an operator.
    advice: tuple[str, ...]
    #: The number of nodes that may fail without loss of service.
    service: int
    #: The number of disks that may be lost without loss of an acknowledged message.
    data: int
    #: Live nodes of which any single one may fail without loss of service.
    may_fail: tuple[str, ...]
    #: Live nodes with the only live synchronous copy of a partition.
    sole_copies: tuple[str, ...]
    #: Members that are not alive.
    down: tuple[str, ...]
    #: True if a majority of the voters is alive.
    quorum: bool
    #: Partitions that take no pushes now.
    unserved: tuple[int, ...]
    #: The unserved partitions that stay unserved until a dead node is back.
    blocked: tuple[int, ...]
    #: The blocked partitions without a live member of the sync set.
    stranded: tuple[int, ...]
    #: Partitions with fewer synchronous copies than planned.
    thin: tuple[int, ...]
    #: Partitions with a live follower that is behind.
    lagging: tuple[int, ...]
    #: Why partitions are blocked; "" if none is.
    outage: str
    #: Synchronous copies that the plan gives each partition.
    copies: int
    #: True if the live nodes have done all repairs possible without an operator.
    recovered: bool

    @property
    def settled(self) -> bool:
        return self.state == SETTLED

    @property
    def outlook(self) -> str:
        """The failures that the cluster survives now, in one sentence."""
        return f"{self._service_words()}; {self._data_words()}"

    def _service_words(self) -> str:
        if self.unserved:
            return "service is lost already" if self.blocked else "service is interrupted"
        if self.service:
            more = "1 more node" if self.service == 1 else f"{self.service} more nodes"
            return f"can lose {more} without losing service"
        if self.may_fail:
            names = verdict_text.some([name[: verdict_text.ID_DIGITS] for name in self.may_fail])
            return f"can lose no node without losing service, except one of: {names}"
        return "can lose no node without losing service"

    def _data_words(self) -> str:
        if self.stranded:
            return "some messages are on dead nodes only"
        if self.data:
            return f"can lose {verdict_text.disks(self.data)} without losing messages"
        return "can lose no disk without losing messages"


def assess(seen: Observation, size: ReplicationFactor = _SIZE) -> Verdict:
    """Computes the verdict, in milliseconds for hundreds of nodes and thousands of partitions."""
    survival = Survival(seen, size)
    moving, misplaced = survival.moving()
    found = _findings(survival, misplaced)
    unserved, blocked = found.unserved, found.blocked
    service = 0 if unserved else survival.service()
    data = max(0, min((len(live) for live in survival.live_sync), default=0) - 1)
    outage, advice = verdict_text.outage(survival, found)
    reasons = outage + verdict_text.reasons(survival, found, advice)
    if not reasons:
        state = SETTLED
    elif unserved or not survival.numbers:
        state = UNAVAILABLE
    else:
        state = DEGRADED if service and data else AT_RISK
    return Verdict(
        state, tuple(reasons), tuple(advice), service, data,
        () if unserved else survival.expendable(),
        tuple(sorted({next(iter(live)) for live in survival.live_sync if len(live) == 1})),
        found.down, survival.quorum, unserved, blocked, found.stranded, found.thin, found.lagging,
        "; ".join(outage) if blocked else "", survival.wanted,
        recovered=bool(survival.numbers) and not (
            unserved or moving or found.lagging or survival.short() or survival.housekeeping()
        ),
    )  # fmt: skip


def _findings(survival: Survival, misplaced: tuple[int, ...]) -> verdict_text.Findings:
    seen = survival.seen
    blocked = tuple(n for n in survival.numbers if not survival.survives(n))
    return verdict_text.Findings(
        unserved=tuple(n for n in survival.numbers if not survival.served(n)),
        blocked=blocked,
        stranded=tuple(n for n in blocked if not survival.live_sync[n]),
        down=tuple(node for node in seen.view.members if node not in seen.alive),
        thin=survival.thin(),
        lagging=survival.lagging(),
        misplaced=misplaced,
    )
