"""Ready messages by queue, as the metadata lists see them."""

from __future__ import annotations

import msgspec

from weft.proto import wire

from .state import EngineState


class ReadyQueues:
    def __init__(self, state: EngineState) -> None:
        self._state = state

    def count(self, name: str) -> int:
        """The number of messages of a queue that a pop could take on this node now."""
        queue = self._state.queues.get(name)
        return queue.ready if queue is not None and queue.has_some else 0

    def names(self) -> set[str]:
        return {name for name, queue in self._state.queues.items() if queue.ready}

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
