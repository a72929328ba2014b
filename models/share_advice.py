"""Shares for queues that compete for the nodes' time: figures of a running cluster, and advice.

The nodes charge each queue the time that it uses while queues compete. A queue is *limited* if it
got all that its share entitles it to: it would take more. Every other queue got what it wanted, and
keeps that only as long as its part of the time is enough: each queue that becomes active makes the
parts of queues without a share smaller. The advice is a share for every queue that is not limited:
its use and some headroom. The limited queues divide the rest, as now: which of them is to have more
is for people to say.

The prediction is `max_min_rates` of paper 2 for the present demand, and the part of a queue in a
flood, in which all queues of the cluster want everything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .shares import max_min_rates

#: The advised share is so many times the use: a queue's use is not the same in all seconds.
HEADROOM: Final = 1.5
#: A queue with this part of its entitlement is limited by it.
LIMITED: Final = 0.9
#: As in the node: queues without a share get this much together, and shares have this unit.
UNCLAIMED: Final = 0.05
UNIT: Final = 0.001


@dataclass(frozen=True, slots=True)
class QueueUse:
    """A queue's share, 0 for none, and the part of the nodes' time that it used."""

    queue: str
    share: float
    used: float


@dataclass(frozen=True, slots=True)
class ShareAdvice:
    queue: str
    used: float
    limited: bool
    share: float
    advised: float
    #: The predicted part of the nodes' time under the present demand, and the part of its present
    #: use that the queue keeps in a flood; now, and with all advised shares.
    rate_now: float
    rate_then: float
    kept_now: float
    kept_then: float

    @property
    def gain(self) -> float:
        """How much more of its present use the queue keeps in a flood."""
        return self.kept_then - self.kept_now


def entitlements(shares: Sequence[float]) -> list[float]:
    """The part of the time of each queue while all have work; a share of 0 is none."""
    claimed = math.fsum(shares)
    unclaimed = sum(not share for share in shares)
    if not unclaimed:
        return [share / claimed for share in shares]
    scale = min(1.0, (1 - UNCLAIMED) / claimed) if claimed else 1.0
    rest = (1 - claimed * scale) / unclaimed
    return [share * scale if share else rest for share in shares]


def advise_shares(queues: Sequence[QueueUse]) -> list[ShareAdvice]:
    """A share for each queue with work that is not limited; `queues` are all of the cluster.

    Nothing if no queue is limited, or all are: without competition shares change nothing.
    """
    uses = [each for each in queues if each.used > 0]
    if len(uses) < 2:
        return []
    total = math.fsum(each.used for each in uses)
    used = [each.used / total for each in uses]
    entitled = entitlements([each.share for each in uses])
    limited = [part >= LIMITED * most for part, most in zip(used, entitled, strict=True)]
    if all(limited) or not any(limited):
        return []
    shares = _advised(uses, used, limited)
    demand = [1.0 if at_limit else part for part, at_limit in zip(used, limited, strict=True)]
    rates_now = max_min_rates(entitled, demand, 1.0)
    rates_then = max_min_rates(entitlements(shares), demand, 1.0)
    idle = [each.share for each in queues if not each.used > 0]
    flood_now = entitlements([each.share for each in uses] + idle)
    flood_then = entitlements(shares + idle)
    return [
        ShareAdvice(
            each.queue, used[at], limited[at], each.share, shares[at], rates_now[at],
            rates_then[at], min(1.0, flood_now[at] / used[at]), min(1.0, flood_then[at] / used[at]),
        )
        for at, each in enumerate(uses)
    ]  # fmt: skip


def _advised(
    uses: Sequence[QueueUse], used: Sequence[float], limited: Sequence[bool]
) -> list[float]:
    """Shares of limited queues stay. All together leave the limited queues without a share what
    they use now, as far as the headroom goes."""
    kept = math.fsum(each.share for each, at_limit in zip(uses, limited, strict=True) if at_limit)
    wanted = HEADROOM * math.fsum(
        part for part, at_limit in zip(used, limited, strict=True) if not at_limit
    )
    scale = min(1.0, max(UNIT, 1 - UNCLAIMED - kept) / wanted)
    return [
        each.share if at_limit else math.ceil(HEADROOM * scale * part / UNIT) * UNIT
        for each, part, at_limit in zip(uses, used, limited, strict=True)
    ]
