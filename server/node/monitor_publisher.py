"""Publishes the node's figures into a queue of the cluster: monitoring through the queue itself.

Paper 4 names this as future work. Once a second the node pushes one batch through the path of every
plain client: a message for each queue, as a flat JSON object, so that a stream processor can read,
window and join the samples. A consumer of the queue needs the permission for it, as for any queue.

The publisher runs in a thread of its own and asks the node's thread for the figures step by step,
as the metrics do. Invariants: at most one push is under way, so a slow cluster gets fewer samples
and no backlog; a sample that is refused is dropped, since the next one replaces it; the publisher
never delays the node's stop.
"""

from __future__ import annotations

import itertools
import json
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Protocol

from weft import ids
from weft.limits import BATCH_COUNT_MAX, SECOND_MS
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.observability.log import fields
from weft.server.observability.node_stats import NodeStats
from weft.server.security.caller import Caller

from .node_api import OnAnswer

log = logging.getLogger(__name__)

#: Seconds between two samples, and for which the node may not answer.
INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 10.0
#: The queue is created with these settings if it is missing: nobody may read it for a day.
SETTINGS: Final = Settings(
    retention_ms=24 * 3600 * SECOND_MS, max_messages=1_000_000, dedup_window_ms=10 * SECOND_MS
)
#: The fields of a queue's sample, as in `weft queue show --json`.
QUEUE_FIELDS: Final = (
    "ready", "leased", "delayed", "bytes", "oldest_ms", "pushed", "delivered", "acked",
    "dead_lettered", "expired_leases", "waiting_pops", "probes", "empty_probes", "blocked_pops",
    "blocked_us", "full_buffers", "room_wait_us",
)  # fmt: skip
#: Settings in a sample: a change explains a change of the figures.
SETTING_FIELDS: Final = ("kind", "buffers", "max_hops", "access")
#: The fields of the node in each sample.
NODE_FIELDS: Final = ("uptime_ms", "commits", "cpu_us", "rss_bytes", "free_bytes")


class MonitoredNode(Protocol):
    """The node, as the publisher needs it: see ``node``."""

    def submit(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        who: Caller = ...,
    ) -> int: ...
    def look(self, look: Callable[[], None]) -> bool: ...
    def node_stats(self, *, queues: bool) -> Generator[None, None, NodeStats]: ...


class MonitorPublisher:
    """`start` after the node serves, `stop` before it stops."""

    def __init__(self, node: MonitoredNode, name: str, interval_s: float = INTERVAL_S) -> None:
        self._node = node
        self._name = name
        self._interval_s = interval_s
        self._producer = secrets.randbits(ids.PRODUCER_BITS)
        self._batches = itertools.count(1)
        self._who = Caller(None, "the node's monitor")
        self._ended = threading.Event()
        #: The code of the last refusal: each is logged once until a sample is stored.
        self._refused = ""
        self._thread = threading.Thread(target=self._run, name="weft-monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            stats = self._stats()
            if stats is not None and stats.queues:
                self._publish(stats)

    def _publish(self, stats: NodeStats) -> None:
        bodies = samples(stats, int(time.time() * 1000))[:BATCH_COUNT_MAX]
        payload = wire.encode(wire.Payload(bodies))
        push = wire.Push(self._name, self._producer, next(self._batches), len(bodies))
        answer = self._ask(push, payload)
        if isinstance(answer, wire.Failure) and answer.code == "QUEUE_NOT_FOUND":
            made = self._ask(wire.CreateQueue(self._name, SETTINGS))
            if isinstance(made, wire.Created):
                log.info("created the monitor queue", extra=fields(queue=self._name))
            answer = self._ask(push, payload)
        self._note(answer)

    def _note(self, answer: wire.AnyAnswer | None) -> None:
        if not isinstance(answer, wire.Failure):
            self._refused = "" if answer is not None else self._refused
        elif answer.code != self._refused and not self._ended.is_set():
            self._refused = answer.code
            log.warning(
                "the monitor queue takes no samples",
                extra=fields(queue=self._name, code=answer.code, why=answer.message),
            )

    def _ask(self, request: wire.AnyRequest, *payload: bytes) -> wire.AnyAnswer | None:
        """The node's answer; None if the publisher ends, or the node takes too long."""
        said: queue.SimpleQueue[wire.AnyAnswer] = queue.SimpleQueue()
        self._node.submit(request, payload, lambda answer, _: said.put(answer), self._who)
        answer: wire.AnyAnswer | None = self._awaited(said)
        return answer

    def _stats(self) -> NodeStats | None:
        """The node's figures, each step in the node's own thread."""
        work = self._node.node_stats(queues=True)
        said: queue.SimpleQueue[NodeStats | None] = queue.SimpleQueue()

        def step() -> None:
            try:
                next(work)
            except StopIteration as end:
                said.put(end.value)
            else:
                self._node.look(step)

        return self._awaited(said) if self._node.look(step) else None

    def _awaited(self, said: queue.SimpleQueue[Any]) -> Any:
        until = time.monotonic() + PATIENCE_S
        while not self._ended.is_set() and time.monotonic() < until:
            try:
                return said.get(timeout=0.1)
            except queue.Empty:
                continue
        return None


def samples(stats: NodeStats, at_ms: int) -> list[bytes]:
    """One flat JSON object for each queue."""
    node = {name: getattr(stats.status, name) for name in NODE_FIELDS}
    head = {"at_ms": at_ms, "node": stats.status.node, **node}
    return [
        json.dumps(
            head
            | {
                "queue": each.name,
                **{name: getattr(each.settings, name) for name in SETTING_FIELDS},
            }
            | {name: getattr(each, name) for name in QUEUE_FIELDS}
        ).encode()
        for each in stats.queues
    ]
