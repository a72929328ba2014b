"""The effects of commits, as the node core sees them: undelivered ones, and what may be decided."""

from __future__ import annotations

from collections.abc import Iterable

from . import outbox
from .state import EngineState


class CommitEffects:
    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._channels = state.channels

    @property
    def owing(self) -> list[int]:
        """The led partitions with deliveries to other partitions."""
        outboxes = self._channels.outboxes
        return [source for source in outboxes if outboxes[source].deliveries] if outboxes else []

    @property
    def undelivered(self) -> int:
        """The number of deliveries of the led partitions."""
        return sum(outbox.count for outbox in self._channels.outboxes.values())

    @property
    def dropped(self) -> int:
        """Messages and table writes of commits that could not be carried out; see ``outbox``."""
        return self._channels.dropped

    @property
    def used(self) -> bool:
        """True if a partition of this node has, or had, effects on other partitions."""
        return bool(self._channels.outboxes or self._channels.marks)

    def set_alone(self, alone: bool) -> None:
        """This node is its whole cluster, and one write has the changes of all partitions."""
        self._channels.alone = alone

    def set_peers_know_commits(self, know: bool) -> None:
        self._channels.peers_know_commits = know

    def owes(self, source: int) -> bool:
        return outbox.owes(self._state, source)

    def set_refusing(self, source: int, destinations: Iterable[int]) -> None:
        """The destinations that cannot take deliveries now: the next pages leave them out."""
        if source in self._channels.outboxes:
            self._channels.outboxes[source].refusing = set(destinations)

    def close(self, source: int, channel: int, destination: int, number: int) -> None:
        """Deletes the deliveries that a destination has taken."""
        outbox.close(self._state, source, channel, destination, number)

    def knows(self, queues: Iterable[int]) -> bool:
        """True if no queue of these ids can be newer than the catalogue of this node."""
        return outbox.knows(self._state, queues)
