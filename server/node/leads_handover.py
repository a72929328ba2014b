"""The handover of a stopping node: its leads and leases move to other nodes before it ends.

A handover keeps the pause of the partitions short. Each phase is bounded in time, because a node
that cannot hand over must stop all the same: the others then take over as after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.dht.rebalancer import Handover
from weft.server.core.node_core import NodeCore

from .poller import Clock

#: Time for the handover, and the part of it in which the node waits for learners to catch up: after
#: that, the node only hands over its leads.
_HAND_OVER_US: Final = 2_000_000
_LEVEL_US: Final = 1_000_000
#: The same while an under-replicated sync set is about to get a copy, with this node in the set.
#: Together with the rest of a stop, the time fits into the 30 s granted by ``docker/compose.yaml``.
_REPLICATE_US: Final = 10_000_000
#: Time to stay up for members unaware of the handover; longer than the ping interval.
_FAREWELL_US: Final = 300_000
_LIMITS: Final = {Handover.MOVING: _HAND_OVER_US, Handover.UNDER_REPLICATED: _REPLICATE_US}


def hand_over(node_core: NodeCore, clock: Clock, run_round: Callable[[], None]) -> None:
    """Runs rounds until the handover is done or out of time."""
    began = recorded_at = clock.now_us()
    while True:
        now = clock.now_us()
        left = node_core.retire(hurry=now - began >= _LEVEL_US)
        if left is Handover.RECORDING:  # bounded by ``lease_handover.STOP_US_MAX``
            recorded_at = now
        elif now - recorded_at >= _LIMITS.get(left, 0):
            break
        run_round()
    if len(node_core.view.members) > 1:
        # Sockets close without waiting: a member that missed the view asks with a ping.
        until = clock.now_us() + _FAREWELL_US
        while clock.now_us() < until:
            run_round()
