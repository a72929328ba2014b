"""Deletes queues with `expire_idle_ms` that no node has used for that long.

Only the catalogue's primary decides, once a second. It asks all nodes that may hold messages, and
deletes a queue if each of them answers that the queue was idle for long enough. A node that does
not answer may have used the queue: the queue then stays until a later look. The delete is the same
operation as a client's; a queue that a topic feeds, or that is a dead-letter queue, stays.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final, Protocol

from weft.proto import wire
from weft.server.engine.engine import Engine

from .catalogue_operations import catalogue
from .cluster_host import ClusterHost
from .operation import Operation, Question

#: The interval of samples, and the precision of `expire_idle_ms`.
POLL_US: Final = 1_000_000
#: Queues in one question, at most.
ASK_MAX: Final = 1_000


class QueueExpiryHost(ClusterHost, Protocol):
    @property
    def engine(self) -> Engine: ...
    @property
    def led(self) -> Set[int]: ...
    def run_operation(self, operation: Operation) -> None: ...


class QueueExpiry:
    def __init__(self, host: QueueExpiryHost) -> None:
        self._host = host
        self._idle = host.engine.idle_queues
        self._sample_at = 0
        self._busy = False

    def next_due(self) -> int | None:
        return self._sample_at if self._idle.any else None

    def work(self, now: int) -> None:
        if now < self._sample_at or not self._idle.any:
            return
        self._sample_at = now + POLL_US
        self._idle.sample()
        host = self._host
        if host.view.catalogue not in host.led or self._busy:
            return
        if expired := self._idle.expired()[:ASK_MAX]:
            self._busy = True
            host.run_operation(self._expire(expired))

    def _expire(self, names: list[str]) -> Operation:
        try:
            host = self._host
            members = host.view.members
            nodes = [node for node in members if not members[node].witness]
            said = yield [Question(node, wire.IdleTimes(names)) for node in nodes]
            idle = [answer.idle_ms for answer, _ in said if isinstance(answer, wire.IdleFor)]
            if len(idle) == len(nodes):
                for name, times in zip(names, zip(*idle, strict=True), strict=True):
                    known = host.engine.queues.get(name)
                    if known is not None and min(times) >= known.settings.expire_idle_ms > 0:
                        yield from catalogue(host, wire.DeleteQueue(name), ())
            return wire.Done(), ()
        finally:
            self._busy = False
