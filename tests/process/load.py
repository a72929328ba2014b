"""Producers and consumers that survive the death of their node, and record a history.

A producer sends each batch under one (producer, batch) until acknowledged, however often the node
dies meanwhile; now and then it sends a batch twice on purpose, or resends an old one. A consumer
acks some messages, nacks some, and lets some expire. The effect of an unanswered call is unknown,
and the history has it as an attempt.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import xxhash

from tests.process.wire_client import Loan, Refused, Silence, WireClient
from tests.total_queue import Event, History, Kind
from weft.proto import wire

QUEUE: Final = "load"
#: Timeout of a call to a node that was killed.
PATIENCE_MS: Final = 400
#: The lease of a pop that will be settled, and of one that is left to expire.
LEASE_MS: Final = 5000
SHORT_LEASE_MS: Final = 150
DELAY_MS_MAX: Final = 300
#: Old batches that a producer may send again.
REMEMBERED_MAX: Final = 200
#: Possible answers of a stopping node; the call is retried.
STOPPING: Final = frozenset({"SHUTTING_DOWN"})


class Abandoned(Exception):
    """The test is over, and has failed."""


class Place(NamedTuple):
    """The node's present address; `life` counts its starts."""

    life: int
    address: str


class Target:
    """The present address of the node: threads wait here while the node is down."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._place = Place(0, "")
        self.over = False
        self._abandoned = False

    def moved(self, address: str) -> None:
        with self._changed:
            self._place = Place(self._place.life + 1, address)
            self._changed.notify_all()

    def finish(self) -> None:
        """Start no new work; finish the work in progress."""
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """The test has failed and the node is gone: stop waiting for it."""
        self._abandoned = True
        self.finish()

    def place(self) -> Place:
        return self._place

    def after(self, life: int) -> Place | None:
        """Wait briefly for a later start of the node."""
        if self._abandoned:
            raise Abandoned
        with self._changed:
            self._changed.wait_for(lambda: self._place.life > life, PATIENCE_MS / 1000)
            return self._place if self._place.life > life else None


def bodies_of(producer: int, batch: int, count: int) -> list[bytes]:
    """A batch's bodies: each consists of its own name and a tail derived from the name."""
    return [_body(f"{producer}-{batch}-{index}") for index in range(count)]


def name_of(body: bytes) -> str:
    """The name in a body; the body must be unchanged."""
    name = body.split(b" ", 1)[0].decode()
    assert body == _body(name), f"a changed body: {body[:100]!r}"
    return name


def _body(name: str) -> bytes:
    digest = xxhash.xxh3_128_digest(name.encode())
    return name.encode() + b" " + digest * (1 + digest[0] % 16)


def note_delivered(
    history: History, loans: list[Loan], began: float, received: float
) -> list[list[str]]:
    """Record the messages of one pop; return the names of each loan.

    `received` must be read as soon as the answer arrives: otherwise a slow consumer would seem to
    have received a message after the restarted node had lent it again. The id is the place in the
    store, so a batch that is stored twice has two.
    """
    named = []
    for lent, bodies in loans:
        names = [name_of(body) for body in bodies]
        assert len(names) == lent.count
        place, lease_s = f"{lent.partition}/{lent.lsn}", lent.lease_ms / 1000
        history.events += [
            Event(received, Kind.DELIVERED, name, f"{place}/{index}", began, lease_s)
            for index, name in enumerate(names, lent.first)
        ]
        named.append(names)
    return named


