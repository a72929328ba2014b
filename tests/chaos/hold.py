"""Workers that hold each message for seconds: a planned move must not void their leases.

Three kinds: `consume()` and `work()` of the Python client, and plain gRPC (pop, hold, ack through
any node). All record each received message; `processed_twice` finds messages received twice.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final

import weft
from tests.process.load import name_of
from tests.total_queue import Event, Kind
from weft.client.consumer.sync_message import Message
from weft.proto import weft_pb2 as pb
from weft.server.edges import grpc_receipts

from .journal import Journal
from .shutdown import ask as end_worker
from .shutdown import is_over
from .worker import WAIT_MS, Pace, Plain

HOLD_S: Final = 5.0
HOLD_LEASE_MS: Final = 30_000
#: Messages that one process holds at once.
HELD_MAX: Final = 8
#: Messages that `consume()` has prefetched beyond those.
PREFETCH: Final = 4
#: The name of the count of acks that the cluster refused.
LOST_LEASES: Final = "lost leases"
#: The name of the count of first deliveries with a delivery count above one.
COUNTED_AGAIN: Final = "delivery count above 1"


class Notes:
    """A journal that several threads share."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()

    def received(self, body: bytes, place: str, deliveries: int) -> str:
        name = name_of(body)
        with self._lock:
            self._journal.delivered(name, id=place)
            self._journal.counts[COUNTED_AGAIN] += deliveries > 1
            self._journal.flush()
        return name

    def acking(self, name: str) -> None:
        with self._lock:
            self._journal.ack_attempted(name)
            self._journal.flush()

    def confirmed(self, name: str) -> None:
        with self._lock:
            self._journal.ack_confirmed(name)
            self._journal.flush()

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self._journal.counts[what] += number

    def hold(self, message: Message) -> None:
        lent = message._lease.lent
        place = f"{lent.partition}/{lent.lsn}/{message._index}"
        name = self.received(message.body, place, message.deliveries)
        time.sleep(HOLD_S)
        self.acking(name)


class _SmartHolder:
    def __init__(
        self, number: int, queue: str, journal: Journal, pace: Pace, servers: list[str]
    ) -> None:
        self._notes = Notes(journal)
        self._queue = weft.connect(servers).queue(queue)


class ConsumeHolder(_SmartHolder):
    """``consume()``: one iterator, several threads that hold and ack."""

    def step(self) -> None:
        def lost(ids: Sequence[object]) -> None:
            self._notes.count(LOST_LEASES, len(ids))

        def hold(message: Message) -> None:
            try:
                self._notes.hold(message)
                message.ack()
                self._notes.count("held by consume")
            except weft.LeaseLost:
                pass  # counted by `lost`
            finally:
                free.release()

        free = threading.Semaphore(HELD_MAX)
        with (
            ThreadPoolExecutor(HELD_MAX) as pool,
            self._queue.consume(
                prefetch=PREFETCH, batch=PREFETCH, lease_ms=HOLD_LEASE_MS, on_lost=lost,
                idle_ms=1_000,
            ) as consumer,
        ):  # fmt: skip
            held = []
            free.acquire()
            for message in consumer:
                held.append(pool.submit(hold, message))
                free.acquire()
                if is_over():
                    break
            wait(held)
            for each in held:
                each.result()


class WorkHolder(_SmartHolder):
    """``work()``, which ends by itself on SIGTERM."""

    def step(self) -> None:
        stats = self._queue.work(
            self._notes.hold, concurrency=HELD_MAX, lease_ms=HOLD_LEASE_MS,
            retry=weft.Retry(attempts=100),
        )  # fmt: skip
        self._notes.count("held by work", stats.succeeded)
        self._notes.count(LOST_LEASES, stats.lost)
        self._notes.count("errors", stats.retried + stats.dead + stats.abandoned)
        end_worker()


class PlainHolder:
    """Plain gRPC: several clients, each with one message at a time."""

    def __init__(
        self, number: int, queue: str, journal: Journal, pace: Pace, servers: list[str]
    ) -> None:
        self._notes = Notes(journal)
        self._name = queue
        self._clients = [
            Plain(number + each, queue, journal, pace, servers) for each in range(HELD_MAX)
        ]

    def step(self) -> None:
        with ThreadPoolExecutor(HELD_MAX) as pool:
            list(pool.map(self._run, self._clients))

    def _run(self, client: Plain) -> None:
        request = pb.PopRequest(
            queue=self._name, limit=1, wait_ms=WAIT_MS, lease_ms=HOLD_LEASE_MS
        )  # fmt: skip
        while not is_over():
            popped = client.ask("Pop", request, WAIT_MS / 1000)
            for message in () if popped is None else popped.messages:
                self._hold(client, message)

    def _hold(self, client: Plain, message: Any) -> None:
        (partition, lsn, _), index = grpc_receipts.unpack(message.receipt)
        place = f"{partition}/{lsn}/{index}"
        name = self._notes.received(message.body, place, message.deliveries)
        time.sleep(HOLD_S)
        self._notes.acking(name)
        request = pb.AckRequest(queue=self._name, receipts=[message.receipt])
        settled = None
        while settled is None:  # may have succeeded: then the next answer is "already"
            settled = client.ask("Ack", request)
        if settled.lost:
            self._notes.count(LOST_LEASES)
        else:
            self._notes.confirmed(name)
            self._notes.count("held by plain gRPC")


def processed_twice(events: Iterable[Event]) -> list[str]:
    """Messages that workers received more than once, each with the times."""
    times: dict[str, list[float]] = {}
    for event in events:
        if event.kind is Kind.DELIVERED:
            times.setdefault(event.name, []).append(event.at)
    return [
        f"{name}: delivered at {', '.join(f'{at:.3f}' for at in each)}"
        for name, each in times.items()
        if len(each) > 1
    ]


def violations(events: Iterable[Event], counts: Counter[str]) -> dict[str, list[str]]:
    """Effects on held messages that a rolling restart must not have."""
    found = {"processed twice": processed_twice(events)}
    if counts[LOST_LEASES]:
        found[LOST_LEASES] = [f"{counts[LOST_LEASES]} acks were refused"]
    return {what: examples for what, examples in found.items() if examples}
