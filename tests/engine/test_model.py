"""The engine against the model: thousands of random steps, every answer compared.

Each walk has a seed; a failure reports the seed and the steps before it. A step is one request in
one round. Sometimes a power loss cuts the round: before its write the step has never happened,
after its write it has. The rig checks the structure after every round.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Final

import pytest

from tests.engine.model import LEASED, Model
from tests.engine.rig import ROUND_US, Asked, Cut, Rig, Taken, messages_of, payload_of
from weft.dht import placement
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.engine.state import Answered

STEPS: Final = 350
#: For a long run: WEFT_WALKS=1000.
WALKS: Final = int(os.environ.get("WEFT_WALKS", "12"))
QUEUES: Final = {"a": (1000, 3, "a.dead"), "b": (5000, 0, ""), "c": (700, 1, "a.dead")}
#: One request, its effect on the model, and the expected answer.
Step = tuple[wire.AnyRequest, tuple[bytes, ...], Callable[[], object]]


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rig = Rig(seed, partitions=3, cache_bytes=2000)
        self.model = Model()
        self.story: list[str] = []
        #: Messages that consumers hold, with the model's lease: some are long stale.
        self.held: list[tuple[Taken, int]] = []
        self.batch = 0
        self.sent: list[tuple[str, tuple[int, int], list[bytes], str | None]] = []

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            assert self.rig.engine.state.queues.keys() == self.model.queues.keys()
            for name, queue in self.rig.engine.state.queues.items():
                counts = queue.ready, queue.leased, queue.delayed
                assert counts == self.model.counts(name), self._tale(name)

    def _tale(self, what: str = "") -> str:
        return "\n".join([what, *self.story[-40:]])

    def step(self) -> None:
        rng = self.rng
        if rng.random() < 0.03:
            self.story.append("restart")
            self.rig.restart()  # after one last round
            self.model.tick(self.rig.now)
            self._void()
            return
        if rng.random() < 0.15:
            self.rig.now += rng.choice([1, 150, 700, 1000, 5000]) * 1000
        name = rng.choice([*sorted(QUEUES), "a.dead"])
        if name not in self.model.queues:
            self._do(self._create(name))
            return
        verbs = [self._push] * 6 + [self._again] * 2 + [self._pop] * 6 + [self._ack] * 5
        verbs += [self._nack] * 4 + [self._extend, self._redrive, self._peek]
        verbs += [self._cancel] * 2
        verbs += [self._purge, self._delete] * (rng.random() < 0.2)
        step = rng.choice(verbs)(name)
        if step is not None:
            self._do(step)

    def _do(self, step: Step) -> None:
        request, payload, expect = step
        self.story.append(f"{self.rig.now} {request}"[:160])
        asked = Asked(request, payload)
        now = self.rig.now + ROUND_US
        if self.rng.random() < 0.05:
            cut = self.rng.choice([Cut.BEFORE_WRITE, Cut.BEFORE_ANSWERS])
            self.story.append(f"power loss {cut.name}")
            if cut is Cut.BEFORE_ANSWERS:
                expect()
                self.model.tick(now)
            self.rig.cut_round(cut, self.rng, asked)
            self._void()
        else:
            expected = expect()
            self.model.tick(now)
            answers = self.rig.round(asked)
            while not answers:  # a redrive is answered at its end
                answers = self.rig.round()
            assert self._seen(answers[0]) == expected, self._tale()
        self.rig.settle()
        self.model.tick(self.rig.now)

    def _void(self) -> None:
        self.model.restart()
        self.rig.round()
        self.model.tick(self.rig.now)

    def _seen(self, answered: Answered) -> object:
        """The answer in the model's terms."""
        answer = answered.answer
        if isinstance(answer, wire.Popped):
            messages = messages_of(answer, answered.payload)
            for message in messages:
                thing = self.model.things.get(message.body)
                if thing is not None and thing.state == LEASED:
                    self.held.append((message, thing.lease))
            return [(each.body, each.deliveries, each.lent.reason) for each in messages]
        if isinstance(answer, wire.Peeked):
            return [each.body for each in messages_of(answer, answered.payload)]
        if isinstance(answer, wire.Pushed):
            return not answer.duplicate
        if isinstance(answer, wire.Done):
            return answer.count
        if isinstance(answer, wire.Failure):
            return answer.code
        return answer

    # --- the verbs ------------------------------------------------------------------------

    def _create(self, name: str) -> Step:
        if name not in QUEUES:
            return self._create("a")
        lease_ms, most, dead = QUEUES[name]

        def expect() -> object:
            if name in self.model.queues:
                return wire.Created(False)
            self.model.create(name, lease_ms, most, dead)
            return wire.Created(True)

        settings = Settings(lease_ms=lease_ms, max_deliveries=most, dead_letter=dead)
        return wire.CreateQueue(name, settings), (), expect

    def _push(self, queue: str) -> Step:
        self.batch += 1
        count = self.rng.choice([1, 1, 2, 5, 9])
        bodies = [b"%d.%d" % (self.batch, index) for index in range(count)]
        key = f"k{self.rng.randint(0, 30)}" if self.rng.random() < 0.2 else None
        name = self.rng.randint(1, 3), self.batch
        self.sent.append((queue, name, bodies, key))
        return self._pushing(queue, name, bodies, key)

    def _again(self, queue: str) -> Step | None:
        return self._pushing(*self.rng.choice(self.sent[-20:])) if self.sent else None

    def _pushing(
        self, queue: str, name: tuple[int, int], bodies: list[bytes], key: str | None
    ) -> Step:
        delay_ms = self.rng.choice([0, 0, 0, 400])
        priority = self.rng.choice([0, 0, 0, 1, 9])
        now = self.rig.now + ROUND_US

        def expect() -> object:
            return self.model.push(
                now, queue, name, bodies, delay_us=delay_ms * 1000, priority=priority, key=key
            )

        request = wire.Push(queue, *name, len(bodies), delay_ms, priority, key)
        return request, (payload_of(bodies),), expect

    def _pop(self, queue: str) -> Step:
        limit = self.rng.choice([1, 1, 3, 8, 50])
        lease_ms = self.rng.choice([0, 0, 300])
        prefetch = self.rng.random() < 0.5
        now = self.rig.now + ROUND_US

        def expect() -> object:
            taken = self.model.pop(now, queue, limit, lease_ms, prefetch=prefetch)
            return [(each.body, each.deliveries + 1, each.reason) for each in taken]

        return wire.Pop(queue, limit, 0, lease_ms, prefetch=prefetch), (), expect

    def _peek(self, queue: str) -> Step:
        return (
            wire.Peek(queue, 4),
            (),
            lambda: [each.body for each in self.model.of(queue, "ready")[:4]],
        )

    def _cancel(self, queue: str) -> Step | None:
        if not self.sent:
            return None
        _, (producer, batch), bodies, key = self.rng.choice(self.sent[-20:])
        index = self.rng.randrange(len(bodies))
        partition = placement.of_push(queue, False, producer, batch, key, 3)
        now = self.rig.now + ROUND_US

        def expect() -> object:
            self.model.tick(now)  # a cancel runs after the round's timers
            return self.model.cancel(queue, bodies[index])

        return wire.Cancel(queue, partition, producer, batch, index), (), expect

    def _some(self) -> list[tuple[Taken, int]]:
        some = self.rng.sample(self.held, min(len(self.held), self.rng.randint(1, 5)))
        if self.rng.random() < 0.8:  # otherwise kept, and tried again when stale
            self.held = [each for each in self.held if each not in some]
        return some

    def _ack(self, _: str) -> Step | None:
        some = self._some()
        queue = self._queue_of(some)
        if queue is None:
            return None

        def expect() -> object:
            done = [self._is_in(queue, *each) and self.model.ack(each[0].body, each[1])
                    for each in some]  # fmt: skip
            return Outcome(done)

        return wire.Ack(queue, [each.receipt for each, _ in some]), (), expect

    def _nack(self, _: str) -> Step | None:
        some = self._some()
        queue = self._queue_of(some)
        if queue is None:
            return None
        delay_ms = self.rng.choice([0, 0, 250])
        counted = self.rng.random() < 0.8
        now = self.rig.now + ROUND_US

        def expect() -> object:
            return Outcome([
                self._is_in(queue, *each) and self.model.nack(
                    now, each[0].body, each[1], delay_us=delay_ms * 1000, reason="r",
                    counted=counted,
                ) for each in some
            ])  # fmt: skip

        receipts = [each.receipt for each, _ in some]
        return wire.Nack(queue, receipts, delay_ms, "r", counted), (), expect

    def _extend(self, _: str) -> Step | None:
        some = self._some()
        queue = self._queue_of(some)
        if queue is None:
            return None
        now, handed = self.rig.now + ROUND_US, self.rng.random() < 0.5

        def expect() -> object:
            good = [self._is_in(queue, *each) and self.model.holds(each[0].body, each[1])
                    for each in some]  # fmt: skip
            # An extension covers the whole lease: all messages lent with it and still out.
            nonces = {each.lent.nonce for (each, _), ok in zip(some, good, strict=True) if ok}
            self.model.extend(now, self._under(nonces), 2000)
            for (each, lease), ok in zip(some, good, strict=True):
                if ok and handed:
                    self.model.hand_out(each.body, lease)
            return Outcome(good)

        return wire.Extend(queue, [each.receipt for each, _ in some], 2000, handed), (), expect

    def _under(self, nonces: set[int]) -> list[bytes]:
        state = self.rig.engine.state
        bodies = []
        for nonce in nonces:
            lease = state.leases.by_nonce[nonce]
            columns = wire.decode_payload(state.payloads.whole(lease.key))
            bodies += [body for i, body in enumerate(columns.bodies) if lease.mask >> i & 1]
        return bodies

    def _purge(self, queue: str) -> Step:
        return wire.PurgeQueue(queue), (), lambda: self.model.purge(queue)

    def _delete(self, queue: str) -> Step | None:
        if any(each.dead_letter == queue for each in self.model.queues.values()):
            return None

        def expect() -> int:
            # A new queue of that name would accept these again, as other messages of the same body.
            self.sent = [each for each in self.sent if each[0] != queue]
            return self.model.delete(queue)

        return wire.DeleteQueue(queue), (), expect

    def _redrive(self, _: str) -> Step | None:
        if "a.dead" not in self.model.queues:
            return None
        self.rig.round()  # a redrive runs after the round's timers: run due timers first
        self.model.tick(self.rig.now)
        limit = self.rng.choice([0, 0, 2])
        return wire.Redrive("a.dead", limit), (), lambda: self.model.redrive("a.dead", limit)

    def _queue_of(self, some: list[tuple[Taken, int]]) -> str | None:
        """The queue of the first message; receipts of other queues are sent along and refused."""
        for message, _ in some:
            thing = self.model.things.get(message.body)
            if thing is not None and thing.queue in self.model.queues:
                return thing.queue
        return None

    def _is_in(self, queue: str, message: Taken, lease: int) -> bool:
        thing = self.model.things.get(message.body)
        return thing is not None and thing.queue == queue and thing.lease == lease


class Outcome:
    """Which of the receipts succeeded, compared with a `Settled`."""

    def __init__(self, worked: list[bool]) -> None:
        self.worked = worked

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, wire.Settled):
            return NotImplemented
        refused = {place for place, ok in enumerate(self.worked) if not ok}
        return (
            other.done == sum(self.worked)
            and set(other.lost) <= refused
            and other.already == len(refused) - len(other.lost)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Outcome({self.worked})"


@pytest.mark.parametrize("seed", range(WALKS))
def test_the_engine_does_what_the_model_says(seed: int) -> None:
    Walk(seed).run(STEPS)