class Worker(threading.Thread):
    """A thread with a connection to the node. The test re-raises an exception of the thread."""

    def __init__(self, name: str, target: Target, history: History, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.target = target
        self.history = history
        self.rng = random.Random(f"{seed}/{name}")
        self.counts: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._life = 0
        self._client: WireClient | None = None

    def run(self) -> None:
        try:
            while not self.target.over:
                self.step()
        except BaseException as error:  # re-raised in the test's own thread by `working`
            self.error = error
        finally:
            if self._client is not None:
                self._client.close()

    def step(self) -> None:
        raise NotImplementedError

    def client(self) -> WireClient:
        """A connection to the node's present process; raises Silence while there is none."""
        place = self.target.place()
        if self._client is None or self._life != place.life:
            if place.life == 0:
                raise Silence
            if self._client is not None:
                self._client.close()
            self._life, self._client = place.life, WireClient(place.address, timeout_ms=PATIENCE_MS)
        return self._client

    def unanswered(self) -> None:
        """A call was not answered: wait for the node's next start, or try this one again."""
        self.counts["unanswered"] += 1
        self.target.after(self._life)


class Producer(Worker):
    def __init__(self, number: int, target: Target, history: History, seed: int) -> None:
        super().__init__(f"producer-{number}", target, history, seed)
        self.number = number
        self._next = 0
        self._old: list[tuple[int, int]] = []

    def step(self) -> None:
        rng = self.rng
        if self._old and rng.random() < 0.05:
            batch, count = rng.choice(self._old)
            self.history.attempted(*(f"{self.number}-{batch}-{i}" for i in range(count)))
            assert self._push(batch, count, 0, twice=False).duplicate, f"batch {batch} is forgotten"
            self.counts["old pushes sent again"] += 1
            return
        batch, self._next = self._next, self._next + 1
        count = rng.choice((1, rng.randint(2, 20), rng.randint(21, 500)))
        delay_ms = rng.randint(1, DELAY_MS_MAX) if rng.random() < 0.15 else 0
        names = [f"{self.number}-{batch}-{index}" for index in range(count)]
        self.history.attempted(*names)
        self._push(batch, count, delay_ms, twice=rng.random() < 0.1)
        self.history.acknowledged(*names)
        self.counts["batches"] += 1
        self._old = [*self._old[-REMEMBERED_MAX:], (batch, count)]
        time.sleep(rng.random() * 0.03)

    def _push(self, batch: int, count: int, delay_ms: int, *, twice: bool) -> wire.Pushed:
        """Send the batch until acknowledged."""
        payload = wire.encode(wire.Payload(bodies_of(self.number, batch, count)))
        request = wire.Push(QUEUE, self.number, batch, count, delay_ms)
        while True:
            try:
                client = self.client()
                if twice:
                    client.send(request, payload)
                answer, _ = client.ask(request, payload)
            except Silence:
                self.unanswered()
                continue
            except Refused as refused:
                if refused.code not in STOPPING:
                    raise
                self.unanswered()
                continue
            assert isinstance(answer, wire.Pushed)
            assert (answer.producer, answer.batch, answer.count) == (self.number, batch, count)
            assert not twice or answer.duplicate, "the second of two was taken for a new push"
            self.counts["duplicates recognised"] += answer.duplicate
            return answer


class Consumer(Worker):
    def step(self) -> None:
        expire = self.rng.random() < 0.1
        lease_ms = SHORT_LEASE_MS if expire else LEASE_MS
        began = time.monotonic()
        try:
            loans = self.client().pop(
                QUEUE, self.rng.randint(1, 600), wait_ms=PATIENCE_MS // 4, lease_ms=lease_ms
            )
        except (Silence, Refused) as error:
            _only_stopping(error)
            self.unanswered()
            return
        named = note_delivered(self.history, loans, began, time.monotonic())
        for loan, names in zip(loans, named, strict=True):
            self.counts["deliveries"] += len(names)
            if not expire:
                self._settle(loan, names)

    def _settle(self, loan: Loan, names: list[str]) -> None:
        kind = self.rng.random()
        first, every = loan.lent.first, range(len(names))
        acked = [i for i in every if i % 2] if kind < 0.1 else [] if kind < 0.2 else list(every)
        nacked = sorted(set(every) - set(acked))
        if acked:
            receipt = loan.receipt([first + i for i in acked] if nacked else None)
            self._ack(receipt, [names[i] for i in acked])
        if nacked:
            receipt = loan.receipt([first + i for i in nacked] if acked else None)
            self._nack(receipt, [names[i] for i in nacked])

    def _ack(self, receipt: wire.Receipt, names: list[str]) -> None:
        self.history.ack_attempted(*names)
        try:
            settled = self.client().ack(QUEUE, [receipt])
        except (Silence, Refused) as error:
            # Not retried: after a restart the receipt is void, whether the first ack succeeded or
            # not.
            _only_stopping(error)
            self.counts["acks in doubt"] += len(names)
            self.unanswered()
            return
        if settled.lost:
            assert settled.done == 0
            self.history.ack_refused(*names)
        else:
            assert settled.done == len(names), settled
            self.history.ack_confirmed(*names)
            self.counts["acks"] += len(names)

    def _nack(self, receipt: wire.Receipt, names: list[str]) -> None:
        self.history.nacked(*names)
        try:
            self.client().nack(QUEUE, [receipt], delay_ms=self.rng.choice((0, 0, 50)))
        except (Silence, Refused) as error:
            _only_stopping(error)
            self.unanswered()
        self.counts["nacks"] += len(names)


def _only_stopping(error: Silence | Refused) -> None:
    if isinstance(error, Refused) and error.code not in STOPPING:
        raise error


@contextmanager
def working(workers: list[Worker], target: Target, down: Callable[[], None]) -> Iterator[None]:
    """Run the workers for the length of a block; raise the first error of any.

    `down` ends the node if the block itself fails, so that no worker waits for it.
    """
    for worker in workers:
        worker.start()
    try:
        yield
    except BaseException:
        down()
        target.abandon()
        raise
    finally:
        target.finish()
        for worker in workers:
            worker.join(timeout=200)
    for worker in workers:
        if worker.error is not None:
            raise worker.error
        assert not worker.is_alive(), f"{worker.name} hangs"


def drain(client: WireClient, history: History, deadline_s: float = 200) -> None:
    """Pop and ack until the queue is empty, delayed messages included."""
    deadline = time.monotonic() + deadline_s
    while True:
        began = time.monotonic()
        loans = client.pop(QUEUE, 4000, wait_ms=50, lease_ms=60_000)
        named = note_delivered(history, loans, began, time.monotonic())
        for loan, names in zip(loans, named, strict=True):
            history.ack_attempted(*names)
            settled = client.ack(QUEUE, [loan.receipt()])
            assert settled.done == len(names), settled
            history.ack_confirmed(*names)
        left = client.describe(QUEUE)
        if not loans and not left.ready + left.leased + left.delayed:
            return
        assert time.monotonic() < deadline, f"the queue cannot be drained: {left}"
