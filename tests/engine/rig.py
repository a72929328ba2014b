"""A node without a network, a disk or a clock: the engine driven as by the real driver.

One `round` does the steps of a node's round in the same order: begin, handle the requests, end, one
synced write, then the answers. Time is virtual and advances only when a test advances it (and by
`ROUND_US` each round, as no two rounds happen at the same moment). Nonces come from a seed. A power
loss may cut a round short at any of its points, after which the engine is rebuilt from the store.
After every round the structure is checked (see `structure`).

Verbs have the names of the wire protocol. A verb raises the error that a client would raise.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from tests.engine.structure import check_structure
from weft.errors import from_code
from weft.persistence.memory import MemoryStore
from weft.persistence.store import Change
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.engine.engine import Engine
from weft.server.engine.push import SinglePush
from weft.server.engine.state import Answered

#: Start of virtual time: any moment after 1970 will do.
START_US: Final = 1_700_000_000_000_000
#: Duration of a round. Stamps that are forced apart within one round stay below it.
ROUND_US: Final = 50
#: Upper bound of the rounds that a background job takes in these small tests.
SETTLE_ROUNDS_MAX: Final = 10_000


class Cut(Enum):
    """The points of a round at which power may fail."""

    BEFORE_WRITE = auto()
    IN_WRITE = auto()  # written, not synced: all of the write may be there, or nothing
    BEFORE_ANSWERS = auto()
    BETWEEN_ANSWERS = auto()


@dataclass(frozen=True)
class Asked:
    """A request in flight to the engine."""

    request: wire.AnyRequest
    payload: Sequence[bytes] = ()
    to: object = "test"


@dataclass(frozen=True)
class Taken:
    """One message, as received by a consumer."""

    body: bytes
    index: int
    lent: wire.Lent
    headers: dict[str, str] | None = None
    key: str | None = None

    @property
    def deliveries(self) -> int:
        return self.lent.deliveries

    @property
    def id(self) -> tuple[int, int, int, int]:
        lent = self.lent
        return lent.partition, lent.producer, lent.batch, self.index

    @property
    def receipt(self) -> wire.Receipt:
        lent = self.lent
        return wire.Receipt(lent.partition, lent.lsn, lent.nonce, [(self.index, 1)])


def payload_of(
    bodies: Sequence[bytes],
    headers: list[dict[str, str] | None] | None = None,
    keys: list[str | None] | None = None,
) -> bytes:
    return wire.encode(wire.Payload(list(bodies), headers, keys))


def messages_of(answer: wire.AnyAnswer, payload: Sequence[bytes]) -> list[Taken]:
    """A pop's or peek's answer, message by message."""
    assert isinstance(answer, wire.Popped | wire.Peeked), answer
    assert len(answer.lent) == len(payload)
    messages: list[Taken] = []
    for lent, frame in zip(answer.lent, payload, strict=True):
        columns = wire.decode_payload(frame)
        assert len(columns.bodies) == lent.count
        messages += [
            Taken(
                body,
                lent.first + place,
                lent,
                columns.headers[place] if columns.headers else None,
                columns.keys[place] if columns.keys else None,
            )
            for place, body in enumerate(columns.bodies)
        ]
    return messages


class Rig:
    """One node in virtual time.

    Turn `checking` off in tests with hundreds of thousands of messages.
    """

    def __init__(
        self, seed: int = 0, *, partitions: int = 4, cache_bytes: int = 1 << 20,
        checking: bool = True,
    ) -> None:  # fmt: skip
        self.now = START_US
        self.checking = checking
        self._partitions = partitions
        self._cache_bytes = cache_bytes
        self._entropy = random.Random(seed)
        self._tokens = self._pushes = self.lone_pushes = self._rounds = 0
        self._batches = 1_000_000  # above the numbers that tests choose themselves
        #: Undelivered answers, by caller.
        self.mail: dict[object, Answered] = {}
        self.store = MemoryStore()
        self.engine = self._start()

    # --- rounds ---------------------------------------------------------------------------

    def round(self, *asked: Asked) -> list[Answered]:
        """Run one complete round; return its answers."""
        if (single_push := self._lone(asked)) is not None:
            self._write(single_push.changes)
            answers = [*self.engine.answers(), Answered(asked[0].to, single_push.answer)]
            self.engine.enter(single_push)
        else:
            self._write(self._work(asked))
            answers = self.engine.answers()
        if self.checking:
            self.check()
        return answers

    def cut_round(self, cut: Cut, rng: random.Random, *asked: Asked) -> list[Answered]:
        """Run a round with a power loss, then restart; return the answers sent before the loss."""
        answers: list[Answered] = []
        single_push = self._lone(asked)
        changes = self._work(asked) if single_push is None else single_push.changes
        if cut is Cut.IN_WRITE and changes:
            self.store.write(changes, sync=False)
        elif cut is not Cut.BEFORE_WRITE:
            self._write(changes)
        if cut is Cut.BETWEEN_ANSWERS:
            answers = self.engine.answers()
            answers += (
                [Answered(asked[0].to, single_push.answer)] if single_push is not None else []
            )
            answers = answers[: rng.randint(0, len(answers))]
        self.crash(rng)
        return answers

    def _lone(self, asked: Sequence[Asked]) -> SinglePush | None:
        """Take every other single push on the short path, as a node does."""
        if len(asked) != 1 or not isinstance(asked[0].request, wire.Push):
            return None
        if isinstance(asked[0].request, wire.PushWaiting):
            return None
        self._pushes += 1
        idle = self.now + ROUND_US < self.engine.next_due()
        if self._pushes % 2 or not idle or len(asked[0].payload) != 1:
            return None
        single_push = self.engine.start_single_push(
            self.now + ROUND_US, asked[0].request, asked[0].payload[0]
        )
        if single_push is not None:
            self.now += ROUND_US
            self.lone_pushes += 1
        return single_push

    def _work(self, asked: Sequence[Asked]) -> list[Change]:
        self.now += ROUND_US
        self._rounds += 1
        if self._rounds % 2:  # as a node that is its whole cluster
            requests = [(one.to, one.request, one.payload, None) for one in asked]
            changes, self.engine.state.answers = self.engine.run_round(self.now, requests)
            return changes
        self.engine.begin(self.now)
        for one in asked:
            self.engine.handle(one.request, one.payload, one.to)
        return self.engine.end()

    def _write(self, changes: list[Change]) -> None:
        if changes:
            self.store.write(changes, sync=True)

    def settle(self) -> None:
        """Run rounds until all background jobs are done."""
        for _ in range(SETTLE_ROUNDS_MAX):
            if not self.engine.state.jobs:
                return
            self._deliver(self.round())
        raise AssertionError("long work does not end")

    def advance(self, ms: int) -> None:
        """Advance time in one leap, as for an idle node; then finish all background jobs."""
        self.now += ms * 1000
        self._deliver(self.round())
        self.settle()

    def crash(self, rng: random.Random | None = None) -> None:
        """Lose power now, and restart from the store."""
        self.engine.close()
        self.store = self.store.crash(rng)
        self.engine = self._start()

    def restart(self) -> None:
        """A clean stop and a start on the same store."""
        self.engine.drain()
        self._deliver(self.round())
        self.engine.close()
        self.engine = self._start()

    def _start(self) -> Engine:
        engine = Engine(
            self.store,
            partitions=self._partitions,
            durability="disk",
            cache_bytes=self._cache_bytes,
            entropy=lambda: self._entropy.getrandbits(63),
        )
        engine.recover(self.now)
        return engine

    def check(self) -> None:
        check_structure(self.engine.state, self.store)

    # --- calls ----------------------------------------------------------------------------

    def send(self, request: wire.AnyRequest, *payload: bytes) -> Answered:
        """Send one request in a round of its own; return its answer, which may take more rounds."""
        self._tokens += 1
        token = ("call", self._tokens)
        self._deliver(self.round(Asked(request, payload, token)))
        if token not in self.mail:  # a redrive is answered at its end
            self.settle()
        return self.mail.pop(token)

    def call(self, request: wire.AnyRequest, *payload: bytes) -> wire.AnyAnswer:
        return checked(self.send(request, *payload)).answer

    def ask(self, request: wire.AnyRequest) -> object:
        """Send one request that may be answered later: see `answer`."""
        self._tokens += 1
        token = ("wait", self._tokens)
        self._deliver(self.round(Asked(request, (), token)))
        return token

    def answer(self, token: object) -> Answered | None:
        """The answer for a caller, if one has arrived."""
        return self.mail.pop(token, None)

    def _deliver(self, answers: list[Answered]) -> None:
        for answered in answers:
            assert answered.to not in self.mail, f"{answered.to} is answered twice"
            self.mail[answered.to] = answered

    # --- the verbs ------------------------------------------------------------------------

    def create(self, queue: str, **settings: int | str | bool) -> bool:
        made = Settings(**settings)  # type: ignore[arg-type]
        answer = self.call(wire.create_request(queue, made))
        assert isinstance(answer, wire.Created)
        return answer.created

    def update(self, queue: str, **changes: int | str | bool) -> None:
        assert self.call(wire.UpdateQueue(queue, changes)) == wire.Done()

    def delete(self, queue: str) -> int:
        return self._count(wire.DeleteQueue(queue))

    def purge(self, queue: str) -> int:
        return self._count(wire.PurgeQueue(queue))

    def redrive(self, queue: str, limit: int = 0) -> int:
        return self._count(wire.Redrive(queue, limit))

    def stats(self, queue: str) -> wire.QueueInfo:
        answer = self.call(wire.DescribeQueue(queue))
        assert isinstance(answer, wire.Queues)
        return answer.queues[0]

    def counts(self, queue: str) -> tuple[int, int, int]:
        """(ready, leased, delayed)."""
        stats = self.stats(queue)
        return stats.ready, stats.leased, stats.delayed

    def push(
        self, queue: str, *bodies: bytes, producer: int = 7, batch: int | None = None,
        delay_ms: int = 0, priority: int = 0, dedup_key: str | None = None,
        group: str | None = None, tenant: str | None = None,
    ) -> wire.Pushed:  # fmt: skip
        if batch is None:
            self._batches += 1
            batch = self._batches
        request = wire.Push(queue, producer, batch, len(bodies), delay_ms, priority, dedup_key)
        if group is not None:
            request = wire.PushGroup(
                queue, producer, batch, len(bodies), delay_ms, priority, dedup_key, group
            )
        if tenant is not None:
            request = wire.PushTenant(
                queue, producer, batch, len(bodies), delay_ms, priority, dedup_key, tenant
            )
        answer = self.call(request, payload_of(bodies))
        assert isinstance(answer, wire.Pushed)
        return answer

    def pop(
        self, queue: str, limit: int = 1, lease_ms: int = 0, *, prefetch: bool = False
    ) -> list[Taken]:
        request = wire.Pop(queue, limit, 0, lease_ms, prefetch=prefetch)
        answered = checked(self.send(request))
        return messages_of(answered.answer, answered.payload)

    def bodies(self, queue: str, limit: int = 1, lease_ms: int = 0) -> list[bytes]:
        return [message.body for message in self.pop(queue, limit, lease_ms)]

    def cancel(self, queue: str, pushed: wire.Pushed, index: int = 0) -> int:
        return self._count(
            wire.Cancel(queue, pushed.partition, pushed.producer, pushed.batch, index)
        )

    def peek(self, queue: str, limit: int = 100, *, delayed: bool = False) -> list[Taken]:
        answered = checked(self.send(wire.Peek(queue, limit, delayed)))
        return messages_of(answered.answer, answered.payload)

    def ack(self, queue: str, *messages: Taken) -> wire.Settled:
        return self._settled(wire.Ack(queue, [each.receipt for each in messages]))

    def nack(
        self, queue: str, *messages: Taken, delay_ms: int = 0, reason: str = "",
        counted: bool = True,
    ) -> wire.Settled:  # fmt: skip
        receipts = [each.receipt for each in messages]
        return self._settled(wire.Nack(queue, receipts, delay_ms, reason, counted))

    def move(self, queue: str, to: str, *messages: Taken) -> wire.Settled:
        return self._settled(wire.Move(queue, [each.receipt for each in messages], to))

    def extend(
        self, queue: str, lease_ms: int, *messages: Taken, handed: bool = False
    ) -> wire.Settled:
        receipts = [each.receipt for each in messages]
        return self._settled(wire.Extend(queue, receipts, lease_ms, handed))

    def _settled(self, request: wire.AnyRequest) -> wire.Settled:
        answer = self.call(request)
        assert isinstance(answer, wire.Settled)
        return answer

    def _count(self, request: wire.AnyRequest) -> int:
        answer = self.call(request)
        assert isinstance(answer, wire.Done)
        return answer.count


def checked(answered: Answered) -> Answered:
    answer = answered.answer
    if isinstance(answer, wire.Failure):
        error = from_code(answer.code, answer.message)
        assert error.retriable == answer.retriable
        raise error
    return answered


def queue_names(rig: Rig, request: wire.ListQueues) -> tuple[list[str], bool]:
    """The names in an answer to ListQueues, and whether more follow."""
    answer = rig.call(request)
    assert isinstance(answer, wire.Queues)
    return [info.name for info in answer.queues], answer.more
