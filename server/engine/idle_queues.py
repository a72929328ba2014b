"""Queues with `expire_idle_ms`: how long each was not used on this node.

A queue is in use on a node while a pop waits for it, or messages are leased, reserved or staged,
and whenever a push, a pop or an ack has reached it since the last sample. The queue's counters say
so, so the data path does nothing for it. The catalogue's primary asks all nodes, and deletes a
queue that none has used for long enough (``core.queue_expiry``).

A look that comes late makes a queue look used for longer, never for less. A node that has just
started has used every queue.
"""

from __future__ import annotations

from .queue import QueueState
from .state import EngineState

_Counters = tuple[int, ...]


class IdleQueues:
    def __init__(self, state: EngineState) -> None:
        self._state = state
        #: By the queue's `created`: its counters at the last sample, and when it was last in use.
        self._seen: dict[int, tuple[_Counters, int]] = {}

    @property
    def any(self) -> bool:
        return bool(self._state.expiring)

    def sample(self) -> None:
        """Notes which queues were used since the last sample."""
        state, seen = self._state, self._seen
        self._seen = {}
        for created in state.expiring:
            queue = state.by_created[created]
            counters = _counters(queue)
            known, used_at = seen.get(created, (None, 0))
            if counters != known or _is_in_use(queue):
                used_at = state.now
            self._seen[created] = counters, used_at

    def idle_ms(self, name: str) -> int:
        """How long the queue was not used here; 0 for a queue that does not expire."""
        queue = self._state.queues.get(name)
        seen = self._seen.get(queue.created) if queue is not None else None
        if queue is None or seen is None or _is_in_use(queue) or _counters(queue) != seen[0]:
            return 0
        return max(0, self._state.now - seen[1]) // 1000

    def expired(self) -> list[str]:
        """The queues that were not used here for their `expire_idle_ms`."""
        queues = [self._state.by_created[created] for created in self._state.expiring]
        return sorted(
            queue.name
            for queue in queues
            if self.idle_ms(queue.name) >= queue.settings.expire_idle_ms
        )


def note(state: EngineState, queue: QueueState) -> None:
    """Called when a queue becomes known, changes or is dropped."""
    if queue.settings.expire_idle_ms and state.by_created.get(queue.created) is queue:
        state.expiring.add(queue.created)
    else:
        state.expiring.discard(queue.created)


def _is_in_use(queue: QueueState) -> bool:
    return bool(queue.waiters or queue.leased or queue.reserved or queue.staged)


def _counters(queue: QueueState) -> _Counters:
    return (
        queue.generation, queue.pushed, queue.duplicates, queue.delivered, queue.acked,
        queue.expired_leases, queue.dead_lettered, queue.empty_pops,
    )  # fmt: skip
