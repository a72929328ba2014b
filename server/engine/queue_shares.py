"""The shares of queues in the node's time, and of the node in limits, for the rest of the node."""

from __future__ import annotations

from .state import EngineState


class QueueShares:
    def __init__(self, state: EngineState) -> None:
        self._state = state

    @property
    def limited_queue(self) -> str:
        """The name of a queue with a share or a limit; "" if this node knows none."""
        queues = self._state.queues.items()
        return next((name for name, each in queues if each.settings.has_limits), "")

    def of(self, queue: str) -> int:
        """The share that a queue claims, per mille; 0: an equal part of what is not claimed."""
        found = self._state.queues.get(queue)
        return 0 if found is None else found.settings.share

    def divide(self, leads: list[int], place: int) -> None:
        """Divides limits between the nodes by the partitions that each leads: see `ClusterPart`."""
        self._state.cluster_part.divide(leads, place)

    def lent_bytes(self, queue: str) -> int:
        """The bytes that pops of a queue have got since the node started."""
        found = self._state.queues.get(queue)
        return 0 if found is None else found.lent_bytes

    def note(self, queue: str, used_us: int, total_us: int) -> None:
        """Records the recent use of the node's time by a queue, for the queue's stats."""
        found = self._state.queues.get(queue)
        if found is not None:
            found.charged_us, found.charged_total_us = used_us, total_us
