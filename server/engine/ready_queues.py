"""Ready messages by queue, as the metadata lists see them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from weft.proto import wire

from .queue import QueueState
from .state import EngineState


class ReadyQueues:
    def __init__(self, state: EngineState) -> None:
        self._state = state

    def count(self, name: str) -> int:
        """The number of messages of a queue that a pop could take on this node now; 0 for a
        stochastic queue, since its consumers probe the nodes and use no metadata list."""
        queue = self._state.queues.get(name)
        return queue.takeable if queue is not None and queue.buffer is None else 0

    def is_ordered(self, name: str) -> bool | None:
        """None: this node does not know the queue."""
        known = self._state.queues.get(name)
        return None if known is None else known.settings.ordered

    def is_unordered(self, name: str) -> bool:
        """True if the queue is known, and is neither ordered, grouped, stochastic nor limited."""
        known = self._state.queues.get(name)
        if known is None or known.buffer is not None or known.limits is not None:
            return False
        return not (known.settings.ordered or known.settings.grouped)

    @property
    def stochastic(self) -> Mapping[str, QueueState]:
        """The known stochastic queues by name, for reading; the mapping stays the same object."""
        return self._state.stochastic

    def probe(self, name: str) -> wire.ProbeReport | None:
        """This node's report of a stochastic queue; None for other queues, and unknown queues."""
        known = self._state.queues.get(name)
        if known is None or known.buffer is None:
            return None
        return known.buffer.report(known.settings, self._state.now)

    def names(self) -> set[str]:
        """The queues with ready messages that have a metadata list: a stochastic queue has none."""
        queues = self._state.queues.items()
        return {name for name, queue in queues if queue.ready and queue.buffer is None}

    @property
    def changed(self) -> bool:
        """True if queues have become ready, or were marked, since `take_changed`."""
        return bool(self._state.became_ready)

    def mark(self, name: str) -> None:
        """Has the queue announced in this round, although it did not become ready."""
        self._state.became_ready.add(name)

    def take_changed(self) -> set[str]:
        changed, self._state.became_ready = self._state.became_ready, set()
        return changed

    def report_fall(self, to: object, fell: tuple[int, int]) -> bool:
        """Adds to the answer of a pop of this round that the queue is empty now.

        False if the last answer of the round is no such answer.
        """
        answers = self._state.answers
        if not answers or answers[-1].to != to or not isinstance(answers[-1].answer, wire.Popped):
            return False
        answer = msgspec.structs.replace(answers[-1].answer, fell=fell)
        answers[-1] = answers[-1]._replace(answer=answer)
        return True
