"""The parts of a node's time that queues with work get, from the shares that they claim. Pure.

Shares of queues without work are not used up: a queue that claims no share gets an equal part of
what the queues *with work* do not claim, and all of these together get at least
`UNCLAIMED_PER_MILLE`. Claims above 1 are scaled down.
"""

from __future__ import annotations

from typing import Final

from weft.proto.settings import SHARE_WHOLE

#: The least part of the node's time for all queues without a share.
UNCLAIMED_PER_MILLE: Final = 50


class ShareClaims:
    """The claims of the queues with work, per mille; 0 is no claim."""

    def __init__(self) -> None:
        #: The sum of the claims, and the number of queues without a claim.
        self._claimed = self._unclaimed = 0

    def add(self, claim: int) -> None:
        self._claimed += claim
        self._unclaimed += not claim

    def remove(self, claim: int) -> None:
        self._claimed -= claim
        self._unclaimed -= not claim

    def part(self, claim: int) -> float:
        """The part of the node's time for one of the queues."""
        return part(claim, self._claimed, self._unclaimed)


def part(claim: int, claimed: int, unclaimed: int) -> float:
    """The part of the node's time for a queue with work that claims a share, per mille.

    `claimed`: the sum of the claims of all queues with work; `unclaimed`: the number of those
    without a claim. A `claim` of 0 is no claim. All parts together are 1.
    """
    if not unclaimed:
        return claim / claimed
    scale = min(1.0, (SHARE_WHOLE - UNCLAIMED_PER_MILLE) / claimed) if claimed else 1.0
    if claim:
        return claim * scale / SHARE_WHOLE
    return (1 - claimed * scale / SHARE_WHOLE) / unclaimed
