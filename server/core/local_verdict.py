"""The verdict on the cluster as seen by this node, without asking other nodes. Pure.

Used where an answer must not wait for other nodes: ``/readyz``, the metrics, and the refusal of
requests for partitions that cannot be served. The node knows the view, the members that are alive,
and the state of its own replicas. For partitions of other primaries, the node assumes service while
their sync sets are alive.

While every member is alive, no partition can be blocked. So a healthy cluster pays for one pass
over its members in `POLL_US`, at any load.
"""

from __future__ import annotations

from typing import Final

from weft.dht.core import Core
from weft.dht.role import Role
from weft.dht.safety import Observation, Verdict, assess

#: How long the node reuses a computed set of blocked partitions.
POLL_US: Final = 200_000


class LocalVerdict:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._update_at = 0
        self._blocked: frozenset[int] = frozenset()
        self._outage = ""
        self._last: tuple[tuple[object, ...], Verdict] | None = None

    def verdict(self) -> Verdict:
        """The present verdict; computed again only when an input has changed."""
        seen = self._observe()
        key = (seen.view.version, seen.alive, tuple(seen.roles), tuple(map(str, seen.lag)))
        if self._last is None or self._last[0] != key:
            self._last = key, assess(seen, self._core.size)
        return self._last[1]

    def outage(self, number: int | None = None) -> str:
        """Why a partition (None: any) cannot be served until a dead node returns; "" if served."""
        self._update()
        if not self._blocked or (number is not None and number not in self._blocked):
            return ""
        return self._outage

    def _update(self) -> None:
        core = self._core
        if core.now < self._update_at:
            return
        self._update_at = core.now + POLL_US
        if len(self._alive()) == len(core.view.members):
            self._blocked, self._outage = frozenset(), ""
            return
        verdict = self.verdict()
        self._blocked, self._outage = frozenset(verdict.blocked), verdict.outage

    def _observe(self) -> Observation:
        core = self._core
        roles: list[str | None] = []
        lag: list[dict[str, int]] = []
        for number, place in enumerate(core.view.places):
            replica = core.replicas.get(number)
            own = replica is not None and place.primary == core.node
            roles.append(replica.role.value if replica is not None and own else None)
            active = replica is not None and own and replica.role is Role.ACTIVE
            lag.append(replica.lag() if replica is not None and active else {})
        return Observation(core.view, self._alive(), roles, lag, core.node)

    def _alive(self) -> frozenset[str]:
        core = self._core
        return frozenset(n for n in core.view.members if n == core.node or core.met(n))
