"""One power-loss schedule: clients that survive crashes, and a history of their observations.

Two producers push batches and resend the same (producer, batch) until acknowledged. Consumers pop,
ack, nack, extend, keep messages until the lease expires, and resend unanswered acks. Power fails at
any point of a round. One seed draws everything. The clients write a `History`; after the last crash
the queue is drained, and the checker gives the verdict.
"""

from __future__ import annotations

import random
from typing import Final

from tests.engine.rig import Asked, Cut, Rig, Taken, messages_of, payload_of
from tests.total_queue import History
from weft.proto import wire
from weft.server.engine.state import Answered

QUEUE: Final = "orders"
LEASE_MS: Final = 2000
_DRAIN_ROUNDS_MAX: Final = 1000


class Schedule:
    grouped = False

    def __init__(
        self, rig: Rig, seed: int, *, rounds: int = 60, crash_chance: float = 0.15
    ) -> None:
        self.rig = rig
        self.rng = random.Random(seed)
        self.rounds = rounds
        self.crash_chance = crash_chance
        self.crashes = 0
        self.history = History(lambda: rig.now / 1e6)
        self.unanswered: dict[tuple[int, int], list[str]] = {}  # pushes, by producer and batch
        self.keyed: dict[tuple[int, int], str] = {}  # dedup keys of some pushes
        self.held: dict[str, Taken] = {}  # by name
        self.numbers = {1: 0, 2: 0}

    def run(self) -> History:
        self.rig.create(QUEUE, lease_ms=LEASE_MS, grouped=self.grouped)
        for _ in range(self.rounds):
            if self.rng.random() < 0.1:
                self.rig.now += self.rng.choice([100, 900, 2500]) * 1000
            self._round(self._requests(), self.rng.random() < self.crash_chance)
        self._drain()
        return self.history

    # --- requests of the clients ----------------------------------------------------------

    def _requests(self) -> list[Asked]:
        requests: list[Asked] = []
        for _ in range(self.rng.randint(1, 5)):
            request = self.rng.choice([self._push, self._push, self._retry, self._pop, self._pop,
                                    self._ack, self._ack, self._nack, self._extend])()  # fmt: skip
            if request is not None:
                requests.append(request)
        return requests

    def _push(self) -> Asked:
        producer = self.rng.choice([1, 2])
        self.numbers[producer] += 1
        name = producer, self.numbers[producer]
        count = self.rng.choice([1, 1, 3, 10])
        self.unanswered[name] = [f"{producer}/{name[1]}/{index}" for index in range(count)]
        if self.rng.random() < 0.3:
            self.keyed[name] = f"key {name}"
        return self._push_again(name)

    def _retry(self) -> Asked | None:
        names = sorted(self.unanswered)
        return self._push_again(self.rng.choice(names)) if names else None

    def _push_again(self, name: tuple[int, int]) -> Asked:
        bodies = self.unanswered[name]
        self.history.attempted(*bodies)
        request = wire.Push(QUEUE, *name, len(bodies), dedup_key=self.keyed.get(name))
        return Asked(request, [payload_of([body.encode() for body in bodies])], ("push", name))

    def _pop(self) -> Asked:
        return Asked(wire.Pop(QUEUE, self.rng.choice([1, 2, 7, 30])), (), ("pop",))

    def _some(self) -> list[Taken]:
        """Some of the held messages; an ack of these may be sent again later."""
        count = min(len(self.held), self.rng.randint(1, 8))
        return [self.held[name] for name in self.rng.sample(sorted(self.held), count)]

    def _ack(self) -> Asked | None:
        some = self._some()
        if not some:
            return None
        self.history.ack_attempted(*(each.body.decode() for each in some))
        return Asked(wire.Ack(QUEUE, [each.receipt for each in some]), (), ("ack", some))

    def _nack(self) -> Asked | None:
        some = self._some()
        if not some:
            return None
        names = [each.body.decode() for each in some]
        for name in names:
            del self.held[name]
        self.history.nacked(*names)
        delay_ms = self.rng.choice([0, 0, 300])
        return Asked(wire.Nack(QUEUE, [each.receipt for each in some], delay_ms), (), ("nack",))

    def _extend(self) -> Asked | None:
        some = self._some()
        receipts = [each.receipt for each in some]
        return Asked(wire.Extend(QUEUE, receipts, LEASE_MS), (), ("extend",)) if some else None

    # --- answers to the clients -----------------------------------------------------------

    def _round(self, requests: list[Asked], crashes: bool) -> None:
        if not crashes:
            self._see(self.rig.round(*requests))
            return
        self.crashes += 1
        cut = self.rng.choice(list(Cut))
        self._see(self.rig.cut_round(cut, self.rng, *requests))
        self.rig.now += 1
        self.history.restarted()
        self.rig.now += 1

    def _see(self, answers: list[Answered]) -> None:
        for to, answer, payload, *_ in answers:
            assert isinstance(to, tuple)
            match answer:
                case wire.Pushed():
                    self.history.acknowledged(*self.unanswered.pop(to[1], []))
                case wire.Popped():
                    self._take(messages_of(answer, payload))
                case wire.Settled() if to[0] == "ack":
                    self._acked(to[1], answer)
                case wire.Settled():
                    pass
                case _:
                    raise AssertionError(answer)

    def _take(self, messages: list[Taken]) -> None:
        for each in messages:
            name = each.body.decode()
            # The history has no extensions, so every lease may have ended after its first term.
            self.history.delivered(name, id=str(each.id), lease_s=each.lent.lease_ms / 1000)
            self.held[name] = each

    def _acked(self, some: list[Taken], answer: wire.Settled) -> None:
        assert answer.done + answer.already + len(answer.lost) == len(some)
        for place, each in enumerate(some):
            name = each.body.decode()
            if self.held.get(name) is each:
                del self.held[name]
            if place in answer.lost:
                self.history.ack_refused(name)
            else:
                self.history.ack_confirmed(name)

    # --- the end --------------------------------------------------------------------------

    def _drain(self) -> None:
        """Push the unanswered batches, let all leases expire, then pop and ack everything."""
        for name in sorted(self.unanswered):
            self._see(self.rig.round(self._push_again(name)))
        self.held.clear()
        self.rig.now += 2 * LEASE_MS * 1000
        self.rig.round()
        for _ in range(_DRAIN_ROUNDS_MAX):
            self._see(self.rig.round(Asked(wire.Pop(QUEUE, 100), (), ("pop",))))
            if not self.held:
                return
            some = list(self.held.values())
            self.history.ack_attempted(*(each.body.decode() for each in some))
            receipts = [each.receipt for each in some]
            self._see(self.rig.round(Asked(wire.Ack(QUEUE, receipts), (), ("ack", some))))
        raise AssertionError("the queue does not become empty")
