"""One load process.

``python -m tests.chaos.worker ROLE NUMBER QUEUE JOURNAL PACE SERVER...``

Smart workers use the Python client with all servers. Plain workers use gRPC only: one node at a
time, the next one after a failure, with the same (producer, batch) until acknowledged.

A consumer acks most messages, nacks some, lets some expire, and dies now and then with messages in
hand. A refused ack is left in doubt: an earlier attempt of the same call may have succeeded.
SIGTERM ends a worker after its current step; a worker without its parent ends by itself.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import msgspec

import weft
from tests.chaos import shutdown
from tests.chaos.journal import Journal
from tests.process.load import bodies_of, name_of
from weft.client.consumer.sync_message import Message
from weft.errors import LeaseLost, WeftError
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.server.edges import grpc_receipts

#: The exit code of a consumer that has died on purpose.
DIED: Final = 9
NICENESS: Final = 2
LEASE_MS: Final = 4_000
WAIT_MS: Final = 300
POP_MAX: Final = 20
#: Timeout of a plain client's attempt at one node: shorter than a failover, so that attempts at the
#: dead node, or at a node that waits for it, end soon after the failover.
ATTEMPT_S: Final = 1.0


class Pace(msgspec.Struct, frozen=True, array_like=True):
    """The rate of the load; times in seconds."""

    #: A producer's longest pause between two batches.
    pause_s_max: float = 0.03
    #: Shortest and longest life of a consumer before it dies with messages in hand.
    life_s: tuple[float, float] = (4.0, 12.0)


class Worker(Protocol):
    def step(self) -> None: ...


class Names:
    """Bodies that no other process makes."""

    def __init__(self, producer: int, rng: random.Random) -> None:
        self.producer = producer
        self.batch = -1
        self._rng = rng

    def next(self) -> tuple[list[str], list[bytes]]:
        self.batch += 1
        count = self._rng.choice((1, 1, 1, self._rng.randint(2, 12)))
        names = [f"{self.producer}-{self.batch}-{index}" for index in range(count)]
        return names, bodies_of(self.producer, self.batch, count)


class SmartProducer:
    def __init__(
        self, number: int, queue: str, journal: Journal, pace: Pace, servers: list[str]
    ) -> None:
        self._journal = journal
        self._pace = pace
        self._rng = random.Random()
        self._names = Names(number, self._rng)
        self._queue = weft.connect(servers).queue(queue)

    def step(self) -> None:
        names, bodies = self._names.next()
        self._journal.attempted(*names)
        try:
            self._queue.push_many(bodies)
            self._journal.acknowledged(*names)
            self._journal.counts["pushes"] += len(names)
        except WeftError as error:
            _visible(self._journal, error)
        time.sleep(self._rng.random() * self._pace.pause_s_max)


class SmartConsumer:
    def __init__(
        self, number: int, queue: str, journal: Journal, pace: Pace, servers: list[str]
    ) -> None:
        self._journal = journal
        self._rng = random.Random()
        self._queue = weft.connect(servers).queue(queue)
        self._dies_at = time.monotonic() + self._rng.uniform(*pace.life_s)

    def step(self) -> None:
        began = time.monotonic()
        try:
            messages = self._queue.pop_many(POP_MAX, wait_ms=WAIT_MS, lease_ms=LEASE_MS)
        except WeftError as error:
            _visible(self._journal, error)
            return
        for message in messages:
            name, lent = name_of(message.body), message._lease.lent
            place = f"{lent.partition}/{lent.lsn}/{message._index}"
            self._journal.delivered(name, id=place, began=began, lease_s=message.lease_ms / 1000)
        if messages and time.monotonic() > self._dies_at:
            self._journal.counts["deaths"] += 1
            self._journal.close()
            os._exit(DIED)
        by_lease: dict[int, list[Message]] = {}
        for message in messages:
            by_lease.setdefault(id(message._lease), []).append(message)
        for together in by_lease.values():
            self._settle(together)

    def _settle(self, messages: list[Message]) -> None:
        names = [name_of(message.body) for message in messages]
        kind = self._rng.random()
        try:
            if kind < 0.05:
                self._journal.nacked(*names)
                self._queue.nack_many(messages)
                self._journal.counts["nacks"] += len(names)
            elif kind > 0.02 + 0.05:  # the rest expires
                self._journal.ack_attempted(*names)
                self._queue.ack_many(messages)
                self._journal.ack_confirmed(*names)
                self._journal.counts["acks"] += len(names)
        except LeaseLost:
            self._journal.counts["refused"] += len(names)
        except WeftError as error:
            _visible(self._journal, error)


class Plain:
    """A gRPC client of one node, and of the next one when that fails."""

    def __init__(
        self, number: int, queue: str, journal: Journal, pace: Pace, servers: list[str]
    ) -> None:
        self._journal = journal
        self._pace = pace
        self._rng = random.Random()
        self._name = queue
        self._servers = servers
        self._at = number
        self._names = Names(number, self._rng)
        self._connect()

    def _connect(self) -> None:
        address = self._servers[self._at % len(self._servers)]
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        self._channel = grpc.insecure_channel(address, options=options)
        self._stub = weft_pb2_grpc.QueueStub(self._channel)  # type: ignore[no-untyped-call]

    def ask(self, call: str, request: Any, wait_s: float = 0.0) -> Any | None:
        """Call one node; None after a failure, which may have come after the execution."""
        try:
            return getattr(self._stub, call)(request, timeout=wait_s + ATTEMPT_S)
        except grpc.RpcError as error:
            if _code(error) not in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
                grpc.StatusCode.CANCELLED,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
            ):
                _visible(self._journal, error)
            self._journal.counts["plain retries"] += 1
            _tell(f"{call} at {self._servers[self._at % len(self._servers)]}", error)
            self._channel.close()
            self._at += 1
            self._connect()
            time.sleep(0.02)
            return None


class PlainProducer(Plain):
    def step(self) -> None:
        names, bodies = self._names.next()
        self._journal.attempted(*names)
        request = pb.PushRequest(
            queue=self._name,
            messages=[pb.OutMessage(body=body) for body in bodies],
            producer=self._names.producer,
            batch=self._names.batch,
        )
        while self.ask("Push", request) is None:
            if shutdown.is_over():
                return
        self._journal.acknowledged(*names)
        self._journal.counts["plain pushes"] += len(names)
        time.sleep(self._rng.random() * self._pace.pause_s_max)


class PlainConsumer(Plain):
    def step(self) -> None:
        began = time.monotonic()
        request = pb.PopRequest(queue=self._name, limit=POP_MAX, wait_ms=WAIT_MS, lease_ms=LEASE_MS)
        popped = self.ask("Pop", request, WAIT_MS / 1000)
        if popped is None or not popped.messages:
            return
        names = []
        for message in popped.messages:
            (partition, lsn, _), index = grpc_receipts.unpack(message.receipt)
            names.append(name_of(message.body))
            self._journal.delivered(
                names[-1],
                id=f"{partition}/{lsn}/{index}",
                began=began,
                lease_s=message.lease_ms / 1000,
            )
        held = [message.receipt for message in popped.messages]
        if self._rng.random() < 0.05:
            self._journal.nacked(*names)
            self.ask("Nack", pb.NackRequest(queue=self._name, receipts=held))
            return
        self._journal.ack_attempted(*names)
        settled = self.ask("Ack", pb.AckRequest(queue=self._name, receipts=held))
        if settled is not None:
            lost = set(settled.lost)
            done = [name for name, each in zip(names, held, strict=True) if each not in lost]
            self._journal.ack_confirmed(*done)
            self._journal.counts["plain acks"] += len(done)
            self._journal.counts["refused"] += len(lost)


def _sundry(number: int, queue: str, journal: Journal, pace: Pace, servers: list[str]) -> Worker:
    from tests.chaos.sundry import Sundry  # circular import

    return Sundry(number, queue, journal, pace, servers)


def _holder(
    kind: str, number: int, queue: str, journal: Journal, pace: Pace, servers: list[str]
) -> Worker:
    from tests.chaos import hold  # circular import

    worker: Worker = getattr(hold, kind)(number, queue, journal, pace, servers)
    return worker


Make = Callable[[int, str, Journal, Pace, list[str]], Worker]
ROLES: Final[dict[str, Make]] = {
    "producer": SmartProducer,
    "consumer": SmartConsumer,
    "plain-producer": PlainProducer,
    "plain-consumer": PlainConsumer,
    "sundry": _sundry,
    "consume-holder": partial(_holder, "ConsumeHolder"),
    "work-holder": partial(_holder, "WorkHolder"),
    "plain-holder": partial(_holder, "PlainHolder"),
}


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None


def _visible(journal: Journal, error: Exception) -> None:
    """An error that the application would see."""
    journal.counts["errors"] += 1
    _tell("seen by the application", error)


def _tell(what: str, error: Exception) -> None:
    said = f"{error.code()}, {error.details()}" if isinstance(error, grpc.Call) else str(error)
    text = f"{time.monotonic():.3f} {what}: {type(error).__name__}: {said}"
    print(text, file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> None:
    role, number, queue, path, pace, *servers = words
    signal.signal(signal.SIGTERM, shutdown.ask)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    os.nice(NICENESS)
    journal = Journal(Path(path))
    made = msgspec.json.decode(pace, type=Pace)
    worker = ROLES[role](int(number), queue, journal, made, servers)
    while not shutdown.is_over():
        worker.step()
        journal.flush()
    journal.close()
    os._exit(0)  # clients are not closed: they may be waiting for nodes that are down


if __name__ == "__main__":
    main(sys.argv[1:])
